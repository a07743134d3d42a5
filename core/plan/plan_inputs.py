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


class KnownFacts(TypedDict):
    """A model with its sizes, over `peers`, the head first, and what is known about these Macs."""

    model: str
    fingerprint: str
    layout: Layout
    peers: Sequence[Peer]
    profile: NotRequired[SplitProfile | None]
    no_group: NotRequired[str]  # why their parts can't be reduced, "" if nothing is known against it
    rtt: NotRequired[Callable[[str, str], float | None]]  # round trip between two Macs in seconds, if measured
    stage_s: NotRequired[StageSeconds]  # measured seconds per token of layers on a Mac
    expects: NotRequired[Callable[[Plan], Forecast | None]]  # forecast of a plan
    longest: NotRequired[int]  # context that the model takes
    peers_at: NotRequired[Callable[[int], Sequence[Peer]]]  # `peers`, if a draft with this context is loaded too
    can_lose: NotRequired[Callable[[Plan, str], bool]]  # whether the other disks have every layer of this Mac's


class PlanInputs(PlanOptions, KnownFacts):
    """Everything that decides a plan."""

    plan_gen: int


def plan_options_of(request: PlanRequest) -> PlanOptions:
    return cast(PlanOptions, {name: getattr(request, name) for name in PlanOptions.__annotations__})
