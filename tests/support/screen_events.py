"""Events of a node for a screen: a plan of two Macs, and an answer."""

from __future__ import annotations

import msgspec

from core.events import (
    Plan,
    RequestDone,
    Snapshot,
    Stage,
    TokenEvent,
)
from tui.state import conversation
from tui.state.state import UiState


def stage(name: str, start: int, stop: int) -> Stage:
    return Stage(
        device_id=name.upper(), peer=name, start=start, stop=stop, weight_bytes=10, kv_bytes=1, budget_bytes=100
    )


PLAN = Plan(
    plan_gen=1,
    model="m",
    fingerprint="f",
    topology="private",
    layers=6,
    context=4096,
    chunk=512,
    stages=(stage("a", 0, 3), stage("b", 3, 6)),
    output="A",
)


def token(index: int, text: str, request: str = "r1") -> TokenEvent:
    return TokenEvent(request_id=request, index=index, token=index, text=text)


def done(request: str = "r1", **fields: object) -> RequestDone:
    base = RequestDone(request_id=request, finish_reason="stop", prompt_tokens=5, tokens=2)
    return msgspec.structs.replace(base, **fields)


def asked(text: str = "hi") -> UiState:
    return conversation.sent(UiState(snapshot=Snapshot(plan=PLAN, plan_status="ready"), attached=True), text, 100.0)
