"""What is to be planned: a model, the Macs, and how it is to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict

from core.events import BalanceChoice, ParallelismChoice, Peer, Plan, Topology, WireType
from core.models.slicing.split_profile import SplitProfile
from core.plan.balance_by_speed import StageSeconds
from core.plan.stage_sizes import LayoutBytes
from core.requests.plans import Forecast, PlanRequest


class PlanOptions(TypedDict):
    """How a model is to run: for `context` tokens, and what else `core.requests.plans.PlanRequest` has."""

    context: int
    kv_bits: NotRequired[int | None]
    rows: NotRequired[int]
    topology: NotRequired[Topology | None]
    layers: NotRequired[Sequence[str]]
    parallelism: NotRequired[ParallelismChoice | None]
    rdma: NotRequired[bool]
    balance: NotRequired[BalanceChoice]
    wire: NotRequired[WireType | None]


class PlanContext(TypedDict, total=False):
    """What is known of the Macs beside their memory. `no_group`: why their parts of a layer cannot be added up, ""
    where nothing is known against it; `rtt`: the round trip between two of them in seconds, where somebody measured it;
    `stage_s`: what a token takes one of them, where that was measured; `expects`: what a request would get of a plan;
    `can_lose`: whether the disks of the others hold every layer without one Mac of a plan, by its device id.
    """

    no_group: str
    rtt: Callable[[str, str], float | None]
    stage_s: StageSeconds
    expects: Callable[[Plan], Forecast | None]
    can_lose: Callable[[Plan, str], bool]


class PlanInputs(PlanOptions, PlanContext):
    """What is to be planned: a model and its bytes, over `peers`, the head first."""

    model: str
    fingerprint: str
    layout: LayoutBytes
    peers: Sequence[Peer]
    plan_gen: int
    profile: NotRequired[SplitProfile | None]


def plan_options_of(request: PlanRequest) -> PlanOptions:
    """What a request says of how the model is to run."""
    return PlanOptions(
        context=request.context,
        kv_bits=request.kv_bits,
        rows=request.rows,
        topology=request.topology,
        layers=request.layers,
        parallelism=request.parallelism,
        rdma=request.rdma,
        balance=request.balance,
        wire=request.wire,
    )
