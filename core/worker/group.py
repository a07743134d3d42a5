"""The group of a tensor plan, in which the ranks add up their shares of a layer.

Each way of opening one differs in how bytes travel between ranks, and whether others on the cable could read them. The
sealed one is MLX's ring with each connection tunnelled through this process: nothing leaves it unencrypted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import mlx.core as mx

from core.errors import GroupFailed, MaclusterError
from core.events import GroupKind
from core.link.data_plane import listen
from core.link.tunnel import Lost, Tunnel, Tunnels
from core.plan.all_reduce import is_gathered
from core.worker.bootstrap import RankEntry, agree
from core.worker.direct_group import open_nccl, open_rdma
from core.worker.group_init import Group, OpenGroup
from core.worker.mlx_ring_sockets import mlx_ring_sockets
from core.worker.ring import Ring


def open_group(kind: GroupKind, ring: Ring, lost: Lost) -> OpenGroup:
    """Open the group of all stages of the plan of `ring`, while the ring is otherwise unused; every stage calls this,
    once in the life of its process. `lost` is called in another thread when a rank is gone. MLX may then hang in a
    reduce, so the process has to end. Code that evaluates a reduce must release the interpreter, as `mx.eval` does.
    Raises GroupFailed if this process can't form another group, LinkError or its kinds, also another rank's reason.
    """
    match kind:
        case "sealed":
            return open_sealed(ring, lost)
        case "rdma":
            return open_rdma(ring)
        case "nccl":
            return open_nccl(ring)


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


def gather_sums(own: Group) -> Callable[[], None]:
    """Replace `mx.distributed.all_sum`, which mlx-lm's layers call, by a gather over the group `own` where
    `is_gathered` allows it; the returned function undoes that. Every rank adds in the same order, so all get the same
    numbers.
    """
    ring_sum, ranks = mx.distributed.all_sum, own.size()

    def all_sum(x: mx.array, *, group: Group | None = None, stream: Any = None) -> mx.array:
        if group is not own or not is_gathered(x.nbytes, ranks):
            return ring_sum(x, group=group, stream=stream)
        return mx.distributed.all_gather(x[None], group=group, stream=stream).sum(0)

    mx.distributed.all_sum = all_sum
    return partial(setattr, mx.distributed, "all_sum", ring_sum)
