"""The node starts again on request when nothing is being written, and by itself when a service loses nothing by it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from core.errors import Busy
from core.events import ApiClient, LedPlan, PairingChanged, Plan, Transfer
from core.mac.installation import Installation, running
from core.node.base.bus import Bus
from core.node.peers.worker_state import WorkerState
from core.node.restarting import Restarting
from core.requests.restart import RestartOrder
from tests.support.contexts import context_of
from tests.support.screen_events import PLAN

OWN = PLAN.head.device_id
SERVED = LedPlan(head=OWN, led_by="studio", model="toy", answers=2, plan=PLAN)


def restarting(own_id: str = OWN, plan: Plan | None = None, **now: Any) -> tuple[Restarting, Bus, asyncio.Event]:
    bus, worker, stopping = Bus(), WorkerState(), asyncio.Event()
    bus.now = msgspec.structs.replace(bus.now, **now)
    worker.plan = plan
    return Restarting(context_of(own_id=own_id, bus=bus), worker, stopping), bus, stopping


@pytest.mark.parametrize(
    ("own_id", "plan", "model", "led_by"),
    [(OWN, None, "", ""), (OWN, PLAN, PLAN.model, ""), ("z" * 26, PLAN, PLAN.model, PLAN.head.peer)],
)
def test_a_restart_says_first_what_ends_with_it(own_id: str, plan: Plan | None, model: str, led_by: str) -> None:
    parts, _, stopping = restarting(own_id, plan)
    report = parts.restart(RestartOrder())
    assert (report.model, report.led_by, stopping.is_set()) == (model, led_by, False)
    parts.restart(RestartOrder(go=True))
    assert parts.is_due
    assert stopping.is_set()


@pytest.mark.parametrize(
    "now", [{"running": ("r",)}, {"clients": (ApiClient(name="a", asking=1),)}, {"elsewhere": (SERVED,)}]
)
def test_an_answer_is_waited_for(now: dict[str, Any]) -> None:
    parts, _, stopping = restarting(**now)
    assert parts.restart(RestartOrder()).is_answering
    with pytest.raises(Busy):
        parts.restart(RestartOrder(go=True))
    assert not stopping.is_set()


ours = running()
assert ours
NEW = ours._replace(version="9.9.9")


@pytest.mark.parametrize(
    ("found", "state", "in_service", "starts"),
    [
        (NEW, {}, True, True),
        (NEW, {}, False, False),
        (ours, {}, True, False),
        (None, {}, True, False),
        (NEW, {"plan": PLAN}, True, False),
        (NEW, {"running": ("r",)}, True, False),
        (NEW, {"transfers": (Transfer(model="m", mac="a", state="running"),)}, True, False),
        (NEW, {"pairing": PairingChanged(state="compare")}, True, False),
        (NEW, {"pairing": PairingChanged(state="paired")}, True, True),
    ],
)
def test_an_idle_service_starts_what_was_installed(
    found: Installation | None, state: dict[str, Any], in_service: bool, starts: bool
) -> None:
    parts, bus, stopping = restarting(**state)
    for now in (0.0, 60.0):
        assert not stopping.is_set()
        parts.look(found, now, in_service=in_service)
    assert (stopping.is_set(), parts.is_due) == (starts, starts)
    assert bool(bus.now.outdated) == (found != ours)
    assert len(bus.now.logs) == (found != ours) + starts, "it is told once"


def test_what_is_installed_again_is_told_too() -> None:
    parts, bus, _ = restarting()
    for found in (NEW, ours):
        parts.look(found, 0.0, in_service=False)
    assert bus.now.outdated == ""
