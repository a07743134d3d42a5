"""The group of a tensor plan, in which the ranks add up their shares of a layer.

Each way of opening one differs in how bytes travel between ranks, and whether others on the cable could read them. The
sealed one is MLX's ring with each connection tunnelled through this process: nothing leaves it unencrypted. RDMA and
NCCL are linked by MLX itself: sums travel unencrypted, which the user has to confirm when loading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import mlx.core as mx

from core.errors import GroupFailed, MaclusterError
from core.events import GroupKind
from core.link.data_plane import listen
from core.link.network_paths import NetworkPath, measure_paths
from core.link.tunnel import Lost, Tunnel, Tunnels
from core.mac.interfaces import advertised, interfaces
from core.mac.rdma import RdmaSeen, device_at, devices_in, look, why_not
from core.plan.all_reduce import is_gathered
from core.worker.bootstrap import MAX_HOSTS, Bootstrap, RankEntry, agree
from core.worker.group_init import Group, OpenGroup, init_group
from core.worker.group_variables import nccl_variables, rdma_devices, rdma_variables
from core.worker.mlx_ring_sockets import mlx_ring_sockets
from core.worker.neighbours import Neighbours
from core.worker.ring import Ring

REACH_S: Final = 1.0


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


def open_rdma(ring: Ring) -> OpenGroup:
    """The `open_group` of MLX's jaccl. Only the node notices that a rank is gone."""
    world = len(ring.plan.stages)
    told = _meet(ring, own_devices(ring.neighbours, look()))
    with TemporaryDirectory(prefix="macluster-") as folder:
        devices = Path(folder) / "devices.json"
        devices.write_bytes(rdma_devices([each.devices for each in told.ranks]))
        variables = rdma_variables(ring.index, world, told.coordinator, told.port, devices)
        return OpenGroup(init_group("jaccl", variables, world))


def open_nccl(ring: Ring) -> OpenGroup:
    """The `open_group` of NCCL. Only the node notices that a rank is gone."""
    world = len(ring.plan.stages)
    told = _meet(ring)
    return OpenGroup(init_group("nccl", nccl_variables(ring.index, world, told.coordinator, told.port), world))


def own_devices(beside: Neighbours, seen: RdmaSeen) -> tuple[str, str]:
    """The RDMA devices of the cables to the next rank and to the one before. Raises GroupFailed if one is missing."""
    if missing := why_not(seen):
        raise GroupFailed(missing)
    found, listed = interfaces(), devices_in(seen.devices)
    after, before = (device_at(host, found, listed) for host in beside.own_hosts)
    if not after or not before:
        lone = beside.own_hosts[0 if not after else 1]
        raise GroupFailed(f"The link at {lone} uses no cable with RDMA.", "Join the Macs by Thunderbolt 5.")
    return after, before


def _meet(ring: Ring, devices: tuple[str, str] = ("", "")) -> Bootstrap:
    beside = ring.neighbours
    with listen(beside.host) as door:

        def entry(so_far: Bootstrap) -> RankEntry:
            if so_far.ranks:
                return RankEntry(hosts=_reached(so_far.ranks[0]), devices=devices)
            hosts = [host for host in advertised(interfaces(), beside.host) if ":" not in host]
            return RankEntry(hosts=tuple(hosts[:MAX_HOSTS]), ports=(door.getsockname()[1], 0), devices=devices)

        return agree(ring, entry)


def _reached(first: RankEntry) -> tuple[str, ...]:
    ways = [NetworkPath(host) for host in first.hosts]
    return tuple(tried.way.host for tried in measure_paths(ways, first.ports[0], REACH_S)) if ways else ()
