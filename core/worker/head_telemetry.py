"""Figures of the stages and the batch of rows, as the head reports them.

A chunk that is alone on the ring also shows the best size of chunks and their window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from core.engine.pacing import RingFigures, chunk_in_time, planned_pace
from core.engine.ring_work import Chunk
from core.engine.scheduler import Scheduler
from core.events import Batch, Plan
from core.plan.topology import stages_in_turn
from core.rates import Throttle
from core.worker.messages import Report, Samples, StageSample
from core.worker.pipeline import Pipeline

TELEMETRY_EVERY_S: Final = 0.5


class HeadTelemetry:
    """Requests figures and reports them, at most every `TELEMETRY_EVERY_S` while rows run."""

    def __init__(self, plan: Plan, pipeline: Pipeline, scheduler: Scheduler, report: Callable[[Report], None]) -> None:
        self._pipeline, self._scheduler, self._report = pipeline, scheduler, report
        in_turn = stages_in_turn(plan)
        self._pace = planned_pace(plan.chunk, plan.window, in_turn) if plan.adapts and in_turn > 1 else None
        self._adapts, self._most_chunk, self._chunk_in_time = plan.adapts, plan.chunk, plan.chunk
        self._probing = 0  # size of the chunk that the figures follow
        self._timed: tuple[Chunk, float] | None = None  # a chunk that is alone on the ring, and when it left
        self._figures = Throttle(TELEMETRY_EVERY_S)
        self._batch = Batch()  # as the node knows it
        self._batches = Throttle(TELEMETRY_EVERY_S)

    @property
    def due(self) -> float | None:
        """When to request figures, by the monotonic clock; None while no row runs."""
        return self._figures.due if self._scheduler.running else None

    def watch(self, chunk: Chunk) -> None:
        if self._pace and chunk.positions == (0,) and self._scheduler.running == 1 and self._ask():
            self._probing = len(chunk.tokens[0])

    def leaves(self, chunk: Chunk) -> None:
        if self._pipeline.is_at_rest:
            self._timed = chunk, monotonic()

    def is_back(self, chunk: Chunk) -> None:
        if self._timed and self._timed[0] is chunk:
            self.took(sum(map(len, chunk.tokens)), monotonic() - self._timed[1])

    def took(self, tokens: int, seconds: float) -> None:
        """Note how long `tokens` tokens of a prompt took, for the size of the next chunks."""
        if self._adapts:
            self._chunk_in_time = chunk_in_time(self._chunk_in_time, self._most_chunk, seconds / tokens)
            self._set_pace()

    def take(self) -> bool:
        samples = self._pipeline.take_samples()
        if not samples:
            return False
        self._report(Samples(stages=samples))
        self._adapt(samples)
        return True

    def ask_when_due(self) -> bool:
        return bool(self._scheduler.running and self._figures.is_due(monotonic()) and self._ask())

    def report_batch(self, *, is_busy: bool) -> None:
        """Report the batch, if it changed; with `is_busy` only now and then."""
        now = monotonic()
        if is_busy and not self._batches.is_due(now):
            return
        batch = self._scheduler.batch
        if batch != self._batch:
            self._batch = batch
            self._batches.note(now)
            self._report(batch)

    def _ask(self) -> bool:
        self._figures.note(monotonic())
        return not self._pipeline.awaits_samples and self._pipeline.ask_samples()

    def _adapt(self, samples: Sequence[StageSample]) -> None:
        tokens, self._probing = self._probing, 0
        if self._pace and tokens:
            compute, wire = tuple(s.compute_s for s in samples), tuple(s.wire_s for s in samples)
            round_s = sum(compute) + sum(wire) + self._pipeline.trip_s
            self._pace = self._pace.after(RingFigures(tokens, round_s, compute, wire))
            self._scheduler.window = self._pace.window
            self._set_pace()

    def _set_pace(self) -> None:
        self._scheduler.chunk = min(self._pace.chunk if self._pace else self._most_chunk, self._chunk_in_time)
