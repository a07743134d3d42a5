"""The head runs the requests: the scheduler says what goes on the ring, samplers choose the tokens that come of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import mlx.core as mx

from core.engine.constraints import Grammars
from core.engine.drafting import Drafter
from core.engine.pacing import RingFigures, planned_pace
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Compose, Step, Work
from core.engine.sampling import NextTokens, Picked, RowSampler, choose_all, confirmed, logprobs_of, pick_drafted
from core.engine.scheduler import EndedRow, Scheduler
from core.errors import GroupFailed, MaclusterError, Problem, StageFailed, UsageError, error_from
from core.events import Batch, FinishReason, Plan, TokenLogprobs
from core.plan.topology import has_ranks
from core.rates import Throttle
from core.settings import MAX_DRAFT, QUEUE_LIMIT
from core.worker.messages import (
    AnswerDone,
    Batching,
    Departed,
    Prefilled,
    PromptScored,
    Report,
    Samples,
    StageSample,
    Token,
)
from core.worker.mirroring import CutRequest, Mirroring
from core.worker.pipe import Inbox
from core.worker.pipeline import Pipeline, StepAnswer
from core.worker.reading import Reading, Waited
from core.worker.remote_sampling import check_admission, written_of
from core.worker.restoring import PasteRequest
from core.worker.sessions import SessionRequest, SessionTransfers
from core.worker.work_frames import NO_REQUEST, Begin, Dismiss, Word

TELEMETRY_EVERY_S: Final = 0.5


class _HeadRow:
    """What the person is told of one request, and how its tokens are chosen."""

    def __init__(self, request: Request, sampler: RowSampler, waited: Waited | None) -> None:
        self.request, self.sampler = request, sampler
        self.started = waited.since if waited else monotonic()
        self.beside = waited.tokens if waited else 0
        self.first: float | None = None
        self.last = 0.0
        self.count = len(request.written)
        self.seal_s = 0.0
        self.left_at: float | None = None
        self.is_gone = False  # all of its prompt

    def done(self, reason: FinishReason, problem: Problem | None = None, ended: EndedRow | None = None) -> AnswerDone:
        """Its end; `ended` says what was reused and guessed."""
        problem = problem or self.sampler.problem
        return AnswerDone(
            request_id=self.request.request_id,
            finish_reason="error" if problem else reason,
            prompt_tokens=len(self.request.tokens),
            tokens=self.count,
            reused=max(0, min(ended.reused, len(self.request.tokens)) - self.beside) if ended else 0,
            beside=self.beside,
            drafted=ended.drafted if ended else 0,
            accepted=ended.accepted if ended else 0,
            ttft_s=self.first - self.started if self.first else None,
            decode_s=self.last - self.first if self.first else 0.0,
            problem=problem,
        )


class Head:
    """The engine of one plan. `turn` does one thing and comes back, so that commands are never far away."""

    def __init__(
        self,
        plan: Plan,
        pipeline: Pipeline,
        report: Callable[[Report], None],
        grammars: Grammars,
        *,
        lanes: int | None = None,
        draft: int = MAX_DRAFT,
        drafter: Drafter | None = None,
    ) -> None:
        self._drafter = drafter
        self._pipeline, self._report, self._grammars = pipeline, report, grammars
        layers = pipeline.stage.layers
        self._vocabulary = layers.vocab_size
        self._are_ranks = has_ranks(plan)
        in_turn = 1 if self._are_ranks else len(plan.stages)  # ranks all compute at the same time
        self._scheduler = Scheduler(
            stages=in_turn,
            rows=plan.rows,
            context=plan.context,
            chunk=plan.chunk,
            window=plan.window,
            batched=plan.batched,
            queue=QUEUE_LIMIT,
            lanes=lanes,
            draft=draft if layers.verifies_drafts else 0,
            trim_limit=layers.caches.trim_limit,
            drafter=drafter,
        )
        self.sessions = SessionTransfers(plan, pipeline, self._scheduler, report)
        self.mirroring = Mirroring(plan, pipeline, self._scheduler, report, self._admit)
        restoring = self.mirroring.restoring
        self.reading = Reading(plan, layers.caches.count, self._scheduler, restoring, report)
        self._pace = planned_pace(plan.chunk, plan.window, in_turn) if plan.adapts and in_turn > 1 else None
        self._probing = 0
        self._rows: dict[str, _HeadRow] = {}
        self._last_words: list[AnswerDone] = []
        self._telemetry = Throttle(TELEMETRY_EVERY_S)
        self._is_prompt_only = False  # what the stages count holds no step yet
        self._foreseen: dict[int, tuple[mx.array, NextTokens]] = {}  # by handle: logits that are prepared
        self._batch = Batch()  # as the node knows it
        self._batches = Throttle(TELEMETRY_EVERY_S)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do or to wait for."""
        others = self.sessions.is_busy or self.mirroring.is_busy or self.reading.is_busy
        return others or not (self._scheduler.idle and self._pipeline.is_at_rest)

    def submit(self, request: Request) -> None:
        """Queue a request, once what is mirrored of it is back, or was read by another Mac; one that cannot run, or
        that has ended, is answered at once.
        """
        if request.ended:
            self._report(untouched(request, request.ended))
        elif not (self.mirroring.begin(request) or self._begin_reading(request)):
            self._admit(request)

    def _begin_reading(self, request: Request) -> bool:
        try:
            _check_tokens(request, self._vocabulary)
        except StageFailed:
            return False  # it is told where it would be admitted
        return self.reading.begin(request)

    def _admit(self, request: Request) -> None:
        waited = self.reading.take_waited(request.request_id)
        try:
            _check_tokens(request, self._vocabulary)
            if request.scores_prompt and not self._pipeline.chooses:
                what = "Logprobs of a prompt aren't available in this topology: another Mac samples."
                raise UsageError(what, "Load the model as private.")
            admit = request.admit
            grammar = self._grammars.of(admit)
            sampler = RowSampler(admit, self._vocabulary, grammar)
            sampler.follow(request.written)
            if sampler.problem:
                raise error_from(sampler.problem)
            words: list[Word] = []
            if not self._pipeline.chooses:
                check_admission(admit)
                words.append(admit)
            # elsewhere nobody can say which of several guesses are right, unless the most likely token is chosen always
            # or, whatever is asked, the grammar forces them
            may_draft = self._pipeline.chooses or sampler.is_plain
            self._scheduler.submit(request, may_draft=may_draft, grammar=grammar)
        except MaclusterError as error:
            self._report(untouched(request, "error", error.problem))
            return
        if not self._rows:
            words.insert(0, Begin())
            self._is_prompt_only = True
        self._rows[request.request_id] = _HeadRow(request, sampler, waited)
        if words:
            self._pipeline.send_word(*words)
        for word in () if self._pipeline.chooses else written_of(request):
            self._pipeline.send_word(word)

    def cancel(self, request_id: str) -> None:
        """End an answer after the step that is on its way; the others go on."""
        if ended := self._scheduler.cancel(request_id):
            self._finish([ended])
        elif request := self.mirroring.cancel(request_id):
            self.reading.stop(request_id)
            self._report(untouched(request, "cancelled"))

    def turn(self, inbox: Inbox | None) -> None:
        """Hear what came, or put the next work on the ring, or wait. Raises LinkError or its kinds."""
        self._turn(inbox)
        if phases := self._pipeline.stage.meter.phases:
            phases.end()

    def _turn(self, inbox: Inbox | None) -> None:
        is_reading = self.reading.turn()
        if self._pipeline.begins_elsewhere and self._go_on():
            return  # or the others would wait while this stage computes what has come back
        if answer := self._pipeline.take():
            self._handle_answer(answer)
            if phases := self._pipeline.stage.meter.phases:
                phases.lap("readback")
            if self._pipeline.answers_at_once and self._scheduler.in_flight:  # or nothing else would ever have its turn
                self._go_on()
                self._report_batch()
        elif self._go_on():
            pass
        elif self._pipeline.needs_new_keys and self._pipeline.is_at_rest:
            self._pipeline.renew()
        elif self._has_news() or is_reading:
            pass
        else:
            self._pipeline.stage.prepare(self._foresee)
            beside = self.reading.other if self.reading.is_busy else None
            self._pipeline.wait(inbox, self._telemetry.due if self._scheduler.running else None, beside)

    def flush(self) -> None:
        """Tell of the answers that are complete and wait for the stages' figures only."""
        words, self._last_words = self._last_words, []
        for word in words:
            self._report(word)
        self._report_batch()

    def fail_all(self, problem: Problem) -> None:
        """No answer can go on."""
        self.flush()
        self.sessions.fail(problem)
        self.reading.give_up()
        for request in self.mirroring.give_up():
            self._report(untouched(request, "error", problem))
        self._fail(self._scheduler.drop_all(), problem)

    def _go_on(self) -> bool:
        """Put the next work on the ring, if there is any."""
        if self._pipeline.needs_new_keys:
            return False
        work = self._scheduler.next()
        if work is None and not self.sessions.is_due:
            return self.mirroring.put()
        self._report_batch()  # before this stage computes: a row whose first chunk takes long waits no more
        self._put(work)
        self.sessions.put()
        self.mirroring.put()
        return True

    def _put(self, work: Work | None) -> None:
        sealed_s = self._pipeline.sealed_s
        self._put_work(work)
        if isinstance(work, Chunk | Step) and (seal_s := self._pipeline.sealed_s - sealed_s) > 0:
            self._note_departure(work, seal_s)

    def _note_departure(self, work: Chunk | Step, seal_s: float) -> None:
        """Rows that share a frame share what it took."""
        now = monotonic()
        for row in filter(None, map(self._rows.get, work.requests)):
            if row.is_gone:
                continue
            row.seal_s += seal_s
            row.left_at = row.left_at or now
            if isinstance(work, Step):
                row.is_gone = True
                self._report(Departed(request_id=row.request.request_id, seal_s=row.seal_s, at=row.left_at))

    def _put_work(self, work: Work | None) -> None:
        match work:
            case Compose():
                self._foreseen.clear()
                self._pipeline.compose(work.ops, work)
            case Chunk():
                request = NO_REQUEST if len(work.requests) > 1 else bytes.fromhex(work.requests[0])
                tells, tokens = self._scores_prompt(work), mx.array(work.tokens)
                self._pipeline.forward(work.handle, tokens, quiet=not tells, every=tells, request=request, work=work)
                self._read_draft(work)
                if self._pace and work.positions == (0,) and self._scheduler.running == 1 and self._look():
                    self._probing = len(work.tokens[0])  # the figures follow it round a ring that carries nothing else
            case Step():
                if self._is_prompt_only:  # else a short answer had no figures but those of its prompt
                    self._is_prompt_only = False
                    self._pipeline.ask_samples()
                fed = [[work.tokens[0], *work.drafts]] if work.drafts else [[token] for token in work.tokens]
                self._put_step(work, mx.array(fed))
                if self._pipeline.chooses:  # the others compute now
                    for row in filter(None, map(self._rows.get, work.requests)):
                        row.sampler.prepare()

    def _read_draft(self, work: Chunk) -> None:
        """The draft reads what the others read now."""
        row = self._rows.get(work.requests[0])
        if self._drafter and row and self._scheduler.running == 1:
            self._drafter.read(row.request.prefix[: work.read[0]])

    def _put_step(self, step: Step, tokens: mx.array) -> None:
        askers = () if self._pipeline.chooses else tuple(map(bytes.fromhex, step.requests))
        every, ahead = bool(step.drafts), not step.tokens
        self._pipeline.forward(step.handle, tokens, every=every, askers=askers, ahead=ahead, work=step)

    def _handle_answer(self, answer: StepAnswer) -> None:
        work = answer.work
        if work is None:
            return  # of the proof, or of what the Mac was told that chooses the tokens
        if isinstance(work, SessionRequest):
            self.sessions.handle_answer(work, answer)
            return
        if isinstance(work, CutRequest | PasteRequest):
            self.mirroring.handle_answer(work, answer)
            return
        if answer.problem:
            self._lose(work, answer.problem)
        elif isinstance(work, Step):
            try:
                self._choose(work, answer)
            except StageFailed as error:
                if self._are_ranks:  # of what they add up, too, and nobody knows how far they got
                    raise GroupFailed(error.what, error.fix) from error
                self._lose(work, error.problem)
        else:
            if isinstance(work, Chunk) and answer.logits is not None and self._scores_prompt(work):
                self._report_prompt_logprobs(work, answer.logits[0])
            for progress in self._scheduler.acked(work):
                self._report(Prefilled(request_id=progress.request_id, done=progress.done, total=progress.total))

    def _lose(self, work: Work, problem: Problem) -> None:
        """A stage could not do it."""
        lost = self._scheduler.failed(work)
        self._fail(lost, problem)
        self._dismiss(lost)

    def _scores_prompt(self, work: Chunk) -> bool:
        row = self._rows.get(work.requests[0])
        return row is not None and row.request.scores_prompt

    def _report_prompt_logprobs(self, work: Chunk, logits: mx.array) -> None:
        """Report the logprob of the token after each position of `logits` [positions, vocabulary]."""
        request, start = self._rows[work.requests[0]].request, work.positions[0] + 1
        found = logprobs_of(logits, request.tokens[start : start + len(logits)], request.sampling.logprobs or 0)
        tokens = tuple(TokenLogprobs(token=each.token, logprob=each.logprob or 0.0, top=each.top) for each in found)
        self._report(PromptScored(request_id=request.request_id, start=start, tokens=tokens))

    def _choose(self, step: Step, answer: StepAnswer) -> None:
        """The tokens of each row of `step`. Where nothing needs them before, the next step is on its way while they are
        read and told. Raises StageFailed where MLX could not compute them.
        """
        alive = self._scheduler.counting(step)
        if answer.logits is None or step.drafts or not alive:
            chosen = self._chosen(step, answer, alive)
            self._take(step, chosen)
            return
        samplers, computing = [self._rows[step.requests[at]].sampler for at in alive], self._pipeline.stage.computing
        logits, choice = self._foreseen.pop(step.handle, (None, None))
        with computing():
            wanted = answer.logits if len(alive) == len(step.requests) else answer.logits[mx.array(alive)]
            if choice is None or logits is not wanted:
                choice = choose_all(samplers, wanted)
                choice.begin()
        phases, answered = self._pipeline.stage.meter.phases, None
        if phases:
            phases.lap("logits_compute")
            answered = phases.work
        try:
            if self._pipeline.goes_ahead and (ahead := self._scheduler.ahead(step)):
                self._put_step(ahead, choice.tokens)
        finally:  # a ring that breaks then has given these
            if phases:
                phases.back(answered)
            with computing():
                picked = choice.read()
            if phases:
                phases.lap("readback")
            chosen = [[Picked(0)] for _ in step.requests]
            for at, each in zip(alive, picked, strict=True):
                chosen[at] = [each]
            self._take(step, chosen)

    def _foresee(self, handle: int, logits: mx.array) -> mx.array | None:
        """The tokens that the step of `handle` which is on the ring will choose by `logits`, if the next one goes
        before they are known.
        """
        requests = self._scheduler.foresees(handle) if self._pipeline.goes_ahead else ()
        if not requests:
            return None
        choice = choose_all([self._rows[name].sampler for name in requests], logits)
        self._foreseen[handle] = (logits, choice)
        return choice.tokens

    def _chosen(self, step: Step, answer: StepAnswer, alive: Sequence[int]) -> list[list[Picked]]:
        """What another Mac chose, or what the logits of its guesses confirm and the token behind."""
        samplers = [self._rows[step.requests[at]].sampler for at in alive]
        if answer.chosen is not None:
            told = [confirmed(picked, step.drafts) for picked in answer.chosen]
            for at, sampler in zip(alive, samplers, strict=True):
                sampler.follow([picked.token for picked in told[at]])
            return told
        if not samplers or answer.logits is None:
            return [[Picked(0)] for _ in step.requests]
        with self._pipeline.stage.computing():
            return [pick_drafted(samplers[0], answer.logits[0], step.drafts)]

    def _take(self, step: Step, chosen: Sequence[Sequence[Picked]]) -> None:
        """Tell the tokens of each row that still runs, and go on."""
        alive = [name for name in step.requests if self._scheduler.alive(name)]
        broken = [self._scheduler.cancel(name) for name in alive if self._rows[name].sampler.problem]
        taken, ended = self._scheduler.stepped(step, [[picked.token for picked in row] for row in chosen])
        now = monotonic()
        for request_id, count, row in zip(step.requests, taken, chosen, strict=True):
            for picked in row[:count]:
                self._report_token(self._rows[request_id], picked, now)
        self._finish([*filter(None, broken), *ended])

    def _report_token(self, row: _HeadRow, picked: Picked, now: float) -> None:
        row.first, row.last = row.first or now, now
        token = Token(
            request_id=row.request.request_id,
            index=row.count,
            token=picked.token,
            logprob=picked.logprob,
            top=picked.top,
        )
        self._report(token)
        row.count += 1

    def _finish(self, ended: Sequence[EndedRow]) -> None:
        """The last row that leaves the ring waits for every stage's figures: they are part of its end."""
        self._last_words += [self._rows.pop(each.request_id).done(each.reason, ended=each) for each in ended]
        self._dismiss([each.request_id for each in ended])
        is_last = self._last_words and not self._rows
        if not (is_last and self._pipeline.ask_samples()):
            self.flush()

    def _dismiss(self, requests: Sequence[str]) -> None:
        """The Mac that chooses their tokens may forget them."""
        if requests and not self._pipeline.chooses:
            self._pipeline.send_word(*(Dismiss(bytes.fromhex(request_id)) for request_id in requests))

    def _fail(self, requests: Sequence[str], problem: Problem) -> None:
        for request_id in requests:
            self._report(self._rows.pop(request_id).done("error", problem))
        self._report_batch()

    def _has_news(self) -> bool:
        """Figures that came are told; new ones are asked for now and then."""
        if samples := self._pipeline.take_samples():
            self._report(Samples(stages=samples))
            self._adapt(samples)
            if not self._pipeline.awaits_samples:
                self.flush()
            return True
        self._report_batch()
        return bool(self._scheduler.running and self._telemetry.is_due(monotonic()) and self._look())

    def _look(self) -> bool:
        """Ask for figures, unless some are on their way."""
        self._telemetry.note(monotonic())
        return not self._pipeline.awaits_samples and self._pipeline.ask_samples()

    def _report_batch(self) -> None:
        """Now and then while anything runs, and behind the last word when nothing does any more."""
        now = monotonic()
        if self._last_words or (self._rows and not self._batches.is_due(now)):
            return
        batch = self._scheduler.batch
        if batch != self._batch:
            self._batch = batch
            self._batches.note(now)
            self._report(Batching(batch=batch))

    def _adapt(self, samples: Sequence[StageSample]) -> None:
        """Chunk and window follow what a chunk showed that was alone on the ring."""
        tokens, self._probing = self._probing, 0
        if self._pace and tokens:
            compute, wire = tuple(s.compute_s for s in samples), tuple(s.wire_s for s in samples)
            round_s = sum(compute) + sum(wire) + self._pipeline.trip_s
            self._pace = self._pace.after(RingFigures(tokens, round_s, compute, wire))
            self._scheduler.chunk, self._scheduler.window = self._pace.chunk, self._pace.window


def _check_tokens(request: Request, vocabulary: int) -> None:
    """MLX reads beyond its arrays where a token id is too large."""
    if not request.tokens or not all(0 <= token < vocabulary for token in request.prefix):
        raise StageFailed(
            "The tokenizer gave token ids that the model does not have.",
            "The tokenizer and the weights of this model do not belong together: fetch the model again.",
        )


def untouched(request: Request, reason: FinishReason, problem: Problem | None = None) -> AnswerDone:
    """The end of an answer for which nothing was put on the ring."""
    return AnswerDone(
        request_id=request.request_id,
        finish_reason=reason,
        prompt_tokens=len(request.tokens),
        tokens=len(request.written),
        ttft_s=None,
        decode_s=0.0,
        problem=problem,
    )
