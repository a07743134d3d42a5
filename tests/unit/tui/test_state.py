"""Folding events into the state of the screens."""

from __future__ import annotations

import msgspec
import pytest

from core.errors import Problem
from core.events import (
    HopSample,
    LogLine,
    Peer,
    PeerGone,
    PeerSeen,
    PlanProposed,
    Progress,
    Recovery,
    RequestStarted,
    Snapshot,
)
from core.requests.answers import Message
from tests.support.screen_events import PLAN, asked, done, token
from tui.state import conversation, state
from tui.state.hops import ring_of
from tui.state.state import UiState
from tui.widgets.message_view import foot_content

ESCAPE = "\x1b]52;c;aGk=\x07"


def sample(frames: int, ms: float, source: str = "A", target: str = "B") -> HopSample:
    """A sum over `frames` frames that each took `ms` to send and 2 ms to compute."""
    return HopSample(
        source=source,
        target=target,
        frames=frames,
        bytes=1000 * frames,
        compute_s=0.002 * frames,
        codec_s=0.0,
        seal_s=0.0,
        send_s=ms / 1e3 * frames,
        wait_s=9.0,
        open_s=0.0,
    )


def test_tokens_grow_the_answer_and_done_ends_it() -> None:
    now = conversation.accepted(asked(), "r1", 5, 100.0)
    for i, word in enumerate(("He", "llo")):
        now = state.fold(now, token(i, word), 101.0 + i)
    assert now.answer is not None
    assert now.answer.text == "Hello"
    assert now.answer.rate == pytest.approx(1.0)
    now = state.fold(now, done(text="!", decode_tokens_per_s=18.0, ttft_s=0.5), 103.0)
    assert now.answer is None
    assert (now.turns[-1].text, now.turns[-1].rate, now.turns[-1].ttft_s) == ("Hello!", 18.0, 0.5)


def test_a_prompt_that_is_read_has_a_bar_a_rate_and_what_is_left() -> None:
    now = conversation.accepted(asked(), "r1", 4000, 100.0)
    slow = Recovery(state="stuck", text="This step takes longer.", requests=("r1",))
    assert foot_content(now.turns[-1], 102.0).plain == "▁▁▁▁▁▁ read 0/4,000 tok · 2 s · Esc: stop"
    assert foot_content(now.turns[-1], 102.0, slow).plain == "▁▁▁▁▁▁ read 0/4,000 tok · Esc: stop"
    short = conversation.accepted(asked(), "r1", 12, 100.0)
    assert foot_content(short.turns[-1], 102.0).plain == "reading 12 tokens · 2 s · Esc: stop"
    for at, read in ((101.0, 1000), (103.0, 2000)):
        now = state.fold(now, Progress(task="prefill", request_id="r1", done=read, total=4000, unit="tokens"), at)
    words = "▇▇▇▁▁▁ read 2,000/4,000 tok · 500 tok/s · about 4 s left"
    assert foot_content(now.turns[-1], 103.0).plain == f"{words} · Esc: stop"
    assert foot_content(now.turns[-1], 103.0, slow).plain == f"{words} · Esc: stop", "it is read all the same"
    other = state.fold(now, Progress(task="prefill", request_id="r2", done=1, total=2), 104.0)
    assert other.turns == now.turns
    now = state.fold(now, token(0, "A"), 105.0)
    assert "read" not in foot_content(now.turns[-1], 106.0).plain
    now = state.fold(now, done(), 107.5)
    assert "5.0 s" in foot_content(now.turns[-1], 200.0).plain


def test_tokens_that_come_before_the_id_is_known_are_kept() -> None:
    now = asked()
    for event in (RequestStarted(request_id="r1", prompt_tokens=5), token(0, "A"), token(0, "x", "other"), done()):
        now = state.fold(now, event, 101.0)
    now = conversation.accepted(now, "r1", 5, 101.5)
    assert now.turns[-1].text == "A"
    assert now.turns[-1].done
    assert now.early == ()


def test_tokens_of_other_requests_leave_the_answer_alone() -> None:
    now = state.fold(conversation.accepted(asked(), "r1", 5, 100.0), token(0, "x", "r2"), 101.0)
    assert now.answer is not None
    assert now.answer.text == ""
    assert now.tokens_since_tick == 1


def test_partial_text_stays_when_the_answer_fails() -> None:
    now = state.fold(conversation.accepted(asked(), "r1", 5, 100.0), token(0, "partial"), 101.0)
    now = state.fold(now, Recovery(state="wait", text="waiting for b", requests=("r1",)), 101.5)
    assert now.snapshot.recovery is not None
    assert now.answer is not None
    problem = Problem(kind="LinkLost", what="b went away.", fix="Load again.")
    now = state.fold(now, done(finish_reason="error", problem=problem), 102.0)
    assert now.turns[-1].text == "partial"
    assert "b went away." in now.turns[-1].why
    assert now.problem == problem


@pytest.mark.parametrize(("reason", "word"), [("cancelled", "stopped"), ("length", "limit"), ("stop", "")])
def test_why_an_answer_ended(reason: str, word: str) -> None:
    now = state.fold(conversation.accepted(asked(), "r1", 5, 100.0), done(finish_reason=reason), 102.0)
    assert word in now.turns[-1].why
    assert bool(word) == bool(now.turns[-1].why)


def test_a_refused_question_can_be_asked_again() -> None:
    now = conversation.refused(asked("why?"), Problem(kind="Busy", what="The queue is full."))
    assert now.turns[-1].done
    assert now.problem is not None
    now = conversation.retried(now, 104.0)
    assert [(turn.role, turn.text, turn.done) for turn in now.turns] == [
        ("user", "why?", True),
        ("assistant", "", False),
    ]
    assert now.others == (), "what says nothing does not stay"


def test_nothing_is_retried_while_an_answer_is_written() -> None:
    now = asked()
    assert conversation.retried(now, 104.0) is now


def test_the_conversation_alternates_roles() -> None:
    now = state.fold(conversation.accepted(asked("one"), "r1", 5, 100.0), token(0, "first"), 101.0)
    now = state.fold(now, done(), 102.0)
    now = conversation.refused(conversation.sent(now, "lost", 103.0), Problem(kind="Busy", what="no"))
    now = conversation.sent(now, "two", 104.0)
    roles = [(m.role, m.content) for m in conversation.messages(now)]
    assert roles == [("user", "one"), ("assistant", "first"), ("user", "two")]


def test_a_conversation_that_was_kept_takes_the_place_of_the_one_before() -> None:
    before = conversation.sent(UiState(), "one", 1.0)
    kept = (Message(role="user", content="a\x1b[2J"), Message(role="assistant", content="b"))
    now = conversation.taken_up(conversation.stopped(before), kept, 2.0)
    assert [(turn.role, turn.text) for turn in now.turns] == [("user", "a[2J"), ("assistant", "b")]
    assert now.turns[0].number == before.next_number
    assert now.answer is None
    assert conversation.messages(conversation.sent(now, "c", 3.0)) == (
        Message(role="user", content="a[2J"),
        Message(role="assistant", content="b"),
        Message(role="user", content="c"),
    )


def test_numbers_never_repeat_so_views_cannot_be_mixed_up() -> None:
    first = asked()
    again = conversation.sent(conversation.cleared(first), "again", 105.0)
    assert {t.number for t in first.turns}.isdisjoint(t.number for t in again.turns)


def test_an_answer_ends_when_the_node_was_started_anew() -> None:
    now = state.fold(conversation.accepted(asked(), "r1", 5, 100.0), token(0, "half"), 101.0)
    now = state.detached(now, Problem(kind="NodeUnreachable", what="gone"))
    assert now.offline is not None
    assert now.answer is not None
    now = state.fold(now, Snapshot(), 105.0)
    assert now.offline is None
    assert now.turns[-1].done
    assert now.turns[-1].text == "half"


def test_an_answer_goes_on_when_the_node_still_works_on_it() -> None:
    now = conversation.accepted(asked(), "r1", 5, 100.0)
    now = state.fold(state.detached(now, Problem(kind="x", what="y")), Snapshot(running=("r1",)), 105.0)
    assert now.answer is not None


def test_a_mac_that_left_is_named_until_it_is_back() -> None:
    peer = Peer(device_id="B", name="mini", trust="paired")
    now = state.fold(UiState(), PeerSeen(peer=peer), 1.0)
    now = state.fold(now, PeerGone(device_id="B", reason="no heartbeat"), 2.0)
    assert [(d.name, d.reason) for d in now.departures] == [("mini", "no heartbeat")]
    assert state.fold(now, PeerSeen(peer=peer), 3.0).departures == ()


def test_hop_times_come_from_differences_and_prefill_does_not_count() -> None:
    now = state.fold(UiState(), PlanProposed(plan=PLAN), 0.0)
    now = state.fold(now, RequestStarted(request_id="r1", prompt_tokens=900), 0.0)
    now = state.fold(now, sample(2, 50.0), 0.5)
    grown = msgspec.structs.replace(sample(2, 50.0), frames=12, send_s=0.1 + 0.04, bytes=12_000, compute_s=0.024)
    now = state.fold(now, grown, 1.0)
    hop, back = ring_of(now).hops
    assert (hop.label, back.label) == ("a→b", "b→a")
    assert hop.transfer_s == pytest.approx(0.004)
    assert hop.compute_s == pytest.approx(0.002)
    assert back.transfer_s is None
    assert ring_of(now).longest_s == hop.transfer_s
    assert ring_of(now).slowest is None, "nobody knows yet how long the others take"


def test_a_single_sample_is_shown_rather_than_nothing() -> None:
    now = state.fold(UiState(), PlanProposed(plan=PLAN), 0.0)
    now = state.fold(now, sample(4, 3.0), 0.5)
    assert ring_of(now).hops[0].transfer_s == pytest.approx(0.003)


def test_a_new_request_starts_its_sums_anew() -> None:
    now = state.fold(UiState(), PlanProposed(plan=PLAN), 0.0)
    for at, (since, frames) in enumerate(((1.0, 10), (1.0, 20), (2.0, 3), (3.0, 3), (4.0, 30))):
        now = state.fold(now, RequestStarted(request_id=f"r{at}", prompt_tokens=5), at)
        now = state.fold(now, msgspec.structs.replace(sample(frames, 1.0), since=since), at)
    assert [p.frames for p in now.points] == [10, 10, 3, 3, 30], "figures of the one before may come late"
    assert [p.first for p in now.points] == [True, False, True, True, True]
    assert all(p.transfer_s >= 0 for p in now.points)


def test_the_tick_gives_a_rate_and_forgets_old_points() -> None:
    now = state.fold(state.ticked(asked(), 100.0), sample(4, 3.0), 100.0)
    now = state.fold(conversation.accepted(now, "r1", 5, 100.0), token(0, "x"), 100.2)
    now = state.ticked(now, 100.5)
    assert now.rates[-1] == pytest.approx(2.0)
    assert state.ticked(now, 200.0).points == ()


def test_a_clock_that_is_set_back_leaves_no_points_ahead_that_never_go() -> None:
    now = state.fold(state.ticked(asked(), 5000.0), sample(4, 3.0), 5000.0)
    back = state.ticked(now, 100.0)
    assert (now.points != (), back.points, back.past) == (True, (), ())
    assert state.ticked(back, 100.5).rates[-1] == 0.0


def test_hostile_text_is_clean_once_it_is_in_the_state() -> None:
    peer = Peer(device_id="B", name=f"mini{ESCAPE}\nfake line", chip="\x9b31m")
    now = state.fold(UiState(), PeerSeen(peer=peer), 1.0)
    line = LogLine(at=0.0, level="INFO", source="b\x1b[2J", text=f"{ESCAPE}\u202eevil\nsecond")
    now = state.fold(now, line, 1.0)
    now = state.fold(now, PlanProposed(plan=msgspec.structs.replace(PLAN, model=f"m{ESCAPE}")), 1.0)
    now = conversation.accepted(conversation.sent(now, f"q{ESCAPE}", 1.0), "r1", 1, 1.0)
    now = state.fold(now, token(0, f"a{ESCAPE}\n\tb\x00"), 2.0)
    shown = [now.snapshot.peers[0].name, now.snapshot.peers[0].chip, now.snapshot.logs[0].source]
    shown += [now.snapshot.logs[0].text, now.snapshot.plan.model if now.snapshot.plan else ""]
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c == "\u202e" for text in shown for c in text)
    assert now.turns[-1].text == "a]52;c;aGk=\n\tb"
    assert "\x1b" not in now.turns[-2].text


def test_washing_keeps_what_is_no_text() -> None:
    assert state.cleaned(PLAN) == PLAN
    assert state.cleaned(sample(3, 1.0)) == sample(3, 1.0)
