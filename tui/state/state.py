"""State of the screens: the node's Snapshot and what only this terminal knows.

Everything is frozen, and every change is a function from a state to the next one. Events are cleaned here, where they
enter, so no widget ever holds foreign text that could drive the terminal.
"""

from __future__ import annotations

from functools import reduce
from typing import TypeVar

import msgspec

from core import events
from core.errors import Problem
from core.requests.answers import UnfinishedAnswer
from core.requests.conversations import ConversationInfo
from core.requests.plans import PlanRequest
from core.snapshot import apply, with_line
from core.text import clean_text
from tui.state.chats import Chat
from tui.state.hop_history import HOP_WINDOW_S, HopPoint, faded, point_of
from tui.state.progress_rate import Pace, moved
from tui.state.turns import INTERRUPTED, Turn, ended, grown, remarked

_T = TypeVar("_T")
_Request = TypeVar("_Request", bound=PlanRequest)

RATES_KEPT = 8
EARLY_KEPT = 512
LOGS_KEPT = 5000

_change = msgspec.structs.replace


class Departure(events.Value, frozen=True, kw_only=True):
    """A Mac that left and hasn't come back."""

    device_id: str
    name: str
    reason: str


class UiState(events.Value, frozen=True, kw_only=True):
    """All that the screens show: the node's Snapshot and what only this terminal knows."""

    snapshot: events.Snapshot = events.Snapshot()
    attached: bool = False
    offline: Problem | None = None  # why no events come
    chat: Chat = Chat()
    preparing: str = ""  # what the demo is preparing
    last: ConversationInfo | None = None  # the conversation to continue, if none is on screen
    turns: tuple[Turn, ...] = ()  # the shown path of the conversation
    others: tuple[Turn, ...] = ()  # messages of other versions (`tui.state.branches`)
    editing: int = 0  # number of the question being edited, 0 for none
    next_number: int = 1
    # events of answers that are not on screen, or whose id is not known yet
    early: tuple[events.TokenEvent | events.RequestDone, ...] = ()
    problem: Problem | None = None  # why the last answer or load failed, until the next try
    unfinished: tuple[UnfinishedAnswer, ...] = ()  # interrupted answers that can be continued, newest first
    logs: tuple[events.LogLine, ...] = ()  # more lines than the Snapshot has, newest last
    departures: tuple[Departure, ...] = ()
    skipped: tuple[str, ...] = ()  # device ids of Macs left out of the next load
    base: tuple[events.HopSample, ...] = ()  # last sample of each hop
    points: tuple[HopPoint, ...] = ()  # hop measurements of the last minute
    past: tuple[HopPoint, ...] = ()  # the hour before that, in fewer points
    speed_test: events.Progress | None = None
    rates: tuple[float, ...] = ()  # tokens per second, one value per tick
    tokens_since_tick: int = 0
    ticked_at: float = 0.0
    load_s: float | None = None
    loads: dict[str, Pace] = msgspec.field(default_factory=dict)  # loading progress by device id

    @property
    def answer(self) -> Turn | None:
        return self.turns[-1] if self.turns and not self.turns[-1].done else None


def strangers(state: UiState) -> tuple[events.Peer, ...]:
    """The Macs that can be paired. An offline Mac was paired, whatever its current level."""
    seen = (p for p in state.snapshot.peers if p.trust in ("unpaired", "seen") and not p.is_self)
    return tuple(p for p in seen if p.state != "lost")


def own_first(state: UiState) -> tuple[events.Peer, ...]:
    """This home's Macs, those with layers of the plan first, then strangers."""
    others, plan = {peer.device_id for peer in strangers(state)}, state.snapshot.plan
    used = {part.device_id for part in plan.parts} if plan else set()

    def rank(peer: events.Peer) -> tuple[bool, bool]:
        return peer.device_id in others, not peer.is_self and peer.device_id not in used

    return tuple(sorted(state.snapshot.peers, key=rank))


def cleaned(value: _T, *, lines: bool = False) -> _T:
    """`value` with all text in it cleaned for the terminal; line breaks survive only with `lines`."""
    if isinstance(value, str):
        text = clean_text(value)
        return text if lines else " ".join(text.split())  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(cleaned(v) for v in value)  # type: ignore[return-value]
    if isinstance(value, msgspec.Struct):
        answer = isinstance(value, events.TokenEvent | events.RequestDone)
        return _change(
            value, **{f: cleaned(getattr(value, f), lines=answer and f == "text") for f in value.__struct_fields__}
        )
    return value


def fold(state: UiState, event: events.AnyEvent, now: float) -> UiState:
    """The state after `event`, which arrived at `now` (seconds since the epoch)."""
    event = cleaned(event)
    before = state.snapshot
    state = _change(state, snapshot=apply(before, event))
    match event:
        case events.Snapshot():
            return _attach(state, now)
        case events.PeerSeen(peer=peer) | events.PeerChanged(peer=peer):
            return _change(state, departures=tuple(d for d in state.departures if d.device_id != peer.device_id))
        case events.PeerGone():
            return _depart(state, before.peers, event)
        case events.PlanProposed():
            return _change(state, problem=None, base=(), points=(), past=(), load_s=None, loads={})
        case events.StageState(device_id=mac, done_bytes=done, total_bytes=total):
            return _change(state, loads={**state.loads, mac: moved(state.loads.get(mac), done, total, now)})
        case events.PlanLoaded(seconds=seconds):
            return _change(state, load_s=seconds)
        case events.HopSample():
            return _hop(state, event, now)
        case events.Progress() if event.task == events.SPEED_TEST:
            return _change(state, speed_test=event)
        case events.Progress(task="prefill") if (answer := state.answer) and answer.request_id == event.request_id:
            return with_answer(state, reading=moved(answer.reading, event.done, event.total, now))
        case events.LogLine():
            return _change(state, logs=with_line(state.logs, event, LOGS_KEPT))
        case events.Recovery(state="running", text=text, requests=requests) if text:
            return _recovered(state, text, requests)
        case events.TokenEvent() | events.RequestDone():
            return answer_event(state, event, now)
        case _:
            return state


def skip_turned(state: UiState, device_id: str) -> UiState:
    others = tuple(skipped for skipped in state.skipped if skipped != device_id)
    return _change(state, skipped=(*others, device_id) if others == state.skipped else others)


def of_used(state: UiState, request: _Request) -> _Request:
    return _change(request, without=tuple(dict.fromkeys((*request.without, *state.skipped))))


def detached(state: UiState, problem: Problem | None) -> UiState:
    """No events come, with the reason; None while a node is starting."""
    return _change(state, attached=False, offline=cleaned(problem))


def failed(state: UiState, problem: Problem | None) -> UiState:
    """Show a problem (None: it was dismissed)."""
    return _change(state, problem=cleaned(problem))


def ticked(state: UiState, now: float) -> UiState:
    """Twice a second: note the token rate, and move hop points out of the last minute."""
    elapsed = now - state.ticked_at
    if state.answer is not None or state.tokens_since_tick:
        rate = state.tokens_since_tick / elapsed if 0 < elapsed < 10 else 0.0
        state = _change(state, rates=(*state.rates, rate)[-RATES_KEPT:])
    if state.points and not now - HOP_WINDOW_S <= state.points[0].at <= now:
        # also removes points that a set-back clock left in the future
        points = tuple(p for p in state.points if now - HOP_WINDOW_S <= p.at <= now)
        past = faded(state.past, tuple(p for p in state.points if p.at < now - HOP_WINDOW_S), now)
        state = _change(state, points=points, past=past)
    return _change(state, tokens_since_tick=0, ticked_at=now)


def _recovered(state: UiState, text: str, requests: tuple[str, ...]) -> UiState:
    turns = tuple(
        remarked(turn, text) if turn.request_id in requests and not turn.done else turn for turn in state.turns
    )
    return _change(state, turns=turns)


def with_answer(state: UiState, **fields: object) -> UiState:
    answer = state.answer
    if answer is None:
        return state
    return _change(state, turns=(*state.turns[:-1], _change(answer, **fields)))


def _attach(state: UiState, now: float) -> UiState:
    """An event stream began. A running answer goes on if the node still works on it; else it ends here."""
    logs = _joined(state.logs, state.snapshot.logs)
    state = _change(state, attached=True, offline=None, departures=(), ticked_at=now, logs=logs)
    if not state.points:
        for sample in state.snapshot.hops:
            state = _hop(state, sample, now)
    answer, last = state.answer, state.snapshot.last_done
    if answer is None or not answer.request_id or answer.request_id in state.snapshot.running:
        return state
    if last is not None and last.request_id == answer.request_id:
        return answer_event(state, _change(last, text=""), now)
    return with_answer(state, done=True, why=f"{INTERRUPTED}: macluster's service was restarted")


def _joined(old: tuple[events.LogLine, ...], new: tuple[events.LogLine, ...]) -> tuple[events.LogLine, ...]:
    known = set(old)
    return reduce(lambda lines, line: with_line(lines, line, LOGS_KEPT), (x for x in new if x not in known), old)


def _depart(state: UiState, peers: tuple[events.Peer, ...], event: events.PeerGone) -> UiState:
    if any(p.device_id == event.device_id and p.trust in ("unpaired", "seen") for p in peers):
        return state  # a neighbour's Mac is no concern
    names = {p.device_id: p.name for p in peers}
    gone = Departure(
        device_id=event.device_id, name=names.get(event.device_id, event.device_id[:8]), reason=event.reason
    )
    others = tuple(d for d in state.departures if d.device_id != gone.device_id)
    return _change(state, departures=(*others, gone)[-4:])


def answer_event(state: UiState, event: events.TokenEvent | events.RequestDone, now: float) -> UiState:
    """Add an event to its answer; events of answers that aren't on screen are kept for a while."""
    if isinstance(event, events.TokenEvent):
        state = _change(state, tokens_since_tick=state.tokens_since_tick + 1)
    answer = state.answer
    if answer is None or not answer.request_id:
        return _change(state, early=(*state.early, event)[-EARLY_KEPT:])
    if answer.request_id != event.request_id:
        return state
    if isinstance(event, events.TokenEvent):
        return _change(state, turns=(*state.turns[:-1], grown(answer, event, now)))
    return _change(state, turns=(*state.turns[:-1], ended(answer, event, now)), problem=event.problem)


def _hop(state: UiState, sample: events.HopSample, now: float) -> UiState:
    base, point = point_of(state.base, sample, now)
    return _change(state, base=base, points=(*state.points, point) if point else state.points)
