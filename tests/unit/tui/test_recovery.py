"""A Mac is lost: the folded state, the pane's text and keys, and the continued answer."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from textual.pilot import Pilot

from core.errors import NotLoaded, Parked
from core.events import (
    AnyEvent,
    Peer,
    PlanLoaded,
    PlanProposed,
    Recovery,
    RecoveryState,
    RequestStarted,
    Snapshot,
    StageState,
)
from core.requests.answers import AnswerId, ChatRequest, Message, RequestAccepted, UnfinishedAnswer
from core.requests.plans import RecoveryOrder
from core.settings import GB
from tests.support.app import StillNode
from tests.support.person import Person
from tests.support.screen_events import PLAN, done, stage, token
from tui.app import MaclusterApp
from tui.screens.help import topic_of
from tui.state import conversation, recovery, state
from tui.state.state import UiState
from tui.widgets import markdown_chunks
from tui.widgets.message_view import foot_content, head_content
from tui.widgets.peer_pane import peers_content
from tui.widgets.split_pane import split_content
from tui.widgets.status_line import status_content

NOW = 100.0
ALONE = msgspec.structs.replace(PLAN, plan_gen=2, topology="single", stages=(stage("a", 0, 6),))
PEERS = tuple(
    Peer(device_id=n.upper(), name=n, trust="paired", state="connected", is_self=n == "a", budget_bytes=100)
    for n in ("a", "b")
)
READY = Snapshot(peers=PEERS, plan=PLAN, plan_status="ready")
SAID = (Message(role="user", content="why?"),)
KEPT = UnfinishedAnswer(request_id="r1", model="m", messages=SAID, text="one two", tokens=3, max_tokens=9, at=90.0)
RECOVERED = "recovered: b left, now a, 17 s"


def told(what: RecoveryState, **fields: object) -> Recovery:
    text = RECOVERED if what == "running" else "b does not answer any more."
    base = Recovery(state=what, text=text, mac="B", since=NOW - 4, requests=("r1",), tokens=3)
    return msgspec.structs.replace(base, **fields)


def writing() -> UiState:
    """State in the middle of an answer with three tokens."""
    now = conversation.accepted(conversation.sent(UiState(snapshot=READY, attached=True), "why?", NOW), "r1", 5, NOW)
    for index, word in enumerate(("one ", "t", "wo")):
        now = state.fold(now, token(index, word), NOW + index)
    return state.ticked(now, NOW)


def after(*events: AnyEvent) -> UiState:
    now = writing()
    for event in events:
        now = state.fold(now, event, NOW)
    return now


@pytest.mark.parametrize(
    ("what", "stops", "says", "word"),
    [
        pytest.param("suspect", False, "◐ slow 4 s", "◐ b", id="suspect"),
        pytest.param("stuck", False, "◐ stuck 4 s", "◐ b", id="stuck"),
        pytest.param("resume", False, "↻ reconnecting 4 s", "● b", id="resume"),
        pytest.param("hold", True, "○ paused 4 s", "● b", id="hold"),
        pytest.param("replan", True, "○ paused 4 s", "● b", id="replan"),
        pytest.param("rebuild", True, "↻ rebuilding", "↻ b", id="rebuild"),
        pytest.param("wait", True, "○ waiting 4 s", "● b", id="wait"),
        pytest.param("parked", False, "○ saved", "● b", id="parked"),
    ],
)
def test_every_state_is_told_with_glyph_and_word(what: RecoveryState, stops: bool, says: str, word: str) -> None:
    now = after(told(what))
    assert (recovery.held(now.snapshot) is not None) is stops
    assert now.answer is not None, "it has not ended"
    for width in (80, 120):
        assert says in status_content(now, width).plain
    assert word in peers_content(now, 60).plain
    assert ("paused at token 3" in head_content(now.turns[-1], now.snapshot.recovery).plain) is stops
    assert ("Esc: stop" in foot_content(now.turns[-1], NOW, now.snapshot.recovery).plain) is not stops
    well = state.fold(now, told("running"), NOW)
    assert recovery.readiness(well) is None
    assert "4 s" not in peers_content(well, 60).plain


def test_a_lost_mac_is_never_drawn_as_ready() -> None:
    ready = tuple(StageState(device_id=d, status="ready") for d in "AB")
    now = after(*ready, told("wait", requests=()))
    assert "✗ offline" in split_content(now, 60).plain
    assert "✗ b offline" in status_content(now, 120).plain
    rebuilt = after(*ready, told("rebuild", plan=ALONE), PlanProposed(plan=ALONE))
    assert "waiting" in split_content(rebuilt, 60).plain
    assert "↻ a" in peers_content(rebuilt, 60).plain


def test_one_remark_stands_where_it_happened_and_is_no_part_of_the_text() -> None:
    now = after(told("hold"), told("rebuild", plan=ALONE), told("running"), token(3, " three"), done(tokens=4))
    answer = now.turns[-1]
    assert answer.text == "one two three"
    assert [(r.at, r.words) for r in answer.remarks] == [(len("one two"), RECOVERED)]
    assert answer.tokens == 4
    assert [m.content for m in conversation.messages(now)] == ["why?", "one two three"]


@pytest.mark.parametrize("event", [told("running", text=""), told("running", requests=("other",))])
def test_what_was_no_loss_of_this_answer_leaves_no_remark(event: Recovery) -> None:
    assert after(told("suspect"), event).turns[-1].remarks == ()


def test_a_token_that_is_shown_already_changes_nothing() -> None:
    assert after(token(2, "wo")).turns[-1] == writing().turns[-1]


def test_what_can_be_chosen_and_what_it_means() -> None:
    lost = told("hold", choices=("replan", "wait", "save", "stop"), plan=ALONE)
    found = recovery.choices(READY, lost)
    assert [c.order for c in found] == ["replan", "wait", "save", "stop"]
    assert [c.word for c in found] == ["Continue on 1 Mac", "Wait for b", "Save", "Stop"]
    assert found[0].effect == "a 0–5"
    assert recovery.choices(READY, told("hold", choices=("replan",)))[0].word == "Continue"
    assert recovery.title(READY, lost) == "b is offline · layers 3–5 are missing"


def test_a_step_that_takes_long_on_no_mac_in_particular_is_not_called_stuck() -> None:
    assert "◐ slow step 4 s" in status_content(after(told("stuck", mac="")), 120).plain


def test_progress_counts_bytes_and_then_tokens() -> None:
    loads = StageState(device_id="A", status="loading", done_bytes=GB, total_bytes=4 * GB)
    now = after(told("rebuild", plan=ALONE), PlanProposed(plan=ALONE), loads)
    assert recovery.progress_words(now.snapshot, told("rebuild")) == "layers 1.0/4.0 GB"
    reads = told("rebuild", done=400, total=812, eta_s=17.2)
    assert recovery.progress_words(now.snapshot, reads) == "re-read 400/812 tok · 24 tok/s · about 17 s left"


def test_code_that_was_interrupted_goes_on_as_code() -> None:
    assert markdown_chunks.open_fence("a\n\n```python\nx = 1\n") == "```python\n"
    assert markdown_chunks.open_fence("a\n\n```python\nx = 1\n```\n") == ""
    assert markdown_chunks.open_fence("no code") == ""


def test_an_answer_on_screen_goes_on_in_its_own_turn() -> None:
    now = after(done(finish_reason="error", problem=Parked("b is gone.").problem))
    now = conversation.offered(now, [KEPT], NOW)
    assert conversation.interrupted(now) == KEPT
    now = conversation.continued(now, KEPT, NOW)
    assert (len(now.turns), now.problem, now.unfinished) == (2, None, ())
    now = state.fold(state.fold(now, token(2, "wo"), NOW), token(3, " three"), NOW)
    assert now.turns[-1].text == "one two three"
    assert now.turns[-1].remarks[0].at == len("one two")
    assert state.fold(now, done(tokens=4), NOW).answer is None


def test_tokens_that_come_before_the_node_says_that_it_goes_on_are_kept() -> None:
    now = after(done(finish_reason="error"), RequestStarted(request_id="r1", prompt_tokens=5), token(3, " three"))
    now = conversation.accepted(conversation.continued(now, KEPT, NOW), "r1", 5, NOW)
    assert (now.turns[-1].text, now.turns[-1].done) == ("one two three", False)


def test_what_was_kept_may_be_more_than_the_screen_saw() -> None:
    more = msgspec.structs.replace(KEPT, text="one two three", tokens=4)
    now = conversation.continued(after(done(finish_reason="error")), more, NOW)
    assert (now.turns[-1].text, now.turns[-1].tokens) == ("one two three", 4)


def test_an_empty_chat_shows_what_was_interrupted_and_another_one_does_not() -> None:
    new = conversation.offered(UiState(), [KEPT], NOW)
    assert [(t.role, t.text) for t in new.turns] == [("user", "why?"), ("assistant", "one two")]
    assert foot_content(new.turns[-1], NOW).plain.startswith("─── answer interrupted ───")
    other = msgspec.structs.replace(KEPT, request_id="r9")
    busy = conversation.offered(after(done()), [other], NOW)
    assert busy.turns == after(done()).turns
    assert [t.text for t in conversation.continued(busy, other, NOW).turns] == ["why?", "one two"]
    assert conversation.interrupted(conversation.offered(writing(), [KEPT], NOW)) is None


class LosingNode(StillNode):
    """A node whose events the test gives."""

    def __init__(self, snapshot: Snapshot, kept: tuple[UnfinishedAnswer, ...] = ()) -> None:
        super().__init__(snapshot)
        self.coming: asyncio.Queue[AnyEvent] = asyncio.Queue()
        self.orders: list[RecoveryOrder] = []
        self.cancelled: list[str] = []
        self.kept = list(kept)

    async def events(self) -> AsyncIterator[AnyEvent]:
        yield self._snapshot
        while True:
            yield await self.coming.get()

    async def chat(self, request: ChatRequest) -> RequestAccepted:
        return RequestAccepted(request_id="r1", prompt_tokens=5)

    async def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    async def choose(self, order: RecoveryOrder) -> None:
        self.orders.append(order)

    async def unfinished(self) -> list[UnfinishedAnswer]:
        return self.kept

    async def go_on(self, answer_id: AnswerId) -> RequestAccepted:
        if not self.kept:
            raise NotLoaded("m is not loaded.", "Load it.")
        for event in (RequestStarted(request_id="r1", prompt_tokens=5), token(3, " three"), done(tokens=4)):
            self.coming.put_nowait(event)
        return RequestAccepted(request_id=answer_id.request_id, prompt_tokens=5)


class Witness(Person):
    """A user whose Macs go away."""

    def __init__(self, app: MaclusterApp, pilot: Pilot[None], node: LosingNode) -> None:
        super().__init__(app, pilot)
        self.node = node

    async def told(self, *events: AnyEvent) -> None:
        for event in events:
            self.node.coming.put_nowait(event)
        await self.until(self.node.coming.empty)
        await self.pilot.pause()


@asynccontextmanager
async def person(
    size: tuple[int, int], snapshot: Snapshot = READY, kept: tuple[UnfinishedAnswer, ...] = ()
) -> AsyncIterator[Witness]:
    node = LosingNode(snapshot, kept)
    app = MaclusterApp(node)  # type: ignore[arg-type]
    async with app.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        yield Witness(app, pilot, node)


async def ask(someone: Witness) -> None:
    await someone.pilot.press(*"why", "enter")
    await someone.until(lambda: someone.app.state.answer is not None and bool(someone.app.state.answer.request_id))
    await someone.told(*(token(i, word) for i, word in enumerate(("one ", "t", "wo"))))
    await someone.sees("one two")


async def counts_up(someone: Person, how_long: str) -> None:
    """Wait until that time is on the screen, and then another one."""

    def seen() -> list[str]:
        return re.findall(how_long, someone.text)

    await someone.until(lambda: len(seen()) == 1)
    before = seen()
    await someone.until(lambda: seen() not in ([], before))


SIZES = [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow"), pytest.param((60, 16), id="least")]
CHOICES = ("replan", "wait", "save", "stop")


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
async def test_the_pane_says_what_is_kept_and_takes_a_choice(size: tuple[int, int]) -> None:
    async with person(size) as someone:
        await ask(someone)
        await someone.told(told("hold", plan=ALONE, choices=CHOICES, since=time.time() - 4))
        await someone.sees("b is offline · layers 3–5 are missing", "Nothing lost so far (3 tokens written)", "paused")
        if size[1] > 16:
            await someone.sees("paused at token 3", "one two")
            await counts_up(someone, r"\((\d+ \w+) ago\)")
        await someone.sees("1▸ Continue on 1 Mac", "a 0–5", "2  Wait for b", "3  Save", "4  Stop")
        await someone.sees("1 Continue", "4 Stop")
        assert max(map(len, someone.text.splitlines())) == size[0]
        assert someone.app.focused is someone.app.dashboard.recovery.choices
        assert someone.app.dashboard.recovery.choices.highlighted == 0
        titles = {line.does for keys in topic_of(someone.app.screen).here for line in keys.lines}
        assert "First choice" in titles
        await someone.pilot.press("escape", "escape", "escape")
        assert not someone.node.cancelled
        assert someone.node.orders == []
        someone.app.dashboard.recovery.choices.focus()
        await someone.pilot.press("3", "down", "enter", "7")
        await someone.until(lambda: len(someone.node.orders) == 2)
        assert [order.choice for order in someone.node.orders] == ["save", "wait"]


@pytest.mark.slow
async def test_it_counts_while_it_waits_and_goes_on_by_itself() -> None:
    async with person((80, 24)) as someone:
        await ask(someone)
        waits = told("wait", choices=("wait", "save", "stop"), fix="Turn b on.", since=time.time() - 4)
        await someone.told(waits)
        await someone.sees("Waiting", ". Ctrl+O loads a smaller model", "✗ b offline")
        await counts_up(someone, r"for (\d+ \w+)\. Ctrl")
        await someone.told(msgspec.structs.replace(waits, choices=CHOICES))
        await someone.sees("Turn b on.", "Continue")
        await someone.told(told("rebuild", plan=ALONE, done=4, total=8, eta_s=2.0, choices=("replan",)))
        await someone.told(PlanProposed(plan=ALONE), PlanLoaded(plan_gen=2, seconds=1.0))
        await someone.sees("re-read 4/8 tok · 2 tok/s · about 2 s left", "▇▇▇▇▇▇▇▇▁▁▁▁▁▁▁")
        await someone.told(told("running"), token(3, " three"))
        await someone.sees("one two", f"─── {RECOVERED} ───", "three")
        lines = [line.strip(" │║") for line in someone.text.splitlines()]
        at = next(i for i, line in enumerate(lines) if RECOVERED in line)
        assert lines[at - 2] == "one two"
        assert lines[at + 2] == "three"
        assert not someone.app.dashboard.recovery.display
        assert someone.app.focused is someone.app.dashboard.prompt
        await someone.pilot.press("escape")
        await someone.until(lambda: someone.node.cancelled == ["r1"])


@pytest.mark.slow
async def test_who_is_writing_keeps_the_prompt() -> None:
    async with person((80, 24)) as someone:
        await ask(someone)
        await someone.pilot.press(*"and ")
        await someone.told(told("hold", choices=CHOICES))
        await someone.sees("b is offline")
        await someone.pilot.press(*"1 more", "enter")
        assert someone.app.dashboard.prompt.text == "and 1 more"
        assert someone.node.orders == []


async def test_an_answer_that_was_interrupted_goes_on_with_a_key() -> None:
    async with person((80, 24), kept=(KEPT,)) as someone:
        await someone.sees("one two", "─── answer interrupted ───")
        someone.app.dashboard.chat.focus()
        await someone.sees("c Continue")
        await someone.pilot.press("c")
        await someone.sees("one two", "─── continued ───", "three")
        await someone.until(lambda: someone.app.state.answer is None)
        assert someone.app.state.turns[-1].text == "one two three"
        await someone.until(lambda: bool(someone.app.why_not("go_on")))


async def test_without_its_model_it_says_which_to_load() -> None:
    async with person((80, 24), Snapshot(peers=PEERS), kept=(KEPT,)) as someone:
        await someone.sees("─── answer interrupted ───")
        someone.app.dashboard.chat.focus()
        await someone.pilot.press("c")
        await someone.until(lambda: any("Load it first (Ctrl+O)" in n.message for n in someone.app._notifications))
        assert someone.app.state.answer is None


async def test_a_refusal_leaves_it_interrupted() -> None:
    async with person((80, 24), kept=(KEPT,)) as someone:
        await someone.sees("─── answer interrupted ───")
        someone.node.kept.clear()
        await someone.app.run_action("go_on")
        await someone.sees("m is not loaded.", "─── answer interrupted ───", "one two")
        assert someone.app.state.answer is None
