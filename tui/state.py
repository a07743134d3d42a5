"""What the screens show: the node's Snapshot and the little that only this terminal knows.

Everything is frozen, and every change is a function from a state to the next one. Events are cleaned here, at the
one door, so no widget ever holds foreign text that could drive the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from core.errors import Problem
from core.events import (
    AnyEvent,
    HopSample,
    Peer,
    PeerChanged,
    PeerGone,
    PeerSeen,
    PlanLoaded,
    PlanProposed,
    Recovery,
    RequestDone,
    RequestStarted,
    Snapshot,
    TokenEvent,
    Value,
    apply,
)
from core.requests import Message, UnfinishedAnswer
from core.text import Clean, clean_text
from tui.turns import INTERRUPTED, Turn, ended, gone_on, grown, remarked

_T = TypeVar("_T")

HOP_WINDOW_S = 60.0
RATES_KEPT = 8
EARLY_KEPT = 512

_change = msgspec.structs.replace
_NO_HOP = HopSample(
    source="", target="", frames=0, bytes=0, compute_s=0, codec_s=0, seal_s=0, send_s=0, wait_s=0, open_s=0
)


class HopPoint(Value, frozen=True, kw_only=True):
    """What one hop did between two samples. `first` marks the first sample of a request, which holds its prefill."""

    source: str
    target: str
    at: float
    frames: int
    bytes: int
    transfer_s: float
    compute_s: float
    first: bool


class Departure(Value, frozen=True, kw_only=True):
    """A Mac that left and has not come back."""

    device_id: str
    name: str
    reason: str


class UiState(Value, frozen=True, kw_only=True):
    """All that the screens need.

    `offline` is why no events come; `problem` is why the last answer or load failed, until the next try.
    `early` holds events of answers that are not on screen, or whose id the node has not told yet. `rates` are tokens
    per second, a value a tick. `unfinished`: interrupted answers that can be continued, the newest first.
    """

    snapshot: Snapshot = Snapshot()
    attached: bool = False
    offline: Problem | None = None
    turns: tuple[Turn, ...] = ()
    next_number: int = 1
    early: tuple[TokenEvent | RequestDone, ...] = ()
    problem: Problem | None = None
    unfinished: tuple[UnfinishedAnswer, ...] = ()
    departures: tuple[Departure, ...] = ()
    base: tuple[HopSample, ...] = ()
    points: tuple[HopPoint, ...] = ()
    rates: tuple[float, ...] = ()
    tokens_since_tick: int = 0
    ticked_at: float = 0.0
    load_s: float | None = None

    @property
    def answer(self) -> Turn | None:
        """The answer that is being written, or waits for its first token."""
        return self.turns[-1] if self.turns and not self.turns[-1].done else None


def strangers(state: UiState) -> tuple[Peer, ...]:
    """The Macs that were seen and can be paired."""
    return tuple(p for p in state.snapshot.peers if p.trust in ("unpaired", "seen") and not p.is_self)


def washed(value: _T, *, lines: bool = False) -> _T:
    """`value` with all text in it clean; line breaks survive only if `lines`."""
    if isinstance(value, str):
        text = clean_text(value)
        return text if lines else " ".join(text.split())  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(washed(v) for v in value)  # type: ignore[return-value]
    if isinstance(value, msgspec.Struct):
        answer = isinstance(value, TokenEvent | RequestDone)
        return _change(
            value, **{f: washed(getattr(value, f), lines=answer and f == "text") for f in value.__struct_fields__}
        )
    return value


def fold(state: UiState, event: AnyEvent, now: float) -> UiState:
    """The state after `event`, which arrived at `now` (seconds since the epoch)."""
    event = washed(event)
    before = state.snapshot
    state = _change(state, snapshot=apply(before, event))
    match event:
        case Snapshot():
            return _attach(state, now)
        case PeerSeen(peer=peer) | PeerChanged(peer=peer):
            return _change(state, departures=tuple(d for d in state.departures if d.device_id != peer.device_id))
        case PeerGone():
            return _depart(state, before.peers, event)
        case PlanProposed():
            return _change(state, problem=None, base=(), points=(), load_s=None)
        case PlanLoaded(seconds=seconds):
            return _change(state, load_s=seconds)
        case HopSample():
            return _hop(state, event, now)
        case RequestStarted():
            return _change(state, base=())
        case Recovery(state="running", text=text, requests=requests) if text:
            return _recovered(state, text, requests)
        case TokenEvent() | RequestDone():
            return _answer_event(state, event, now)
        case _:
            return state


def detached(state: UiState, problem: Problem) -> UiState:
    """The stream of events ended."""
    return _change(state, attached=False, offline=problem)


def sent(state: UiState, text: str, now: float) -> UiState:
    """The person asked `text`; an empty answer waits for the node."""
    number = state.next_number
    asked = Turn(number=number, role="user", text=clean_text(text), at=now)
    answer = Turn(number=number + 1, role="assistant", text=Clean(""), at=now, done=False)
    return _change(state, turns=(*state.turns, asked, answer), next_number=number + 2, problem=None, early=())


def accepted(state: UiState, request_id: str, prompt_tokens: int, now: float) -> UiState:
    """The node took the question; what it sent about it before it said so is caught up here."""
    if state.answer is None:
        return state
    early = tuple(e for e in state.early if e.request_id == request_id)
    state = _with_answer(state, request_id=request_id, prompt_tokens=prompt_tokens)
    state = _change(state, early=())
    for event in early:
        state = _answer_event(state, event, now)
    return state


def refused(state: UiState, problem: Problem) -> UiState:
    """The node did not take the question, or is gone: what is written stays."""
    problem = washed(problem)
    return _change(_with_answer(state, done=True, why=problem.what), problem=problem, early=())


def stopped(state: UiState) -> UiState:
    """The person stopped an answer that the node had not accepted yet."""
    return _change(_with_answer(state, done=True, why="stopped by you"), early=())


def failed(state: UiState, problem: Problem | None) -> UiState:
    """A command failed (None: the banner has been read)."""
    return _change(state, problem=washed(problem))


def retried(state: UiState) -> tuple[UiState, str]:
    """The state without the last question and answer, and that question ("" if there is none)."""
    asked = max((i for i, t in enumerate(state.turns) if t.role == "user"), default=None)
    if asked is None or state.answer is not None:
        return state, ""
    return _change(state, turns=state.turns[:asked], problem=None), state.turns[asked].text


def cleared(state: UiState) -> UiState:
    """A new, empty conversation."""
    return _change(state, turns=(), problem=None, early=())


def taken_up(state: UiState, messages: tuple[Message, ...], now: float) -> UiState:
    """A conversation that was kept, in the place of the one before."""
    said = [m for m in messages if m.role != "system"]
    turns = tuple(
        Turn(number=number, role="user" if m.role == "user" else "assistant", text=clean_text(m.content), at=now)
        for number, m in enumerate(said, state.next_number)
    )
    return _change(cleared(state), turns=turns, next_number=state.next_number + len(said))


def offered(state: UiState, unfinished: Iterable[UnfinishedAnswer], now: float) -> UiState:
    """Answers that can be continued; an empty chat shows the newest one."""
    clean = tuple(_change(washed(each), messages=each.messages, text=clean_text(each.text)) for each in unfinished)
    state = _change(state, unfinished=clean)
    return _with_unfinished(state, clean[0], now) if clean and not state.turns else state


def interrupted(state: UiState) -> UnfinishedAnswer | None:
    """The answer to go on with: the last one on screen if it can be continued, else the newest that can."""
    if state.answer is not None or not state.unfinished:
        return None
    last = state.turns[-1].request_id if state.turns else ""
    return next((each for each in state.unfinished if each.request_id == last), state.unfinished[0])


def continued(state: UiState, kept: UnfinishedAnswer, now: float) -> UiState:
    """The node goes on with that answer: so does its own turn if that is the last one on screen, else its conversation
    is taken up. `accepted` follows.
    """
    if not state.turns or state.turns[-1].request_id != kept.request_id:
        state = _with_unfinished(state, kept, now)
    others = tuple(each for each in state.unfinished if each.request_id != kept.request_id)
    return _change(state, turns=(*state.turns[:-1], gone_on(state.turns[-1], kept)), unfinished=others, problem=None)


def conversation(state: UiState) -> tuple[Message, ...]:
    """What the model is to read. A question whose answer stayed empty is left out: roles have to alternate."""
    kept: list[Message] = []
    for turn in state.turns:
        if turn.role == "user" and kept and kept[-1].role == "user":
            kept.pop()
        if turn.text:
            kept.append(Message(role=turn.role, content=turn.text))
    return tuple(kept)


def ticked(state: UiState, now: float) -> UiState:
    """Twice a second: the token rate of the last tick, and hop points older than the window dropped."""
    elapsed = now - state.ticked_at
    if state.answer is not None or state.tokens_since_tick:
        rate = state.tokens_since_tick / elapsed if 0 < elapsed < 10 else 0.0
        state = _change(state, rates=(*state.rates, rate)[-RATES_KEPT:])
    if state.points and state.points[0].at < now - HOP_WINDOW_S:
        state = _change(state, points=tuple(p for p in state.points if p.at >= now - HOP_WINDOW_S))
    return _change(state, tokens_since_tick=0, ticked_at=now)


def _with_unfinished(state: UiState, kept: UnfinishedAnswer, now: float) -> UiState:
    """The conversation of that answer, in the place of the one before, as far as it came."""
    state = _change(taken_up(state, kept.messages, now), early=state.early)
    answer = Turn(
        number=state.next_number,
        role="assistant",
        text=Clean(kept.text),
        at=kept.at,
        request_id=kept.request_id,
        tokens=kept.tokens,
        why=INTERRUPTED,
    )
    return _change(state, turns=(*state.turns, answer), next_number=answer.number + 1)


def _recovered(state: UiState, text: str, requests: tuple[str, ...]) -> UiState:
    """What was interrupted goes on: that is told where it happened."""
    turns = tuple(
        remarked(turn, text) if turn.request_id in requests and not turn.done else turn for turn in state.turns
    )
    return _change(state, turns=turns)


def _with_answer(state: UiState, **fields: object) -> UiState:
    answer = state.answer
    if answer is None:
        return state
    return _change(state, turns=(*state.turns[:-1], _change(answer, **fields)))


def _attach(state: UiState, now: float) -> UiState:
    """A stream began. An answer that was under way goes on if the node still works on it, else it ends here."""
    state = _change(state, attached=True, offline=None, base=(), departures=(), ticked_at=now)
    if not state.points:
        for sample in state.snapshot.hops:
            state = _hop(state, sample, now)
    answer, last = state.answer, state.snapshot.last_done
    if answer is None or not answer.request_id or answer.request_id in state.snapshot.running:
        return state
    if last is not None and last.request_id == answer.request_id:
        return _answer_event(state, _change(last, text=""), now)
    return _with_answer(state, done=True, why=f"{INTERRUPTED}: the node of this Mac was started anew")


def _depart(state: UiState, peers: tuple[Peer, ...], event: PeerGone) -> UiState:
    names = {p.device_id: p.name for p in peers}
    gone = Departure(
        device_id=event.device_id, name=names.get(event.device_id, event.device_id[:8]), reason=event.reason
    )
    others = tuple(d for d in state.departures if d.device_id != gone.device_id)
    return _change(state, departures=(*others, gone)[-4:])


def _answer_event(state: UiState, event: TokenEvent | RequestDone, now: float) -> UiState:
    if isinstance(event, TokenEvent):
        state = _change(state, tokens_since_tick=state.tokens_since_tick + 1)
    answer = state.answer
    if answer is None or not answer.request_id:
        return _change(state, early=(*state.early, event)[-EARLY_KEPT:])
    if answer.request_id != event.request_id:
        return state
    if isinstance(event, TokenEvent):
        return _change(state, turns=(*state.turns[:-1], grown(answer, event, now)))
    return _change(state, turns=(*state.turns[:-1], ended(answer, event, now)), problem=event.problem)


def _hop(state: UiState, sample: HopSample, now: float) -> UiState:
    """Samples are sums over a request; the difference to the one before says what happened in between."""
    pair = (sample.source, sample.target)
    before = next((s for s in state.base if (s.source, s.target) == pair), None)
    fresh = before is None or before.frames > sample.frames or before.bytes > sample.bytes
    frames = sample.frames if fresh or before is None else sample.frames - before.frames
    base = (*(s for s in state.base if (s.source, s.target) != pair), sample)
    if frames <= 0:
        return _change(state, base=base)
    since = _NO_HOP if fresh or before is None else before
    transfer_s = sum(getattr(sample, f) - getattr(since, f) for f in ("codec_s", "seal_s", "send_s", "open_s"))
    point = HopPoint(
        source=sample.source,
        target=sample.target,
        at=now,
        frames=frames,
        bytes=sample.bytes - since.bytes,
        transfer_s=max(0.0, transfer_s) + frames * (sample.rtt_s or 0.0) / 2,
        compute_s=max(0.0, sample.compute_s - since.compute_s),
        first=fresh,
    )
    return _change(state, base=base, points=(*state.points, point))
