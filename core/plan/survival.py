"""Whether a model could go on without one of the Macs that hold it, and how it would then run.

The head is not asked about: it owns the conversation, and without it there is nobody to go on for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.events import Peer, Plan, Topology
from core.plan.plan_inputs import How, how_of
from core.plan.topology import LONE_MAC_TOPOLOGY
from core.requests import PlanRequest


def how_to_go_on(request: PlanRequest, macs: int) -> How:
    """How the model of `request` is to run on so many Macs when others are lost: as was asked, where that can be.

    Layers that were given out by hand were meant for the Macs of then: they are divided by budget.
    """
    how = how_of(request)
    how["layers"], how["topology"] = (), topology_on(macs, request.topology)
    return how


def topology_on(macs: int, asked: Topology | None) -> Topology | None:
    """`asked`, unless one Mac is left, which does it all."""
    return asked if macs > 1 else LONE_MAC_TOPOLOGY


def indispensable(plan: Plan, peers: Sequence[Peer], fits: Callable[[Sequence[Peer]], bool]) -> tuple[str, ...]:
    """Device ids of the Macs of `plan`, the head left out, without which the model does not fit: `fits` says of all
    `peers` but one, the head first, whether it does.
    """
    others = [stage.device_id for stage in plan.stages[1:]]
    return tuple(lost for lost in others if not fits([peer for peer in peers if peer.device_id != lost]))
