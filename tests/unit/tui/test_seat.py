"""A Mac that serves another one's plan: its screen shows that plan, asks its head, and disturbs it only if asked to."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from core.errors import UsageError
from core.events import Elsewhere, LedPlan, Peer, Snapshot
from core.requests.plans import LoadRequest, ModelChoice, PlanPreview
from core.requests.restart import RestartReport
from core.settings import Home
from tests.support.app import StillNode, text_of
from tests.support.screen_events import PLAN
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.cli import service
from tui.cli.load import is_loaded
from tui.cli.models import fit_words
from tui.cli.status import status_facts, status_lines
from tui.own_node import OwnNode
from tui.screens.api import address_content
from tui.screens.batch import empty_content
from tui.screens.hop import _why_none
from tui.screens.peer import peer_content
from tui.state import disabled_reasons
from tui.state.seat import led_words, stopped_words
from tui.state.state import UiState, fold
from tui.widgets.cluster_strip import strip_content
from tui.widgets.hop_table import hops_content
from tui.widgets.model_list import fit_mark
from tui.widgets.prompt import context_words
from tui.widgets.status_line import readiness_words
from tui.widgets.welcome import is_before_first_answer

PEERS = tuple(
    Peer(device_id=mac, name=mac.lower(), trust="paired", state="connected", is_self=mac == "B", budget_bytes=100)
    for mac in "AB"
)
LED = LedPlan(head="A", led_by="a", model="m", fingerprint="f", answers=2, context=4096, takes_relayed=True, plan=PLAN)
SEAT = Snapshot(peers=PEERS, elsewhere=(LED,))
CHOICE = ModelChoice(name="m", path="/", model_type="llama", layers=6, led_by="a", preview=PlanPreview(plan=PLAN))


class Seat(StillNode):
    """The node of a Mac that serves the plan of another one."""

    def __init__(self) -> None:
        super().__init__(SEAT)
        self.loaded: list[LoadRequest] = []

    async def models(self) -> list[ModelChoice]:
        return [CHOICE]

    async def load(self, request: LoadRequest) -> PlanPreview:
        self.loaded.append(request)
        return PlanPreview()


class Started(OwnNode):
    """A node started by this program, without its process."""

    is_running = True
    is_left = False

    def leave(self) -> None:
        self.is_left = True


def told(snapshot: Snapshot) -> UiState:
    return UiState(snapshot=snapshot, attached=True)


def test_each_place_that_speaks_of_the_loaded_model_knows_who_leads_it() -> None:
    words, now = "m · led by a · layers 3–5 here · 2 answers", told(SEAT)
    assert led_words(LED, SEAT) == words
    assert f"Model: {words}" in status_lines(SEAT)
    assert status_facts(SEAT)["elsewhere"][0]["led_by"] == "a"
    assert (fit_words(CHOICE), fit_mark(CHOICE, SEAT).word) == ("loaded, led by a", "led by a")
    for content in (strip_content(now, 100, 0.0), hops_content(now, 60, 0.0), empty_content(SEAT, attached=True)):
        assert words in content.plain or "screen of a" in content.plain
    assert "3–5 of 6, m" in peer_content(now, PEERS[1], None, 80).plain
    assert "Serving m (loaded by a)." in address_content(SEAT, attached=True).plain
    assert context_words(now) == "context 0/4k"
    assert "screen of a" in _why_none(now)
    assert "No hops yet" in _why_none(UiState())
    assert readiness_words(now)[0] == "● serving"
    assert not is_before_first_answer(now)
    assert "unload it there" in disabled_reasons.why_not(now, "unload")
    report = RestartReport(version="1", started_at=0.0, model="m", led_by="a", answers=2)
    assert stopped_words(report) == "m, which a loaded, stops on all its Macs; 2 answers of a would break."


def test_a_plan_of_this_mac_that_runs_or_recovers_comes_first_and_a_broken_one_does_not() -> None:
    own = replace(SEAT, plan=PLAN, plan_status="ready")
    assert (own.host, own.chat_status, own.used_plan) == (None, "ready", PLAN)
    failed = replace(own, plan_status="broken")
    assert (failed.host, failed.chat_status) == (LED, "ready")
    mute = replace(SEAT, elsewhere=(replace(LED, takes_relayed=False),))
    assert mute.chat_status == "none"
    assert "a doesn't answer what other Macs ask" in disabled_reasons.why_not(asked_in(mute), "retry")
    left = fold(told(SEAT), Elsewhere(), 0.0).snapshot
    assert (left.host, left.chat_model, left.is_answering) == (None, "", False)


def asked_in(snapshot: Snapshot) -> UiState:
    from tui.state.conversation import sent, stopped

    return stopped(sent(told(snapshot), "why?", 1.0))


async def test_commands_ask_the_mac_that_leads_and_ask_before_this_one_is_taken_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch: Any = SimpleNamespace(now=SEAT)
    for model, there in (("m", True), ("/models/m", True), ("other", False)):
        assert await is_loaded(watch, Namespace(model=model)) == there
    found = RestartReport(version="1", started_at=0.0, model="m", led_by="a", answers=2)
    ran = list[object]()
    for name, made in (
        ("_report", lambda _: _soon(found)),
        ("_run", ran.append),
        ("current", lambda: SimpleNamespace(is_installed=True)),
    ):
        monkeypatch.setattr(service, name, made)
    args = Namespace(home=tmp_path, yes=False, dry_run=False, json=False)
    for stop in (service.restart_service, service.remove_service):
        with pytest.raises(UsageError, match="2 answers of a would break"):
            await stop(args)
    assert not ran


async def _soon(found: RestartReport) -> RestartReport:
    return found


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_a_seat_chats_and_is_asked_before_it_takes_the_mac_away(size: tuple[int, int]) -> None:
    node = Seat()
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        await until(lambda: "a sees these words" in text_of(app))
        shown = text_of(app)
        assert "Ask anything" in shown
        assert "led by a" in shown
        for keys, loads in ((("enter",), 0), (("down", "down", "enter"), 1)):
            await pilot.press("ctrl+o")
            await until(lambda: "led by a" in text_of(app) and "Choose a model" in text_of(app))
            await pilot.press("enter")
            await until(lambda: "Take over (breaks a's 2 answers)" in text_of(app))
            await pilot.press(*keys)
            await until(lambda loads=loads: len(node.loaded) == loads)  # type: ignore[misc]
            await pilot.press("escape")
    assert [request.take_over for request in node.loaded] == [True]


async def test_quitting_a_seat_asks_and_can_leave_the_node_running(tmp_path: Path) -> None:
    own = Started(Home(tmp_path))
    app = MaclusterApp(Seat(), folder=tmp_path, node=own)  # type: ignore[arg-type]
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: "a sees these words" in text_of(app))
        await pilot.press("ctrl+q")
        await until(lambda: "Wait for a's 2 answers, then quit" in text_of(app))
        await pilot.press("enter")
        await until(lambda: "Quit?" not in text_of(app))
        assert app.is_running
        await pilot.press("ctrl+q")
        await until(lambda: "leave macluster running" in text_of(app))
        await pilot.press("down", "enter")
        await until(lambda: own.is_left)
