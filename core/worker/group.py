"""The group of a tensor plan: where its ranks add up what each has computed of a layer.

Every maker gives an `OpenGroup`; what differs is how bytes get from one rank to the next, and whether anybody on the
cable could read them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from core.errors import GroupFailed
from core.events import GroupKind
from core.link.channel import listen
from core.link.tunnel import Lost, Tunnel
from core.worker.bootstrap import RankEntry, agree
from core.worker.group_init import Group
from core.worker.local_ring import local_ring
from core.worker.ring import Ring


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """`group` for mx.distributed, and the tunnels that it goes through."""

    group: Group
    tunnels: tuple[Tunnel, ...] = ()

    def close(self) -> None:
        """Leave it: the other ranks see that at once. This process cannot form another one."""
        for tunnel in self.tunnels:
            tunnel.close()


def open_group(kind: GroupKind, ring: Ring, lost: Lost) -> OpenGroup:
    """The group of all stages of the plan of `ring`, while nothing else is on the ring; all of them call this, once in
    the life of their processes.

    `lost` is called in another thread when a rank is gone. MLX may then wait for ever in the reduce that is under way,
    so this process is to end. What evaluates a reduce must let go of the interpreter, as `mx.eval` does.

    Raises GroupFailed, LinkError or its kinds, also what another rank gives as its reason.
    """
    if kind not in _MAKERS:
        raise GroupFailed(f"This version forms no group of the kind {kind!r}.")
    return _MAKERS[kind](ring, lost)


def _open_sealed(ring: Ring, lost: Lost) -> OpenGroup:
    """MLX's ring, each of whose connections is led through a tunnel. Nothing leaves this process unsealed."""
    beside, world = ring.neighbours, len(ring.plan.stages)
    local = local_ring(ring.index, world)
    with ExitStack() as failing:
        failing.callback(local.before.close)
        failing.callback(local.after.close)
        incoming, outgoing = (listen(beside.host) for _ in range(2))
        failing.callback(incoming.close)
        failing.callback(outgoing.close)
        mine = RankEntry(ports=(incoming.getsockname()[1], outgoing.getsockname()[1]))
        told = agree(ring, mine)
        into, out = told.ranks[(ring.index + 1) % world].ports

        def bound(rank: int, direction: str) -> bytes:
            """What both ends of a link compare: the plan, this group, and between which ranks it goes."""
            words = f"macluster/1 tunnel {rank % world} {direction}\0".encode()
            return hashlib.sha256(words + told.session + beside.binding).digest()

        def to_the_next() -> Tunnel:
            return Tunnel(
                local.after,
                lambda: beside.dial(into, bound(ring.index, "on")).sender(),
                lambda: beside.dial(out, bound(ring.index, "back")).receiver(),
                dials=True,
                limits=ring.limits,
                lost=lost,
            )

        def from_the_one_before() -> Tunnel:
            before = ring.index - 1
            return Tunnel(
                local.before,
                lambda: beside.accept(outgoing, bound(before, "back")).sender(),
                lambda: beside.accept(incoming, bound(before, "on")).receiver(),
                dials=False,
                limits=ring.limits,
                lost=lost,
            )

        # as the links of the ring are made: the head begins, so no two ranks wait for each other
        first, then = (to_the_next, from_the_one_before)[:: 1 if ring.index == 0 else -1]
        one = first()
        failing.callback(one.close)
        other = then()
        failing.pop_all()
    return OpenGroup(local.group, (one, other))


_MAKERS: Final[dict[GroupKind, Callable[[Ring, Lost], OpenGroup]]] = {"sealed": _open_sealed}
