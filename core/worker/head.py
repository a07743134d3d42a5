"""The head runs requests: the scheduler decides what goes on the ring, samplers choose tokens from the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import mlx.core as mx

from core.engine.constraints import Grammars
from core.engine.drafting import Drafter
from core.engine.requests import Request
from core.engine.ring_work import Chunk, Compose, Step, Work
from core.engine.sampling import Picked, RowSampler, logprobs_of
from core.engine.scheduler import EndedRow, Scheduler
from core.errors import GroupFailed, MaclusterError, Problem, StageFailed, UsageError, error_from
from core.events import Plan, PromptLogprobs, TokenLogprobs
from core.plan.topology import has_ranks, stages_in_turn
from core.settings import MAX_DRAFT, QUEUE_LIMIT
from core.worker.answer_row import AnswerRow, check_tokens, untouched
from core.worker.head_telemetry import HeadTelemetry
from core.worker.messages import AnswerDone, Prefilled, Report
from core.worker.mirroring import CutRequest, Mirroring
from core.worker.pipe import Inbox
from core.worker.pipeline import Pipeline, StepAnswer
from core.worker.reading import Reading
from core.worker.remote_sampling import check_admission, written_of
from core.worker.restoring import PasteRequest
from core.worker.sessions import SessionRequest, SessionTransfers
from core.worker.token_choice import TokenChoice
from core.worker.work_frames import NO_REQUEST, Begin, Dismiss, Word


class Head:
    """The engine of one plan. `turn` does one thing and returns, so that commands are read soon."""

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
        self.pipeline, self._report, self._grammars = pipeline, report, grammars
        layers = pipeline.stage.layers
        self._vocabulary = layers.vocab_size
        self._are_ranks = has_ranks(plan)
        self._scheduler = Scheduler(
            stages=stages_in_turn(plan),
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
        self._rows: dict[str, AnswerRow] = {}
        self._choice = TokenChoice(pipeline, self._scheduler, self._rows)
        self.telemetry = HeadTelemetry(plan, pipeline, self._scheduler, report)
        self._done: list[AnswerDone] = []  # finished answers that wait for the stages' figures
        self._is_prompt_only = False  # the stages' figures contain no step yet

    @property
    def is_busy(self) -> bool:
        others = self.sessions.is_busy or self.mirroring.is_busy or self.reading.is_busy
        return others or not (self._scheduler.idle and self.pipeline.is_at_rest)

    def submit(self, request: Request) -> None:
        """Queue a request once its known part is restored or read; answer at once if it can't run or has ended."""
        if request.ended:
            self._report(untouched(request, request.ended))
        elif not (self.mirroring.begin(request) or self._begin_reading(request)):
            self._admit(request)

    def _begin_reading(self, request: Request) -> bool:
        try:
            check_tokens(request, self._vocabulary)
        except StageFailed:
            return False  # `_admit` reports it
        return self.reading.begin(request)

    def _admit(self, request: Request) -> None:
        waited = self.reading.take_waited(request.request_id)
        try:
            check_tokens(request, self._vocabulary)
            if request.scores_prompt and not self.pipeline.chooses:
                what = "Prompt logprobs aren't available in this topology: another Mac samples."
                raise UsageError(what, "Load the model as private.")
            admit = request.admit
            grammar = self._grammars.of(admit)
            sampler = RowSampler(admit, self._vocabulary, grammar)
            sampler.follow(request.written)
            if sampler.problem:
                raise error_from(sampler.problem)
            words: list[Word] = []
            if not self.pipeline.chooses:
                check_admission(admit)
                words.append(admit)
            # another Mac's sampler can't check draft tokens, unless it always takes the most probable token or the
            # grammar forces them
            may_draft = self.pipeline.chooses or sampler.is_plain
            self._scheduler.submit(request, may_draft=may_draft, grammar=grammar)
        except MaclusterError as error:
            self._report(untouched(request, "error", error.problem))
            return
        if not self._rows:
            words.insert(0, Begin())
            self._is_prompt_only = True
        self._rows[request.request_id] = AnswerRow(request, sampler, waited)
        if words:
            self.pipeline.send_word(*words)
        for word in () if self.pipeline.chooses else written_of(request):
            self.pipeline.send_word(word)

    def cancel(self, request_id: str) -> None:
        if ended := self._scheduler.cancel(request_id):
            self._finish([ended])
        elif request := self.mirroring.restoring.cancel(request_id):
            self.reading.stop(request_id)
            self._report(untouched(request, "cancelled"))

    def turn(self, inbox: Inbox | None) -> None:
        self._turn(inbox)
        if phases := self.pipeline.stage.meter.phases:
            phases.end()

    def _turn(self, inbox: Inbox | None) -> None:
        is_reading = self.reading.turn()
        if self.pipeline.begins_elsewhere and self._go_on():
            return  # else the others would wait while this stage computes what has come back
        if answer := self.pipeline.take():
            self._handle_answer(answer)
            self.pipeline.stage.meter.lap("readback")
            if self.pipeline.answers_at_once and self._scheduler.in_flight:  # or nothing else would ever get its turn
                self._go_on()
                self._report_batch()
        elif self._go_on():
            pass
        elif self.pipeline.needs_new_keys and self.pipeline.is_at_rest:
            self.pipeline.renew()
        elif self._has_news() or is_reading:
            pass
        else:
            self.pipeline.stage.prepare(self._choice.foresee)
            beside = self.reading.other if self.reading.is_busy else None
            self.pipeline.wait(inbox, self.telemetry.due, beside)

    def flush(self) -> None:
        done, self._done = self._done, []
        for each in done:
            self._report(each)
        self._report_batch()

    def fail_all(self, problem: Problem) -> None:
        self.flush()
        self.sessions.fail(problem)
        self.reading.give_up()
        for request in self.mirroring.give_up():
            self._report(untouched(request, "error", problem))
        self._fail(self._scheduler.drop_all(), problem)

    def _go_on(self) -> bool:
        if self.pipeline.needs_new_keys:
            return False
        work = self._scheduler.next()
        for rest in self._scheduler.take_displaced():
            self._begin_again(rest)
        if work is None and not self.sessions.is_due:
            return self.mirroring.put()
        self._report_batch()  # before this stage computes: the view must not lag a long first chunk
        self._put(work)
        self.sessions.put()
        self.mirroring.put()
        return True

    def _begin_again(self, rest: Request) -> None:
        """Prepare for the rest of a displaced answer. A sampler on another Mac may be ahead of it."""
        self._rows[rest.request_id].request = rest
        if self.pipeline.chooses:
            return
        self._dismiss([rest.request_id])
        try:
            check_admission(rest.admit)
        except UsageError as error:  # penalties look at more than there was at first
            self._scheduler.cancel(rest.request_id)
            self._fail([rest.request_id], error.problem)
            return
        self.pipeline.send_word(rest.admit)
        for word in written_of(rest):
            self.pipeline.send_word(word)

    def _put(self, work: Work | None) -> None:
        sealed_s = self.pipeline.sealed_s
        self._put_work(work)
        if isinstance(work, Chunk | Step) and (seal_s := self.pipeline.sealed_s - sealed_s) > 0:
            now = monotonic()
            for row in filter(None, map(self._rows.get, work.requests)):  # rows that share a frame share its time
                if departed := row.departed(seal_s, now, is_step=isinstance(work, Step)):
                    self._report(departed)

    def _put_work(self, work: Work | None) -> None:
        match work:
            case Compose():
                self._choice.forget_foreseen()
                self.pipeline.compose(work.ops, work)
            case Chunk():
                request = NO_REQUEST if len(work.requests) > 1 else bytes.fromhex(work.requests[0])
                every, tokens = self._scores_prompt(work), mx.array(work.tokens)
                self.telemetry.leaves(work)
                self.pipeline.forward(work.handle, tokens, quiet=not every, every=every, request=request, work=work)
                self._read_draft(work)
                self.telemetry.watch(work)
            case Step():
                if self._is_prompt_only:  # else a short answer had figures of its prompt only
                    self._is_prompt_only = False
                    self.pipeline.ask_samples()
                fed = [[work.tokens[0], *work.drafts]] if work.drafts else [[token] for token in work.tokens]
                self._put_step(work, mx.array(fed))
                if self.pipeline.chooses:  # the other stages compute now
                    for row in filter(None, map(self._rows.get, work.requests)):
                        row.sampler.prepare()

    def _read_draft(self, work: Chunk) -> None:
        row = self._rows.get(work.requests[0])
        if self._drafter and row and self._scheduler.running == 1:
            self._drafter.read(row.request.prefix[: work.read[0]])

    def _put_step(self, step: Step, tokens: mx.array) -> None:
        askers = () if self.pipeline.chooses else tuple(map(bytes.fromhex, step.requests))
        every, ahead = bool(step.drafts), not step.tokens
        self.pipeline.forward(step.handle, tokens, every=every, askers=askers, ahead=ahead, work=step)

    def _handle_answer(self, answer: StepAnswer) -> None:
        work = answer.work
        if work is None:
            return  # of the proof, or a word to the Mac that samples
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
                if self._are_ranks:  # it is unknown how far the other ranks got in a sum
                    raise GroupFailed(error.what, error.fix) from error
                self._lose(work, error.problem)
        else:
            if isinstance(work, Chunk) and answer.logits is not None and self._scores_prompt(work):
                self._report_prompt_logprobs(work, answer.logits[0])
            if isinstance(work, Chunk):
                self.telemetry.is_back(work)
            for progress in self._scheduler.acked(work):
                self._report(Prefilled(request_id=progress.request_id, done=progress.done, total=progress.total))

    def _lose(self, work: Work, problem: Problem) -> None:
        lost = self._scheduler.failed(work)
        self._fail(lost, problem)
        self._dismiss(lost)

    def _scores_prompt(self, work: Chunk) -> bool:
        row = self._rows.get(work.requests[0])
        return row is not None and row.request.scores_prompt

    def _report_prompt_logprobs(self, work: Chunk, logits: mx.array) -> None:
        request, start = self._rows[work.requests[0]].request, work.positions[0] + 1
        found = logprobs_of(logits, request.tokens[start : start + len(logits)], request.sampling.logprobs or 0)
        sampler = self._rows[request.request_id].sampler
        sampler.check(found)
        if sampler.problem and (ended := self._scheduler.cancel(request.request_id)):
            self._finish([ended])
            return
        tokens = tuple(TokenLogprobs(token=each.token, logprob=each.logprob or 0.0, top=each.top) for each in found)
        self._report(PromptLogprobs(request_id=request.request_id, start=start, tokens=tokens))

    def _choose(self, step: Step, answer: StepAnswer) -> None:
        """Choose the tokens of a step; if the next step doesn't need them, it is sent first. Raises StageFailed."""
        alive = self._scheduler.counting(step)
        if answer.logits is None or step.drafts or not alive:
            self._take(step, self._choice.confirm(step, answer, alive))
            return
        choice = self._choice.begin(step, answer.logits, alive)
        try:
            if self.pipeline.goes_ahead and (ahead := self._scheduler.ahead(step)):
                self._put_step(ahead, choice.tokens)
        finally:  # even if the ring breaks: it has computed these tokens
            self._take(step, self._choice.read(step, choice, alive))

    def _take(self, step: Step, chosen: Sequence[Sequence[Picked]]) -> None:
        alive = [(name, row) for name, row in zip(step.requests, chosen, strict=True) if self._scheduler.alive(name)]
        for name, row in alive:
            self._rows[name].sampler.check(row)
        broken = [self._scheduler.cancel(name) for name, _ in alive if self._rows[name].sampler.problem]
        taken, ended = self._scheduler.stepped(step, [[picked.token for picked in row] for row in chosen])
        now = monotonic()
        for request_id, count, row in zip(step.requests, taken, chosen, strict=True):
            for picked in row[:count]:
                self._report(self._rows[request_id].token(picked, now))
        self._finish([*filter(None, broken), *ended])

    def _finish(self, ended: Sequence[EndedRow]) -> None:
        """End requests. The last row waits for the figures of every stage, which are reported before its end."""
        self._done += [self._rows.pop(each.request_id).done(each.reason, ended=each) for each in ended]
        self._dismiss([each.request_id for each in ended])
        is_last = self._done and not self._rows
        if not (is_last and self.pipeline.ask_samples()):
            self.flush()

    def _dismiss(self, requests: Sequence[str]) -> None:
        if requests and not self.pipeline.chooses:
            self.pipeline.send_word(*(Dismiss(bytes.fromhex(request_id)) for request_id in requests))

    def _fail(self, requests: Sequence[str], problem: Problem) -> None:
        for request_id in requests:
            self._report(self._rows.pop(request_id).done("error", problem))
        self._report_batch()

    def _has_news(self) -> bool:
        if self.telemetry.take():
            if not self.pipeline.awaits_samples:
                self.flush()
            return True
        self._report_batch()
        return self.telemetry.ask_when_due()

    def _report_batch(self) -> None:
        if not self._done:
            self.telemetry.report_batch(is_busy=bool(self._rows))
