"""The group of a tensor plan, in which the ranks add up their shares of a layer.

Each way of opening one differs in how bytes travel between ranks, and whether others on the cable could read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from core.events import GroupKind
from core.link.tunnel import Lost
from core.worker.direct_group import open_nccl, open_rdma
from core.worker.group_init import OpenGroup
from core.worker.ring import Ring
from core.worker.sealed_group import open_sealed

_MAKERS: Final[dict[GroupKind, Callable[[Ring, Lost], OpenGroup]]] = {
    "sealed": open_sealed,
    "rdma": open_rdma,
    "nccl": open_nccl,
}


def open_group(kind: GroupKind, ring: Ring, lost: Lost) -> OpenGroup:
    """Open the group of all stages of the plan of `ring`, while the ring is otherwise unused; every stage calls this,
    once in the life of its process. `lost` is called in another thread when a rank is gone. MLX may then hang in a
    reduce, so the process has to end. Code that evaluates a reduce must release the interpreter, as `mx.eval` does.
    Raises GroupFailed if this process can't form another group, LinkError or its kinds, also another rank's reason.
    """
    return _MAKERS[kind](ring, lost)
