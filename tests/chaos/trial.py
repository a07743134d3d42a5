"""One try: a fault comes at a random point of running answers, which must equal an undisturbed run's."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from time import monotonic
from typing import Final, Literal, NamedTuple

from core.errors import MaclusterError
from core.events import (
    AnyEvent,
    LogLine,
    PeerChanged,
    PeerGone,
    PeerSeen,
    PlanFailed,
    Progress,
    Recovery,
    RequestDone,
    RequestStarted,
    StageState,
    TokenEvent,
)
from core.requests.answers import ChatRequest, Message
from core.requests.conversations import SessionName
from core.sampling_options import Sampling
from tests.chaos.cluster import Cluster, Heard
from tui.cli.watch import Watch

ANSWER_S: Final = 120.0
TOKENS: Final = 64
FEW: Final = 40
SEEDS: Final = (None, None, 1, 2)
EARLIEST: Final = 2
RESTORED: Final = re.compile(r"(\d+) tokens came back from the mirror")
LATEST: Final = 8  # tokens before the end, so that the fault comes in time

Moment = Literal["decode", "prefill", "admission", "save"]
MOMENTS: Final[tuple[Moment, ...]] = ("decode", "prefill", "admission", "save")
Fault = Callable[[], Awaitable[None]]

SHORT: Final = (
    "How does macluster split a model?",
    "What is a hop?",
    "Who can read my prompts?",
    "What does the trust line say?",
    "How do I pair two Macs?",
)
LONG: Final = (
    " ".join(SHORT) + " Tell me about the three Macs. " * 30 + "What is a hop?",
    "List the commands of macluster. " * 30 + " ".join(SHORT) + " Tell me a story about a fox.",
    "Give me a table of the keys. " * 30 + " ".join(reversed(SHORT)) + " How do I pair two Macs?",
)


class Ask(NamedTuple):
    """A prompt and the number of tokens of its answer, sampled if there is a `seed`. `before`: earlier messages."""

    prompt: str
    tokens: int
    seed: int | None = None
    before: tuple[Message, ...] = ()

    @property
    def request(self) -> ChatRequest:
        """The request, with an exact number of tokens."""
        said = (*self.before, Message(role="user", content=self.prompt))
        sampling = Sampling() if self.seed is None else Sampling(temperature=0.8, top_k=40, seed=self.seed)
        return ChatRequest(messages=said, min_tokens=self.tokens, max_tokens=self.tokens, sampling=sampling)


class Answer(NamedTuple):
    """All that was shown of a request: (index, token) of every TokenEvent in order, the text, the ends."""

    tokens: tuple[tuple[int, int], ...]
    text: str
    ends: tuple[RequestDone, ...]


class Times(NamedTuple):
    """Times of a try; None if there was no such event.

    * `detected_s`: from the fault to the first event of a loss.
    * `recovered_s`: from the fault to the token that ends the longest time without one.
    * `pause_s`: the longest time without a token after the fault.
    * `back_s`: from the healing of a network until all is linked again.
    """

    detected_s: float | None = None
    recovered_s: float | None = None
    pause_s: float | None = None
    back_s: float | None = None


class Tried(NamedTuple):
    """Result of a try: `point` of the fault in the answers, and the faults found in `wrong`.

    `again` is the result of `read_again`.
    """

    point: str
    tokens: int
    times: Times
    wrong: tuple[str, ...]
    again: int | None = None


class DoesNotWander(AssertionError):
    """The answer repeats itself, which would hide faults."""


class Undisturbed:
    """Undisturbed answers: each is asked for once, of a healthy cluster, and must be the same on every other."""

    def __init__(self) -> None:
        self._answers: dict[Ask, Answer] = {}

    async def of(self, cluster: Cluster, ask: Ask) -> Answer:
        """Raises DoesNotWander."""
        if ask not in self._answers:
            cluster.forget()
            begun = await begin(cluster.head, ask)
            await ended(cluster.head, begun)
            answer = answer_of(cluster.heard, begun)
            assert len(answer.tokens) == ask.tokens, answer.ends
            if 2 * len({token for _, token in answer.tokens}) < ask.tokens:
                raise DoesNotWander(ask.prompt)
            self._answers[ask] = answer
        return self._answers[ask]


class Point(NamedTuple):
    """Where a fault comes: at `fraction` of the prompt or the answer, or `late_s` after the next action there."""

    moment: Moment
    asks: tuple[Ask, ...]
    fraction: float
    late_s: float


def draw(moment: Moment, dice: random.Random) -> Point:
    """Draw a random point of that kind."""
    is_read = moment == "prefill"
    first = Ask(dice.choice(LONG if is_read else SHORT), FEW if is_read else TOKENS, dice.choice(SEEDS))
    second = Ask(dice.choice(LONG), FEW, dice.choice(SEEDS))
    asks = (first, second) if moment == "admission" else (first,)
    return Point(moment, asks, dice.random(), dice.uniform(0.0, 0.4 if moment == "admission" else 0.06))


async def disturb(cluster: Cluster, undisturbed: Undisturbed, point: Point, fault: Fault) -> Tried:
    """Let `fault` come at `point`, and wait for the answers."""
    expected = [await undisturbed.of(cluster, ask) for ask in point.asks]
    if point.moment == "save":
        await ended(cluster.head, await begin(cluster.head, Ask(SHORT[0], 4)))
    if point.moment == "prefill":  # there is room for one such prompt, so the earlier one is forgotten
        other = next(prompt for prompt in LONG if prompt != point.asks[0].prompt)
        await ended(cluster.head, await begin(cluster.head, Ask(other, 1)))
    cluster.forget()
    begun = [await begin(cluster.head, point.asks[0])]
    where = await _reach(cluster, point, begun)
    saving = asyncio.create_task(_save(cluster)) if point.moment == "save" else None
    if point.moment in ("admission", "save"):
        await asyncio.sleep(point.late_s)
    at = monotonic()
    acting = asyncio.ensure_future(fault())
    wrong = []
    try:
        for request in begun:
            await ended(cluster.head, request)
    except MaclusterError as error:
        wrong.append(str(error))
    await acting
    if saving:
        wrong += await _saved(saving)
    heard = cluster.heard
    for request, ask, whole in zip(begun, point.asks, expected, strict=True):
        wrong += differences(answer_of(heard, request), whole, ask)
    count = sum(len(a.tokens) for a in expected)
    return Tried(where, count, times_of(heard, at, begun), tuple(wrong), read_again(heard, begun))


async def begin(watch: Watch, ask: Ask) -> str:
    """Ask that Mac; returns the request's id."""
    return (await watch.client.chat(ask.request)).request_id


async def _reach(cluster: Cluster, point: Point, begun: list[str]) -> str:
    """Wait for the point; further requests there are added to `begun`. Returns the point in words."""
    first = point.asks[0]
    if point.moment == "prefill":
        reached = await _read(cluster, begun[0], point.fraction)
        return f"{reached} of the prompt's tokens read"
    count = EARLIEST + int(point.fraction * (first.tokens - LATEST - EARLIEST))
    await cluster.head.until(lambda _: written(cluster.heard, begun[0]) >= count, ANSWER_S, "Writing")
    if point.moment == "admission":
        begun += [await begin(cluster.head, ask) for ask in point.asks[1:]]
        return f"token {count}, {point.late_s:.2f} s behind the admission of another"
    return f"token {count} of {first.tokens}" + ", saving" * (point.moment == "save")


async def _read(cluster: Cluster, request: str, fraction: float) -> int:
    reached = 0

    def far(_: Watch) -> bool:
        nonlocal reached
        for event in (heard.event for heard in reversed(cluster.heard)):
            if isinstance(event, Progress | TokenEvent) and event.request_id == request:
                if isinstance(event, TokenEvent):
                    return True
                reached = event.done
                return reached >= fraction * event.total
        return False

    await cluster.head.until(far, ANSWER_S, "Reading")
    return reached


def written(heard: Sequence[Heard], request: str) -> int:
    """The number of tokens shown; the newest event is read first."""
    for _, event in reversed(heard):
        if isinstance(event, TokenEvent) and event.request_id == request:
            return event.index + 1
    return 0


async def ended(watch: Watch, request: str) -> None:
    """Wait until a request has ended."""

    def has_ended(w: Watch) -> bool:
        return any(isinstance(e, RequestDone) and e.request_id == request for e in w.seen)

    await watch.until(has_ended, ANSWER_S, "The end of an answer")


async def _save(cluster: Cluster) -> None:
    await cluster.head.client.save_session(SessionName(name="chaos"))


async def _saved(saving: asyncio.Task[None]) -> list[str]:
    """Wait for a save; one hit by a fault may fail with a reason, but must not hang."""
    try:
        await asyncio.wait_for(saving, ANSWER_S)
    except TimeoutError:
        return ["The saving of the session hangs."]
    except MaclusterError as error:
        return [] if error.what else ["The session was not saved, for no reason."]
    return []


def answer_of(heard: Sequence[Heard], request: str) -> Answer:
    """All that was shown of a request."""
    tokens = [h.event for h in heard if isinstance(h.event, TokenEvent) and h.event.request_id == request]
    ends = [h.event for h in heard if isinstance(h.event, RequestDone) and h.event.request_id == request]
    text = "".join(t.text for t in tokens) + "".join(end.text for end in ends)
    return Answer(tuple((t.index, t.token) for t in tokens), text, tuple(ends))


def differences(answer: Answer, expected: Answer, ask: Ask) -> list[str]:
    """The faults of an answer: it must have every undisturbed token once, in order, and one end."""
    wrong = []
    if [index for index, _ in answer.tokens] != list(range(len(answer.tokens))):
        wrong.append("A token was shown twice, or left out.")
    pairs = enumerate(zip(answer.tokens, expected.tokens, strict=False))
    if first := next((number for number, (one, other) in pairs if one[1] != other[1]), None):
        wrong.append(f"Token {first} of the answer to {ask.prompt[:40]!r} is another one.")
    if len(answer.ends) != 1:
        wrong.append(f"The answer ended {len(answer.ends)} times.")
    elif answer.ends[0].problem:
        wrong.append(f"It ended after {len(answer.tokens)} tokens: {answer.ends[0].problem.what}")
    elif len(answer.tokens) != len(expected.tokens) or answer.text != expected.text:
        wrong.append(f"{len(answer.tokens)} of {len(expected.tokens)} tokens were shown, or another text.")
    return wrong


def read_again(heard: Sequence[Heard], requests: Sequence[str]) -> int | None:
    """The most tokens of a row that had to be read again after a loss: they did not come back from a mirror.

    None without a loss. Ended requests don't count.
    """
    events = [each.event for each in heard]
    lost = next((at for at, event in enumerate(events) if is_loss(event)), None)
    if lost is None:
        return None
    before, after = events[:lost], events[lost:]
    back, over = _came_back(after), {e.request_id for e in before if isinstance(e, RequestDone)}
    return max(
        (_held(before, request) - back.get(request, 0) for request in requests if request not in over), default=0
    )


def _held(events: Sequence[AnyEvent], request: str) -> int:
    prompt = [e.prompt_tokens for e in events if isinstance(e, RequestStarted) and e.request_id == request]
    read = [e.done for e in events if isinstance(e, Progress) and e.request_id == request]
    shown = [prompt[0] + e.index for e in events if isinstance(e, TokenEvent) and e.request_id == request]
    return max([*read, *shown], default=0)


def _came_back(events: Sequence[AnyEvent]) -> dict[str, int]:
    """Restored tokens by request: the log has their number, and the next progress event has the request."""
    back: dict[str, int] = {}
    told: list[int] = []
    for event in events:
        if isinstance(event, LogLine) and (found := RESTORED.match(event.text)):
            told.append(int(found[1]))
        elif isinstance(event, Progress) and event.done in told:
            told.remove(event.done)
            back[event.request_id] = event.done
    return back


async def nothing() -> None:
    """No fault."""


def is_loss(event: AnyEvent) -> bool:
    """Whether this event reports a loss in the ring."""
    match event:
        case Recovery(state=state):
            return state not in ("running", "suspect", "stuck")
        case PeerChanged(peer=peer):
            return peer.state == "lost"
        case StageState(status=status):
            return status in ("lost", "broken")
        case _:
            return isinstance(event, PeerGone | PlanFailed)


def is_linked(event: AnyEvent, name: str) -> bool:
    """Whether this event reports that the Mac of that name is linked."""
    return isinstance(event, PeerChanged | PeerSeen) and event.peer.name == name and event.peer.state == "connected"


def times_of(heard: Sequence[Heard], at: float, requests: Sequence[str]) -> Times:
    """The times of a fault that came at `at`."""
    detected = next((h.at for h in heard if h.at >= at and is_loss(h.event)), None)
    shown = [h.at for h in heard if h.at >= at and isinstance(h.event, TokenEvent) and h.event.request_id in requests]
    pauses = [(later - earlier, later) for earlier, later in pairwise([at, *shown])]
    recovered = max(((gap, end) for gap, end in pauses if detected is not None and end > detected), default=None)
    return Times(
        detected - at if detected is not None else None,
        recovered[1] - at if recovered else None,
        max(pauses)[0] if pauses else None,
    )
