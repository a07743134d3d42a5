"""Plans over Macs that are simulated on this machine, made without measuring anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec

from core.events import Plan, Stage, Topology
from core.local.macs import LocalMacs
from core.plan.topology import LONE_MAC_TOPOLOGY, TOPOLOGIES
from core.settings import PREFILL_CHUNK
from core.trust.identity import Identity
from core.worker.neighbours import plan_digest

CONTEXT: Final = 65_536


def plan_of(model: str, layers: int, cuts: Sequence[int], macs: LocalMacs, topology: Topology) -> Plan:
    """Cut `layers` layers before `cuts` and give each of `macs` one stage; a plan without cuts is `single`."""
    owners = list(pairwise((0, *cuts, layers)))
    topology = topology if cuts else LONE_MAC_TOPOLOGY
    row, last = TOPOLOGIES[topology], owners[-1]
    owners.insert(0, owners.pop(row.head(len(owners))))  # the ring begins with the head
    return plan_over(model, topology, owners, owners.index(last) if row.last_outputs else 0, macs)


def digest_of(plan: Plan) -> bytes:
    """The value that binds the links of `plan`, as its head would send it."""
    return plan_digest(msgspec.json.encode(plan))


def stage_of(mac: Identity, index: int, start: int, stop: int) -> Stage:
    """Layers [start, stop) on `mac`, without any bytes reserved."""
    name = f"mac-{index}"
    return Stage(device_id=mac.text_id, peer=name, start=start, stop=stop, weight_bytes=0, kv_bytes=0, budget_bytes=0)


def plan_over(model: str, topology: Topology, owners: Sequence[tuple[int, int]], output: int, macs: LocalMacs) -> Plan:
    """A plan whose stages are `owners`, layers [start, stop) of each Mac; stage `output` has the output."""
    stages = tuple(
        stage_of(mac, index, start, stop)
        for index, (mac, (start, stop)) in enumerate(zip(macs.identities, owners, strict=True))
    )
    return Plan(
        plan_gen=1,
        model=model,
        fingerprint="",
        topology=topology,
        layers=max(stop for _, stop in owners),
        context=CONTEXT,
        chunk=PREFILL_CHUNK,
        window=len(stages) + 1,
        stages=stages,
        output=stages[output].device_id,
    )
