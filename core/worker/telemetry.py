"""Times of a stage, measured by the stage's own clock only, so clock skew can't matter."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import Final

from core.events import Sight
from core.link.data_plane import LinkStats, Receiver, Sender
from core.rates import Throttle
from core.requests.trace import Phase, PhaseTurn
from core.worker.messages import SpanKind, StageSample, TraceSpan
from core.worker.phases import PhaseClock

SPANS: Final = 8192
STEP_EVERY_S: Final = 0.5


class SpanClock:
    """Adds the time spent inside `with` to `seconds`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def __enter__(self) -> SpanClock:
        self._since = perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += perf_counter() - self._since


class Steps:
    """A stage's last finished step, passed to `publish` at most every `STEP_EVERY_S`. Times are monotonic seconds."""

    def __init__(self, publish: Callable[[int], None]) -> None:
        self._publish = publish
        self._last = self._published = 0
        self._throttle = Throttle(STEP_EVERY_S)

    def finished(self, step: int, now: float) -> None:
        self._last = step
        self.report(now)

    @property
    def due(self) -> float | None:
        return self._throttle.due if self._last != self._published else None

    def report(self, now: float) -> None:
        if self._last != self._published and self._throttle.take(now):
            self._published = self._last
            self._publish(self._last)


class StageMeter:
    """The counters, computing times and progress of one stage since the ring was last idle. They outlive the links,
    whose counters `sent` and `received` are: figures for an answer would be lost with a broken link.
    """

    def __init__(self, index: int, publish_step: Callable[[int], None] = lambda _: None) -> None:
        self._index = index
        self.steps = Steps(publish_step)
        self.compute = SpanClock()
        self.codec = SpanClock()
        self.wait = SpanClock()
        self.phases: PhaseClock | None = None
        self._noted = PhaseClock()
        self.sent, self.received = LinkStats(), LinkStats()
        self._since = monotonic()
        self._spans: deque[TraceSpan] = deque(maxlen=SPANS)
        self._seen: set[Sight] = set()

    def trace(self, *, is_on: bool, most: int) -> list[PhaseTurn]:
        """The oldest `most` turns not taken yet. Unless tracing `is_on`, `phases` is None from now on."""
        turns = self._noted.take(most)
        if is_on and self.phases is None:
            self._noted = PhaseClock()
        self.phases = self._noted if is_on else None
        return turns

    def lap(self, phase: Phase) -> None:
        """End a phase, if the stage is traced."""
        if self.phases:
            self.phases.lap(phase)

    @contextmanager
    def span(self, kind: SpanKind, step: int, handle: int) -> Iterator[None]:
        started = monotonic()
        yield
        self._spans.append(TraceSpan(step, handle, kind, started, monotonic()))

    def take_spans(self) -> list[TraceSpan]:
        spans = list(self._spans)
        self._spans.clear()
        return spans

    def saw(self, kind: Sight) -> None:
        self._seen.add(kind)

    @property
    def seen(self) -> tuple[Sight, ...]:
        return tuple(sorted(self._seen))

    def start(self) -> None:
        if self.phases:
            self.phases.rest()
        self.compute.seconds = self.codec.seconds = self.wait.seconds = 0.0
        self.sent.reset()
        self.received.reset()
        self._since = monotonic()

    def sample(self, sender: Sender, receiver: Receiver, renewals: int) -> StageSample:
        sent, received = self.sent, self.received
        return StageSample(
            index=self._index,
            since=self._since,
            frames=sent.frames,
            bytes=sent.bytes,
            compute_s=self.compute.seconds,
            codec_s=self.codec.seconds,
            seal_s=sent.seal_s,
            send_s=sent.send_s,
            wait_s=self.wait.seconds + received.wait_s,
            wire_s=received.wire_s,
            open_s=received.open_s,
            queue=int(receiver.pending()),
            key=sender.key.use,
            renewals=renewals,
        )
