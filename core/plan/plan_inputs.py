"""What is to be planned: a model, the Macs, and how it is to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from core.events import Peer, Topology
from core.models.slicing.split_profile import SplitProfile
from core.plan.sizes import Bytes
from core.requests import PlanRequest


class How(TypedDict):
    """How a model is to run: for `context` tokens, and what else `core.requests.PlanRequest` has."""

    context: int
    kv_bits: NotRequired[int | None]
    rows: NotRequired[int]
    chunk: NotRequired[int | None]
    window: NotRequired[int | None]
    topology: NotRequired[Topology | None]
    layers: NotRequired[Sequence[str]]


class PlanInputs(How):
    """What is to be planned: a model and its bytes, over `peers`, the head first."""

    model: str
    fingerprint: str
    layout: Bytes
    peers: Sequence[Peer]
    plan_gen: int
    profile: NotRequired[SplitProfile | None]


def how_of(request: PlanRequest) -> How:
    """What a request says of how the model is to run."""
    return How(
        context=request.context,
        kv_bits=request.kv_bits,
        rows=request.rows,
        chunk=request.chunk,
        window=request.window,
        topology=request.topology,
        layers=request.layers,
    )
