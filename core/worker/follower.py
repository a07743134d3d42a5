"""What a stage that is not the head does with the frames that come: its layers, once for each step, and on they go."""

from __future__ import annotations

from typing import Final

from core.engine.rows import sources, target, used_up
from core.engine.steps import Replies
from core.engine.work import Drop, Op
from core.errors import LinkError, MaclusterError, Problem, ProtocolError, StageFailed
from core.link.arrays import decode_arrays, encode_arrays
from core.link.channel import Frame
from core.link.frames import FrameType
from core.settings import MAX_LANE_ROWS
from core.worker.ring import Ring, read_samples
from core.worker.stage import Stage
from core.worker.work_frames import (
    NO_STEP,
    Standing,
    WorkFrame,
    decode_ops,
    decode_standing,
    encode_problem,
    encode_standing,
    read_work,
)

NO_RUN: Final = b""
# far beyond what any head needs: bounds on what a hostile one makes this Mac keep
STEPS_LIMIT: Final = 1024
HANDLES_LIMIT: Final = 16 * MAX_LANE_ROWS


class Follower:
    """Outlives its ring: caches and replies stay when the links are made anew, so that the head can send again what
    was on its way. Whatever a stage could not do taints the handle; the work behind it is answered alike.
    """

    def __init__(self, stage: Stage, peer: str) -> None:
        self._stage, self._meter, self._peer = stage, stage.meter, peer
        self._replies: Replies[WorkFrame] = Replies()
        self._tainted: dict[int, Problem] = {}
        self._run = NO_RUN

    def serve(self, ring: Ring, frame: Frame) -> None:
        """One frame. Raises LinkError or its kinds: the ring is broken then."""
        match frame.header.type:
            case FrameType.ACTIVATION | FrameType.COMPOSE | FrameType.ERROR:
                self._work(ring, *read_work(frame))
            case FrameType.TELEMETRY:
                ring.send_samples(read_samples(frame))
            case FrameType.STANDING:
                ring.send(FrameType.STANDING, encode_standing(self._stand(ring, decode_standing(frame))))
            case FrameType.RESUME:
                ring.follow()
            case other:
                raise ProtocolError(f"Frame 0x{other:02x} does not belong on a data link.")

    def _stand(self, ring: Ring, asked: Standing) -> Standing:
        if asked.run == self._run and self._replies.last >= asked.base - 1:
            return asked
        self._run = asked.run
        self._stage.reset()
        self._tainted.clear()
        self._replies.restart(asked.base)
        return Standing(asked.run, asked.base, (*asked.lost, ring.index))

    def _work(self, ring: Ring, work: WorkFrame, base: int) -> None:
        if work.step == NO_STEP:
            ring.send_work(work, NO_STEP)
        elif work.step - base > STEPS_LIMIT:
            raise ProtocolError(f"{work.step - base} steps are out: no head waits for so many.")
        elif self._replies.judge(work.step, base) == "repeat":
            ring.send_work(self._replies.reply(work.step), base)
        else:
            reply = self._answer(ring, work)
            self._replies.keep(work.step, reply, base)
            ring.send_work(reply, base)

    def _answer(self, ring: Ring, work: WorkFrame) -> WorkFrame:
        """What goes on to the next stage."""
        try:
            match work.kind:
                case FrameType.COMPOSE:
                    return self._compose(ring, work)
                case FrameType.ACTIVATION:
                    return self._forward(ring, work)
                case _:
                    return work._replace(payload=(bytes(work.payload[0]),))
        except LinkError:
            raise
        except MaclusterError as error:
            problem = StageFailed(f"{self._peer}: {error.what}", error.fix).problem
            self._taint(work, problem)
            return WorkFrame(FrameType.ERROR, work.step, work.handle, work.request, payload=encode_problem(problem))

    def _compose(self, ring: Ring, work: WorkFrame) -> WorkFrame:
        ops = decode_ops(work.payload[0])
        if self._stage.handles + len(self._tainted) + len(ops) > HANDLES_LIMIT:
            raise ProtocolError(f"{len(ops)} operations came where {self._stage.handles} handles are held: too many.")
        if not self._stage.handles:
            ring.begin()
        with self._meter.span("compose", work.step, work.handle):
            self._stage.compose([sound for op in ops for sound in self._sound(op)])
        return work._replace(payload=(bytes(work.payload[0]),))

    def _forward(self, ring: Ring, work: WorkFrame) -> WorkFrame:
        if problem := self._tainted.get(work.handle):
            return WorkFrame(FrameType.ERROR, work.step, work.handle, work.request, payload=encode_problem(problem))
        boundary = decode_arrays(memoryview(work.payload[0]))
        with self._meter.span("chunk" if work.quiet else "step", work.step, work.handle):
            out = self._stage.run(work.handle, boundary, work.position)
        if ring.is_tail and work.quiet:
            return work._replace(kind=FrameType.ACK, payload=())
        with self._meter.codec:
            return work._replace(payload=encode_arrays(out))

    def _taint(self, work: WorkFrame, problem: Problem) -> None:
        handles = {work.handle}
        if work.kind is FrameType.COMPOSE:
            handles = {target(op) for op in decode_ops(work.payload[0]) if not isinstance(op, Drop)}
        for handle in handles:
            self._tainted[handle] = problem

    def _sound(self, op: Op) -> list[Op]:
        """`op`, or where it would build on a tainted handle: what is used up by it goes, and the rest is tainted."""
        if isinstance(op, Drop):
            self._tainted.pop(op.handle, None)
            return [op]
        bad = [self._tainted[handle] for handle in sources(op) if handle in self._tainted]
        if not bad:
            return [op]
        gone = [handle for handle in used_up(op) if handle != target(op)]
        for handle in gone:
            self._tainted.pop(handle, None)
        self._tainted[target(op)] = bad[0]
        return [Drop(handle) for handle in gone]
