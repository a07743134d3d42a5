"""Whether a model can continue without one of its Macs (but the head), and how it would run then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from core.events import Peer, Plan
from core.plan.plan_inputs import PlanOptions, plan_options_of
from core.plan.topology import LONE_MAC_TOPOLOGY, TOPOLOGIES
from core.requests.plans import PlanRequest


def options_after_loss(request: PlanRequest, macs: int) -> PlanOptions:
    return on_fewer(macs, plan_options_of(request))


def on_fewer(macs: int, how: PlanOptions) -> PlanOptions:
    """Divide by budget instead of by hand, and keep tensor parallelism if possible; one Mac does everything."""
    topology, parallelism = how.get("topology"), how.get("parallelism")
    if topology is not None and TOPOLOGIES[topology].ranks:
        topology, parallelism = None, parallelism or "tp"
    elif macs == 1:
        topology = None if parallelism else LONE_MAC_TOPOLOGY
    return {**how, "layers": (), "topology": topology, "parallelism": parallelism}


def with_indispensable(
    plan: Plan, peers: Sequence[Peer], fits: Callable[[Sequence[Peer]], bool], can_lose: Callable[[Plan, str], bool]
) -> Plan:
    """Mark the Macs without which the model doesn't fit (`fits`), or whose layers are on no other disk (`can_lose`)."""
    left = {stage.device_id: [p for p in peers if p.device_id != stage.device_id] for stage in plan.stages[1:]}
    short = {lost for lost, others in left.items() if not fits(others)}
    gone = {lost for lost in left if not can_lose(plan, lost)}
    return msgspec.structs.replace(
        plan,
        indispensable=tuple(lost for lost in left if lost in short | gone),
        nowhere_else=tuple(lost for lost in left if lost in gone - short),
    )
