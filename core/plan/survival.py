"""Whether a model could go on without one of the Macs that hold it, and how it would then run.

The head is not asked about: it owns the conversation, and without it there is nobody to go on for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import msgspec

from core.events import ParallelismChoice, Peer, Plan, Topology
from core.plan.plan_inputs import PlanOptions, plan_options_of
from core.plan.topology import LONE_MAC_TOPOLOGY, TOPOLOGIES
from core.requests.plans import PlanRequest


def options_after_loss(request: PlanRequest, macs: int) -> PlanOptions:
    """How the model of `request` is to run on so many Macs when others are lost: as was asked, where that can be."""
    how = plan_options_of(request)
    return {**how, **on_fewer(macs, how)}


class FewerMacsOptions(TypedDict):
    """What of `PlanOptions` is another on fewer Macs."""

    layers: Sequence[str]
    topology: Topology | None
    parallelism: ParallelismChoice | None


def on_fewer(macs: int, how: PlanOptions) -> FewerMacsOptions:
    """Layers that were given out by hand were meant for the Macs of then: they are divided by budget. Who asked for
    ranks gets them where so many Macs can be such; else the head does it all, as it does when it is left alone.
    """
    topology, parallelism = how.get("topology"), how.get("parallelism")
    if topology is not None and TOPOLOGIES[topology].ranks:
        return FewerMacsOptions(layers=(), topology=None, parallelism=parallelism or "tp")
    if macs > 1:
        return FewerMacsOptions(layers=(), topology=topology, parallelism=parallelism)
    return FewerMacsOptions(layers=(), topology=None if parallelism else LONE_MAC_TOPOLOGY, parallelism=parallelism)


def with_indispensable(
    plan: Plan, peers: Sequence[Peer], fits: Callable[[Sequence[Peer]], bool], can_lose: Callable[[Plan, str], bool]
) -> Plan:
    """`plan` with the Macs, the head left out, without which the model does not fit, or no disk has all of its layers:
    `fits` says of all `peers` but one, the head first, whether it fits; `can_lose` looks at the disks.
    """
    left = {stage.device_id: [p for p in peers if p.device_id != stage.device_id] for stage in plan.stages[1:]}
    short = {lost for lost, others in left.items() if not fits(others)}
    gone = {lost for lost in left if not can_lose(plan, lost)}
    return msgspec.structs.replace(
        plan,
        indispensable=tuple(lost for lost in left if lost in short | gone),
        nowhere_else=tuple(lost for lost in left if lost in gone - short),
    )
