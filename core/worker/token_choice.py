"""Tokens of a step: from its logits by the samplers of its rows, or as the Mac with the output head chose them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx

from core.engine.ring_work import Step
from core.engine.sampling import NextTokens, Picked, choose_all, confirmed, pick_drafted
from core.engine.scheduler import Scheduler
from core.worker.answer_row import AnswerRow
from core.worker.phases import Turn
from core.worker.pipeline import Pipeline, StepAnswer


class TokenChoice:
    """Chooses for `rows`. A plain step is chosen in two parts, so that the next step can leave between them."""

    def __init__(self, pipeline: Pipeline, scheduler: Scheduler, rows: Mapping[str, AnswerRow]) -> None:
        self._pipeline, self._scheduler, self._rows = pipeline, scheduler, rows
        self._foreseen: dict[int, tuple[mx.array, NextTokens]] = {}  # by handle: logits that are prepared
        self._work: Turn | None = None  # the work of the last `begin`

    def begin(self, step: Step, logits: mx.array, alive: Sequence[int]) -> NextTokens:
        """Start choosing a token for the rows `alive` of a step without drafts, from logits [rows, vocabulary]."""
        prepared_for, choice = self._foreseen.pop(step.handle, (None, None))
        with self._pipeline.stage.computing():
            wanted = logits if len(alive) == len(step.requests) else logits[mx.array(list(alive))]
            if choice is None or prepared_for is not wanted:
                choice = choose_all([self._rows[step.requests[at]].sampler for at in alive], wanted)
                choice.begin()
        if phases := self._pipeline.stage.meter.phases:
            phases.lap("logits_compute")
            self._work = phases.work
        return choice

    def read(self, step: Step, choice: NextTokens, alive: Sequence[int]) -> list[list[Picked]]:
        """The tokens of each row of `step`, once they are computed."""
        if phases := self._pipeline.stage.meter.phases:
            phases.back(self._work)
        with self._pipeline.stage.computing():
            picked = choice.read()
        self._pipeline.stage.meter.lap("readback")
        chosen = [[Picked(0)] for _ in step.requests]
        for at, each in zip(alive, picked, strict=True):
            chosen[at] = [each]
        return chosen

    def confirm(self, step: Step, answer: StepAnswer, alive: Sequence[int]) -> list[list[Picked]]:
        """The tokens of each row: as another Mac chose them, or the right ones of a draft and the one after them."""
        samplers = [self._rows[step.requests[at]].sampler for at in alive]
        if answer.chosen is not None:
            chosen = [confirmed(picked, step.drafts) for picked in answer.chosen]
            for at, sampler in zip(alive, samplers, strict=True):
                sampler.follow([picked.token for picked in chosen[at]])
            return chosen
        if not samplers or answer.logits is None:
            return [[Picked(0)] for _ in step.requests]
        with self._pipeline.stage.computing():
            return [pick_drafted(samplers[0], answer.logits[0], step.drafts)]

    def foresee(self, handle: int, logits: mx.array) -> mx.array | None:
        """Tokens that the step of `handle` will choose from `logits`, if the next one goes ahead of them."""
        requests = self._scheduler.foresees(handle) if self._pipeline.goes_ahead else ()
        if not requests:
            return None
        choice = choose_all([self._rows[name].sampler for name in requests], logits)
        self._foreseen[handle] = (logits, choice)
        return choice.tokens

    def forget_foreseen(self) -> None:
        self._foreseen.clear()
