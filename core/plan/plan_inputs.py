"""Inputs of a plan: a model, the Macs, and options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict, cast

from core.events import BalanceChoice, ParallelismChoice, Peer, Plan, Topology, WireType
from core.models.files.layout import Layout
from core.models.slicing.split_profile import SplitProfile
from core.plan.balance_by_speed import StageSeconds
from core.requests.plans import Forecast, PlanRequest


class PlanOptions(TypedDict):
    """Options of a plan, as in `core.requests.plans.PlanRequest`."""

    context: int | None  # None: chosen by memory
    kv_bits: NotRequired[int | None]
    rows: NotRequired[int]
    topology: NotRequired[Topology | None]
    layers: NotRequired[Sequence[str]]
    parallelism: NotRequired[ParallelismChoice | None]
    rdma: NotRequired[bool]
    balance: NotRequired[BalanceChoice]
    wire: NotRequired[WireType | None]


class PlanContext(TypedDict, total=False):
    """Known facts about the Macs besides their memory."""

    no_group: str  # why their parts can't be reduced, "" if nothing is known against it
    rtt: Callable[[str, str], float | None]  # round trip between two Macs in seconds, if measured
    stage_s: StageSeconds  # measured seconds per token of layers on a Mac
    expects: Callable[[Plan], Forecast | None]  # forecast of a plan
    longest: int  # context that the model takes
    peers_at: Callable[[int], Sequence[Peer]]  # `peers` with the memory that a draft model with this context leaves
    can_lose: Callable[[Plan, str], bool]  # whether the other disks have every layer without this Mac (device id)


class PlanInputs(PlanOptions, PlanContext):
    """A model with its sizes, over `peers`, the head first."""

    model: str
    fingerprint: str
    layout: Layout
    peers: Sequence[Peer]
    plan_gen: int
    profile: NotRequired[SplitProfile | None]


def plan_options_of(request: PlanRequest) -> PlanOptions:
    return cast(PlanOptions, {name: getattr(request, name) for name in PlanOptions.__annotations__})
