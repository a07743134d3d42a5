"""Groups that MLX links by itself: RDMA over Thunderbolt 5, or NCCL between NVIDIA GPUs.

Sums travel unencrypted, which the user has to confirm when loading.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from core.errors import GroupFailed
from core.link.data_plane import listen
from core.link.network_paths import NetworkPath, measure_paths
from core.mac.interfaces import advertised, interfaces
from core.mac.rdma import RdmaSeen, device_at, devices_in, look, why_not
from core.worker.bootstrap import MAX_HOSTS, Bootstrap, RankEntry, agree
from core.worker.group_init import OpenGroup, init_group
from core.worker.group_variables import nccl_variables, rdma_devices, rdma_variables
from core.worker.neighbours import Neighbours
from core.worker.ring import Ring

REACH_S: Final = 1.0


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
