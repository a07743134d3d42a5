"""The head's end of the ring: puts work on it without waiting, takes results as they come, resends unanswered work.

The head is the first stage of the ring. The plan's topology decides what it does with work before sending it, and after
its return; it does both in the order of the steps.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

import mlx.core as mx
from msgspec.structs import replace

from core.engine.handle_shapes import HandleShapes
from core.engine.ring_work import Op
from core.engine.sampling import Picked
from core.engine.steps import TRIES, Outstanding
from core.errors import CachesLost, GroupFailed, LinkError, LinkTimeout, NoAnswer, Problem, ProtocolError, StageFailed
from core.events import Plan
from core.link.arrays import decode_arrays, encode_arrays
from core.link.data_plane import Frame
from core.link.frames import FrameType
from core.plan.stage_roles import arriving, departing
from core.plan.topology import has_ranks
from core.worker import work_frames
from core.worker.execution import Execution, made
from core.worker.hidden_states import HiddenStates
from core.worker.kv_parts import KvPart, decode_part, encode_part
from core.worker.kv_spans import KvSpan, SpanVerb, decode_span, encode_span, is_span
from core.worker.messages import StageSample
from core.worker.neighbours import DIAL_S
from core.worker.pipe import Inbox
from core.worker.remote_sampling import decode_choices
from core.worker.ring import Ring, read_break, read_samples
from core.worker.stage import LoadedStage
from core.worker.work_frames import NO_STEP, WorkFrame


class StepAnswer(NamedTuple):
    """The result of `work`: requested logits, tokens that another Mac chose for each row, a cache part, or a mirror
    span; `problem` if a stage failed.
    """

    work: Any
    logits: mx.array | None = None
    chosen: list[list[Picked]] | None = None
    part: KvPart | None = None
    span: KvSpan | None = None
    problem: Problem | None = None


class _Sent(NamedTuple):
    frame: WorkFrame  # without the step
    work: Any  # the caller's object
    ops: Sequence[Op] = ()  # of a composition, which the head also applies
    positions: int = 0  # of each row
    own: KvSpan | None = None  # the head's own part of a span


class Pipeline:
    """The pipeline of one loaded plan. Rings come and go with their links; handles and work in flight stay.

    With a single stage there is no ring, and every result is there at once. So it is if the stages are ranks, as this
    one computes as much as the others: returning frames only confirm that all ranks have the work.

    Unanswered work is resent after `try_s` seconds. `trip_s`: round trip of an empty frame. `chooses`: the output head
    is here, so the caller chooses tokens; else the last stage does. `answers_at_once`: results never have to be
    awaited. `begins_elsewhere`: another stage embeds, so putting work is cheap here.
    """

    def __init__(self, stage: LoadedStage, plan: Plan, try_s: float) -> None:
        self.stage = stage
        self._execution = Execution(stage)
        self._departing, self._arriving = departing(plan), arriving(plan)
        self.begins_elsewhere = not self._departing.runs
        self.chooses = self._departing.outputs or self._arriving.outputs
        self._peers = [other.peer for other in plan.stages[1:]]
        self._are_ranks = has_ranks(plan)
        self.answers_at_once = self._are_ranks or not self._peers
        self._hidden = HiddenStates(plan.wire, stage.layers)
        self._ring: Ring | None = None
        self._out: Outstanding[_Sent] = Outstanding(TRIES, try_s)
        self._shapes = HandleShapes()
        self._ready: deque[StepAnswer] = deque()
        self._run = os.urandom(16)
        self._is_run_known = False  # whether the other stages know this run
        self._asked: deque[StageSample] = deque()  # this stage's own figures at each request for figures
        self._samples: deque[list[StageSample]] = deque()
        self.trip_s = 0.0

    @property
    def is_linked(self) -> bool:
        return self._ring is not None or not self._peers

    @property
    def goes_ahead(self) -> bool:
        """Whether a step may go before its tokens are known: not if keys are due, or other ranks need them."""
        return not self.needs_new_keys and (not self._are_ranks or self.stage.layers.shares_tokens)

    @property
    def needs_new_keys(self) -> bool:
        """Whether the links need new keys: put no more work, and `renew` once the ring is at rest."""
        return self._ring is not None and self._ring.needs_new_keys

    @property
    def sealed_s(self) -> float:
        return self.stage.meter.sent.seal_s

    @property
    def is_at_rest(self) -> bool:
        return not (self._out or self._asked or self._samples)

    def link(self, ring: Ring) -> Problem | None:
        """Continue over a newly linked ring: work in flight is sent again, and no stage does it twice. If a stage has
        lost its caches, all stages start over, and the reason is returned. Raises LinkError or its kinds; NoAnswer if
        new links did not help a few times.
        """
        problem = None
        lost = self._stand(ring)
        if lost and (self._out or self._shapes):
            names = " and ".join(ring.plan.stages[index].peer for index in lost)
            problem = CachesLost(f"{names} was restarted and has lost the answer.").problem
            self.begin_anew()
            self._stand(ring)
        self._send_again(ring, self._out.resend)
        for _ in self._asked:
            ring.send_samples([])
        self._ring = ring
        return problem

    def unlink(self) -> None:
        self._ring = None

    def close(self) -> None:
        ring, self._ring = self._ring, None
        if ring:
            ring.close()

    def begin_anew(self) -> None:
        """Forget every handle and all work, here, and on every stage as soon as the links are new."""
        self._run, self._is_run_known = os.urandom(16), False
        self._out.clear()
        self._ready.clear()
        self._shapes.clear()
        self._execution.reset()

    def compose(self, ops: Sequence[Op], work: Any = None) -> None:
        """Change the rows of handles on every stage. On LinkError the next ring carries it."""
        self._shapes.compose(ops)
        frame = WorkFrame(FrameType.COMPOSE, NO_STEP, payload=work_frames.encode_orders(ops))
        if self._departing.runs:
            try:
                self._execution.compose(self._out.next_step, ops)
            except StageFailed as error:
                self._ready.append(StepAnswer(work, problem=error.problem))
                return
            ops = ()
        self._put(_Sent(frame, work, ops), None)

    def send_word(self, *words: work_frames.Word) -> None:
        """Tell all stages to restart their figures; or tell the stage with the output head how to choose a row's
        tokens, or that the row is over. On LinkError the next ring carries it.
        """
        if self._ring and work_frames.Begin() in words:
            self._ring.begin()
        self._put(_Sent(WorkFrame(FrameType.COMPOSE, NO_STEP, payload=work_frames.encode_orders(words)), None), None)

    def forward(
        self,
        handle: int,
        tokens: mx.array,
        *,
        quiet: bool = False,
        every: bool = False,
        request: bytes = work_frames.NO_REQUEST,
        askers: tuple[bytes, ...] = (),
        ahead: bool = False,
        work: Any = None,
    ) -> None:
        """Send token ids [B, L] through all layers; with `ahead` they are not computed yet. The result has unevaluated
        logits [B, V] of the last position, [B, L, V] with `every`, none if `quiet`; or for `askers` the tokens of their
        rows, if another Mac chooses. On LinkError the next ring carries it, except for GroupFailed.
        """
        step, position = self._out.next_step, self._shapes[handle].position
        frame = WorkFrame(FrameType.ACTIVATION, step, handle, request, position, tokens.size, quiet, every, askers)
        self._shapes.fed(handle, tokens.shape[1])
        if phases := self.stage.meter.phases:
            phases.works(step, work_frames.kind_of(frame), handle)
            phases.lap("to_i32")
        self.stage.meter.saw("token ids")
        if self._are_ranks or not self._departing.runs:
            is_shared = ahead and self._are_ranks
            kind = FrameType.PROMPT_TOKENS if quiet else FrameType.STEP_TOKEN
            frame = frame._replace(kind=kind, payload=() if is_shared else encode_arrays([tokens.astype(mx.int32)]))
            self.stage.meter.lap("codec_encode")
            if self._are_ranks:
                self._forward_together(frame, tokens, work, ahead=ahead)
            else:
                self._put(_Sent(frame, work, positions=tokens.shape[1]), None)
            return
        try:
            out = self._execution.forward(frame, self._departing, [tokens], ahead=ahead)
        except StageFailed as error:
            self._ready.append(StepAnswer(work, problem=error.problem))
            return
        if self._peers:
            with self.stage.meter.codec:
                frame = frame._replace(payload=self._hidden.encode(out))
            self.stage.meter.lap("codec_encode")
        self._put(_Sent(frame, work, positions=tokens.shape[1]), out[0] if self._departing.outputs else None)

    def _forward_together(self, frame: WorkFrame, tokens: mx.array, work: Any, *, ahead: bool) -> None:
        """Start all ranks at once: none computes a layer before all do."""
        try:
            self._execution.check(frame.handle)
            self._send(_Sent(frame, None))
        except StageFailed as error:
            self._ready.append(StepAnswer(work, problem=error.problem))
            return
        except LinkError as error:  # it is unknown which ranks have it and wait for this one
            raise GroupFailed(error.what, error.fix) from error
        out = self._execution.forward_together(frame, self._departing, tokens, ahead=ahead)
        self._ready.append(StepAnswer(work, out[0]))

    def exchange(self, handle: int, part: KvPart, work: Any) -> None:
        """Request a part of a cache of a plain row from its stage, or bring one. The result is the reply, or the
        request itself if no stage has that cache. On LinkError the next ring carries it.
        """
        if self._departing.runs:
            try:
                part = self._execution.exchange(handle, part)
            except StageFailed as error:
                self._ready.append(StepAnswer(work, problem=error.problem))
                return
        if part.is_answer or not self._peers:
            self._ready.append(StepAnswer(work, part=part))
            return
        self._put(_Sent(WorkFrame(FrameType.KV, NO_STEP, handle, payload=encode_part(part)), work), None)

    def mirror(self, handle: int, span: KvSpan, work: Any) -> None:
        """Send a span of a mirror round the stages. On LinkError the next ring carries it."""
        own: KvSpan | None = None
        if self._departing.runs:
            span = self._execution.mirror(handle, span)
            if span.verb is SpanVerb.CUT:
                # the local part need not go round
                own, span = span, span._replace(caches={n: part for n, part in span.caches.items() if not part.data})
        if not self._peers:
            self._ready.append(StepAnswer(work, span=own or span))
            return
        frame = WorkFrame(FrameType.KV, NO_STEP, handle, payload=encode_span(span))
        self._put(_Sent(frame, work, own=own), None)

    def take(self) -> StepAnswer | None:
        while (not self._ready or self._are_ranks) and self._ring and self._ring.has_frame():
            self._read(self._ring, self._ring.receive())
        return self._ready.popleft() if self._ready else None

    def wait(self, inbox: Inbox | None, until: float | None = None, beside: Pipeline | None = None) -> None:
        """Wait for a frame, also of `beside`; for the node; until `until`; or until a resend is due."""
        steps = self.stage.meter.steps
        others = [inbox, beside._ring] if beside else [inbox]
        deadlines = [self._out.deadline(), beside._out.deadline() if beside else None]
        times = [at for at in (until, *deadlines, steps.due) if at is not None]
        timeout = max(0.0, min(times) - monotonic()) if times else None
        sources = [each.fileno() for each in others if each]
        if self._ring is None:
            if beside:
                select.select(sources, [], [], timeout)
        elif not self._ring.wait(sources, timeout):
            self.send_again()
        steps.report(monotonic())

    def send_again(self) -> None:
        if self._ring:
            self._send_again(self._ring, self._out.due)

    def renew(self) -> None:
        if self._ring:
            self._ring.renew()

    @property
    def awaits_samples(self) -> bool:
        return bool(self._asked or self._samples)

    def ask_samples(self) -> bool:
        if self._ring is None:
            return False
        self._asked.append(self._ring.sample())
        self._ring.send_samples([])
        return True

    def take_samples(self) -> list[StageSample] | None:
        """The oldest requested figures, if they are here: of each stage, after all work before the request."""
        return self._samples.popleft() if self._samples else None

    def _put(self, sent: _Sent, logits: mx.array | None) -> None:
        if not self._peers or self._are_ranks:
            self._ready.append(StepAnswer(sent.work, logits))
            sent = sent._replace(work=None)
        if self._peers:
            self._send(sent)

    def _send(self, sent: _Sent) -> None:
        now = monotonic()
        step = self._out.put(sent, now)
        self.stage.meter.steps.finished(step, now)
        if self._ring:
            self._ring.send_work(sent.frame._replace(step=step), self._out.base)

    def _read(self, ring: Ring, frame: Frame) -> None:
        if frame.header.type is FrameType.TELEMETRY and self._asked:
            own = self._asked[0]
            if self.begins_elsewhere:  # this stage computed earlier work when that came back
                own = replace(own, compute_s=ring.sample().compute_s)
            samples = [own, *read_samples(frame)[1:]]
            ring.note_keys(samples)
            self._samples.append(samples)
            self._asked.popleft()
        elif frame.header.type in work_frames.WORK_TYPES:
            work, _ = work_frames.read_work(frame)
            if work.step == NO_STEP:
                raise read_break(frame)
            if phases := self.stage.meter.phases:
                phases.works(work.step, work_frames.kind_of(work), work.handle)
            sent = self._out.answered(work.step, monotonic())
            answer = self._answer(sent, work) if sent else None
            if answer and not self._are_ranks:  # ranks have theirs already
                self._ready.append(answer)
        else:
            raise ProtocolError(f"Frame 0x{frame.header.type:02x} came to the head.")

    def _answer(self, sent: _Sent, came: WorkFrame) -> StepAnswer:
        asked = sent.frame
        if came.kind is FrameType.ERROR:
            problem, _ = work_frames.decode_problem(came.payload[0])
            if self._are_ranks:
                raise GroupFailed(problem.what, problem.fix)
            if self._arriving.runs:  # skip it here, too; this stage knows the handles itself
                mine = made(sent.ops) if asked.kind is FrameType.COMPOSE else [asked.handle]
                self._execution.taint(mine, problem)
            return StepAnswer(sent.work, problem=problem)
        kind = self._expected(asked)
        if (came.kind, came.handle, came.position, came.rows) != (kind, asked.handle, asked.position, asked.rows):
            raise ProtocolError(f"Frame 0x{came.kind:02x} came as the answer to step {came.step}.")
        try:
            match kind:
                case FrameType.COMPOSE:
                    if sent.ops:
                        self._execution.compose(came.step, sent.ops)
                case FrameType.KV if is_span(came.payload[0]):
                    span = decode_span(came.payload[0])
                    if self._arriving.runs:
                        span = self._execution.mirror(asked.handle, span)
                    if sent.own:
                        span = span._replace(caches={**sent.own.caches, **span.caches})
                    return StepAnswer(sent.work, span=span)
                case FrameType.KV:
                    part = decode_part(came.payload[0])
                    if self._arriving.runs:
                        part = self._execution.exchange(asked.handle, part)
                    return StepAnswer(sent.work, part=part)
                case FrameType.TOKEN:
                    rows = len(asked.askers)
                    positions = sent.positions if asked.every else 1
                    chosen = decode_choices(came.payload[0], rows, positions, self.stage.layers.vocab_size)
                    return StepAnswer(sent.work, chosen=chosen)
                case FrameType.ACTIVATION:
                    return StepAnswer(sent.work, self._logits(sent, came))
        except StageFailed as error:
            return StepAnswer(sent.work, problem=error.problem)
        return StepAnswer(sent.work)

    def _expected(self, asked: WorkFrame) -> FrameType:
        if asked.kind in (FrameType.COMPOSE, FrameType.KV):
            return asked.kind
        if self._are_ranks or (asked.quiet and not self._arriving.runs):
            return FrameType.ACK
        return FrameType.TOKEN if asked.askers else FrameType.ACTIVATION

    def _logits(self, sent: _Sent, came: WorkFrame) -> mx.array | None:
        payload, asked = memoryview(came.payload[0]), sent.frame
        if self._arriving.outputs:
            hidden = self._hidden.decode(payload)
            self.stage.meter.lap("codec_decode")
            out = self._execution.forward(asked._replace(step=came.step), self._arriving, hidden)
            return None if asked.quiet else out[0]
        arrays = decode_arrays(payload)
        self.stage.meter.lap("codec_decode")
        rows = asked.rows // sent.positions
        shape = (rows, *([sent.positions] if asked.every else []), self.stage.layers.vocab_size)
        if len(arrays) != 1 or arrays[0].shape != shape:
            raise ProtocolError(f"The logits have shapes {[array.shape for array in arrays]}, expected {shape}.")
        self.stage.meter.saw("logits")
        return arrays[0]

    def _stand(self, ring: Ring) -> tuple[int, ...]:
        asked = work_frames.ResumeState(self._run, self._out.base)
        started = monotonic()
        ring.send(FrameType.RESUME_STATE, work_frames.encode_resume_state(asked))
        told = work_frames.decode_resume_state(ring.expect(FrameType.RESUME_STATE, DIAL_S))
        self.trip_s = monotonic() - started
        others = range(1, len(ring.plan.stages))
        if (told.run, told.base) != (asked.run, asked.base) or not all(index in others for index in told.lost):
            raise ProtocolError("A stage answered for another run.")
        lost, self._is_run_known = told.lost if self._is_run_known else (), True
        return lost

    def _send_again(self, ring: Ring, overdue: Callable[[float], list[tuple[int, _Sent]]]) -> None:
        try:
            steps = overdue(monotonic())
        except LinkTimeout as error:
            raise NoAnswer(f"{' or '.join(self._peers)} does not answer.") from error
        for step, sent in steps:
            ring.send_work(sent.frame._replace(step=step), self._out.base)
