"""MLX's ring with each connection tunnelled through this process: nothing leaves it unencrypted."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack

from core.errors import GroupFailed, MaclusterError
from core.link.data_plane import listen
from core.link.tunnel import Lost, Tunnel, Tunnels
from core.worker.bootstrap import RankEntry, agree
from core.worker.group_init import OpenGroup
from core.worker.mlx_ring_sockets import mlx_ring_sockets
from core.worker.ring import Ring
from core.worker.sums import gather_sums


def open_sealed(ring: Ring, lost: Lost) -> OpenGroup:
    """The `open_group` whose bytes use keys, roster and plan like any data link."""
    beside, world = ring.neighbours, len(ring.plan.stages)
    with ExitStack() as failing:
        incoming, outgoing = (failing.enter_context(listen(beside.host)) for _ in range(2))
        ports = (incoming.getsockname()[1], outgoing.getsockname()[1])
        told = agree(ring, lambda _: RankEntry(ports=ports))
        into, out = told.ranks[(ring.index + 1) % world].ports
        local = mlx_ring_sockets(ring.index, world)
        failing.callback(local.before.close)
        failing.callback(local.after.close)

        def bound(rank: int, direction: str) -> bytes:
            """The identity of a link, which both ends compare: the plan, this group, and the two ranks."""
            words = f"macluster/2 tunnel {rank % world} {direction}\0".encode()
            return hashlib.sha256(words + told.session + beside.binding).digest()

        def to_the_next(lost: Lost) -> Tunnel:
            return Tunnel(
                local.after,
                lambda: beside.dial(into, bound(ring.index, "on")).sender(),
                lambda: beside.dial(out, bound(ring.index, "back")).receiver(),
                dials=True,
                limits=ring.limits,
                lost=lost,
            )

        def from_the_one_before(lost: Lost) -> Tunnel:
            before = ring.index - 1
            return Tunnel(
                local.before,
                lambda: beside.accept(outgoing, bound(before, "back")).sender(),
                lambda: beside.accept(incoming, bound(before, "on")).receiver(),
                dials=False,
                limits=ring.limits,
                lost=lost,
            )

        tunnels = Tunnels(lost)
        failing.callback(tunnels.close)
        # the head starts, as with the links of the ring, so no two ranks wait for each other
        try:
            for make in (to_the_next, from_the_one_before)[:: 1 if ring.index == 0 else -1]:
                tunnels.add(make)
        except MaclusterError as error:
            raise GroupFailed(f"The ranks cannot reach each other: {error.what}") from error
        failing.callback(gather_sums(local.group))
        return OpenGroup(local.group, needs_python=True, resources=failing.pop_all())
