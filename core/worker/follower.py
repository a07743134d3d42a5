"""A stage other than the head: does the work of each frame once and passes the frame on."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Final

import mlx.core as mx

from core.engine.constraints import Grammars
from core.engine.requests import Admit
from core.engine.ring_work import Op
from core.engine.steps import Replies
from core.errors import GroupFailed, LinkError, MaclusterError, ProtocolError, StageFailed
from core.events import Plan
from core.link.arrays import Arrived, decode_arrays, encode_arrays
from core.link.data_plane import Frame
from core.link.frames import FrameType
from core.plan.stage_roles import arriving, role_of
from core.plan.topology import has_ranks
from core.settings import MAX_LANE_ROWS
from core.worker import work_frames
from core.worker.execution import ALL, Execution, made, tokens_in
from core.worker.hidden_states import HiddenStates
from core.worker.kv_parts import decode_part, encode_part
from core.worker.kv_spans import decode_span, encode_span, is_span
from core.worker.remote_sampling import RemoteSamplers, encode_choices
from core.worker.ring import Ring, read_samples
from core.worker.stage import LoadedStage
from core.worker.work_frames import NO_STEP, WorkFrame

NO_RUN: Final = b""
# limits far beyond any head's needs, so that a hostile one can't exhaust this Mac
STEPS_LIMIT: Final = 1024
HANDLES_LIMIT: Final = 16 * MAX_LANE_ROWS


class Follower:
    """Stage `index` of `plan`. Outlives its ring: caches and replies stay, so the head can resend work in flight."""

    def __init__(self, stage: LoadedStage, plan: Plan, index: int, grammars: Grammars) -> None:
        self._execution = Execution(stage, plan.stages[index].peer)
        self._meter = stage.meter
        self._vocabulary = stage.layers.vocab_size
        self._is_rank = has_ranks(plan)
        self._role = ALL if stage.layers.computes_at_once else role_of(plan, index)
        self._hidden = HiddenStates(plan.wire, stage.layers)
        own = work_frames.TOKEN_TYPES if self._role.embeds else {FrameType.ACTIVATION}
        self._work_types = own | {FrameType.COMPOSE, FrameType.KV, FrameType.ERROR}
        self._is_last = index == len(plan.stages) - 1
        self._answers_chunks = self._is_last and not arriving(plan).runs
        self._under_way: list[mx.array] = []  # outputs of the last step that went ahead
        self._choosers = RemoteSamplers(self._vocabulary, plan.context, grammars)
        self._replies: Replies[WorkFrame] = Replies()
        self._run = NO_RUN

    def serve(self, ring: Ring, frame: Frame) -> None:
        """Handle one frame. Raises LinkError or its kinds: the ring is broken then."""
        match frame.header.type:
            case kind if kind in self._work_types:
                self._work(ring, *work_frames.read_work(frame))
            case FrameType.TELEMETRY:
                ring.send_samples(read_samples(frame))
            case FrameType.RESUME_STATE:
                standing = self._stand(ring, work_frames.decode_resume_state(frame))
                ring.send(FrameType.RESUME_STATE, work_frames.encode_resume_state(standing))
            case FrameType.RESUME:
                ring.follow()
            case other:
                raise ProtocolError(f"Frame 0x{other:02x} does not belong on a data link.")

    def _stand(self, ring: Ring, asked: work_frames.ResumeState) -> work_frames.ResumeState:
        if asked.run == self._run and self._replies.last >= asked.base - 1:
            return asked
        self._run = asked.run
        self._execution.reset()
        self._choosers.reset()
        self._replies.restart(asked.base)
        return work_frames.ResumeState(asked.run, asked.base, (*asked.lost, ring.index))

    def _work(self, ring: Ring, work: WorkFrame, base: int) -> None:
        if work.step == NO_STEP:
            ring.send_work(work, NO_STEP)
        elif work.step - base > STEPS_LIMIT:
            raise ProtocolError(f"{work.step - base} steps are unanswered: more than a head keeps in flight.")
        elif self._replies.judge(work.step, base) == "repeat":
            ring.send_work(self._replies.reply(work.step), base)
            if phases := self._meter.phases:
                phases.rest()
        elif self._is_rank and work.kind in work_frames.TOKEN_TYPES:
            self._compute_together(ring, work, base)
        else:
            reply = self._answer(ring, work)
            self._replies.keep(work.step, reply, base)
            self._meter.steps.finished(work.step, monotonic())
            ring.send_work(reply, base)
            self._end_turn(work)
            if not ring.has_frame():
                self._execution.stage.prepare()

    def _end_turn(self, work: WorkFrame) -> None:
        if phases := self._meter.phases:
            phases.works(work.step, work_frames.kind_of(work), work.handle)
            phases.end()

    def _compute_together(self, ring: Ring, work: WorkFrame, base: int) -> None:
        """Pass the frame on before computing, so that all ranks start at once; the last one acknowledges it. Only a
        step may come without tokens, and goes ahead: this stage then waits for the step before it, no longer than the
        head does. Raises GroupFailed if this stage can't follow: no rank can continue without it.
        """
        is_empty = work.kind is FrameType.STEP_TOKEN and not work.payload[0]
        ahead = is_empty and self._execution.stage.layers.shares_tokens
        try:
            if ahead:
                tokens = mx.zeros((work.rows, 1), mx.int32)
            else:
                tokens = tokens_in(decode_arrays(memoryview(work.payload[0])), self._vocabulary)
        except ProtocolError as error:
            raise GroupFailed(error.what, error.fix) from error
        self._meter.lap("codec_decode")
        passed = work._replace(payload=(bytes(work.payload[0]),))
        if self._is_last:
            passed = work._replace(kind=FrameType.ACK, payload=())
        ring.send_work(passed, base)
        self._replies.keep(work.step, passed, base)
        before = self._under_way
        self._under_way = self._execution.forward_together(work, self._role, tokens, ahead=ahead, before=before)
        self._meter.steps.finished(work.step, monotonic())
        self._end_turn(work)

    def _answer(self, ring: Ring, work: WorkFrame) -> WorkFrame:
        try:
            match work.kind:
                case FrameType.COMPOSE:
                    return self._compose(ring, work)
                case FrameType.KV if is_span(work.payload[0]):
                    span = self._execution.mirror(work.handle, decode_span(work.payload[0]))
                    return work._replace(payload=encode_span(span))
                case FrameType.KV:
                    part = self._execution.exchange(work.handle, decode_part(work.payload[0]))
                    return work._replace(payload=encode_part(part))
                case FrameType.ERROR:
                    return self._pass_on(work)
                case _:
                    return self._forward(work)
        except LinkError:
            raise
        except MaclusterError as error:
            handles = [work.handle]
            if work.kind is FrameType.COMPOSE:
                handles = made(_ops(work_frames.decode_orders(work.payload[0])))
            problem = work_frames.encode_problem(StageFailed(error.what, error.fix).problem, handles)
            return WorkFrame(FrameType.ERROR, work.step, work.handle, work.request, payload=problem)

    def _compose(self, ring: Ring, work: WorkFrame) -> WorkFrame:
        orders = work_frames.decode_orders(work.payload[0])
        held = self._execution.handles
        if held + len(orders) > HANDLES_LIMIT:
            raise ProtocolError(f"There are too many operations: {len(orders)}, with {held} handles held.")
        self._execution.compose(work.step, _ops(orders))
        for order in orders:
            match order:
                case work_frames.Begin():
                    ring.begin()
                case Admit():
                    self._choosers.admit(order)
                case work_frames.Wrote():
                    self._choosers.follow(order.request, order.tokens)
                case work_frames.Dismiss():
                    self._choosers.dismiss(order.request)
        return work._replace(payload=(bytes(work.payload[0]),))

    def _pass_on(self, work: WorkFrame) -> WorkFrame:
        payload = bytes(work.payload[0])
        problem, handles = work_frames.decode_problem(payload)
        if self._execution.handles + len(handles) > HANDLES_LIMIT:
            raise ProtocolError(f"An error names too many handles: {len(handles)}.")
        self._execution.taint(handles, problem)
        return work._replace(payload=(payload,))

    def _forward(self, work: WorkFrame) -> WorkFrame:
        payload = memoryview(work.payload[0])
        arrays: Sequence[Arrived]
        if self._role.embeds:
            arrays = [tokens_in(decode_arrays(payload), self._vocabulary)]
        else:
            arrays = self._hidden.decode(payload)
        self._meter.lap("codec_decode")
        out = self._execution.forward(work, self._role, arrays)
        if work.quiet and self._answers_chunks:
            return work._replace(kind=FrameType.ACK, askers=(), payload=())
        if work.askers and self._role.outputs:
            self._meter.saw("token ids")
            computing = self._execution.stage.computing
            with self._meter.span("output", work.step, work.handle), computing():  # logits are still to be computed
                chosen = self._choosers.choose(work.askers, out[0])
            self._meter.lap("readback")
            return work._replace(kind=FrameType.TOKEN, askers=(), payload=encode_choices(chosen))
        with self._meter.codec:
            encoded = encode_arrays(out) if self._role.outputs else self._hidden.encode(out)
        self._meter.lap("codec_encode")
        return work._replace(kind=FrameType.ACTIVATION, payload=encoded)


def _ops(orders: Sequence[work_frames.Order]) -> list[Op]:
    return [order for order in orders if not isinstance(order, work_frames.Word)]
