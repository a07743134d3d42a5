"""The group of a tensor plan: where its ranks add up what each has computed of a layer.

Every maker gives an `OpenGroup`; what differs is how bytes get from one rank to the next, and whether anybody on the
cable could read them.
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
    """The group of all stages of the plan of `ring`, while nothing else is on the ring; all of them call this, once in
    the life of their processes.

    `lost` is called in another thread when a rank is gone. MLX may then wait for ever in the reduce that is under way,
    so this process is to end. What evaluates a reduce must let go of the interpreter, as `mx.eval` does.

    Raises GroupFailed where this process can form no other one, LinkError or its kinds, also what another rank gives as
    its reason.
    """
    return _MAKERS[kind](ring, lost)
