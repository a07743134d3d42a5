"""The call that makes a group. MLX holds the interpreter while it waits in there, so a timer outside it ends the
process at the deadline.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import mlx.core as mx

from core.errors import GroupFailed
from core.worker.group_variables import told

INIT_S: Final = 20.0

Group = Any  # mx.distributed.Group
Backend = Literal["ring", "jaccl", "nccl"]


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """`group` for mx.distributed, and its transport. `needs_python`: threads of this process carry the sums."""

    group: Group
    needs_python: bool = False
    resources: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Leave the group; the other ranks see that at once. This process can't form another one."""
        self.resources.close()


def init_group(backend: Backend, variables: Mapping[str, str], world: int) -> Group:
    """A group of `world` ranks. The process ends if that takes longer than `INIT_S` seconds. Raises GroupFailed."""
    try:
        with told(variables), _deadline(INIT_S):
            group = mx.distributed.init(strict=True, backend=backend)
    except (RuntimeError, ValueError) as error:
        raise GroupFailed(f"MLX cannot form the group: {error}.") from error
    if group.size() != world:
        raise GroupFailed(f"MLX formed a group of {group.size()} ranks; the plan has {world}.")
    return group


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """The only timer that needs no interpreter; the stack goes to the node's log."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
