"""The head's end of the ring: puts work on it without waiting, takes the answers as they come, sends again what is not
answered.

The head is the first stage: work goes through its own layers before it leaves, in the order of its steps.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

import mlx.core as mx

from core.engine.steps import Outstanding
from core.engine.work import Op
from core.errors import LinkTimeout, NoAnswer, Problem, ProtocolError, StageFailed
from core.link.arrays import decode_arrays, encode_arrays
from core.link.channel import Frame
from core.link.frames import FrameType
from core.settings import TRIES
from core.worker.messages import StageSample
from core.worker.neighbours import DIAL_S
from core.worker.pipe import Inbox
from core.worker.ring import Ring, read_break, read_samples
from core.worker.stage import Stage
from core.worker.work_frames import (
    NO_REQUEST,
    NO_STEP,
    WORK_TYPES,
    Standing,
    WorkFrame,
    decode_problem,
    decode_standing,
    encode_ops,
    encode_standing,
    read_work,
)


class Answer(NamedTuple):
    """What came of `work`: logits where they were wanted, `problem` where a stage could not do it."""

    work: Any
    logits: mx.array | None = None
    problem: Problem | None = None


class _Sent(NamedTuple):
    """Work that is on the ring: its frame but for the step, and what it is to whoever put it there."""

    frame: WorkFrame
    work: Any
    every: bool


class Pipeline:
    """One for each loaded plan. Rings come and go with their links; handles, and work that is on its way, stay.

    With a single stage there is no ring, and every answer is there at once. `peers`: the other stages, in ring order.
    What is not answered within `try_s` seconds is sent again. `trip_s`: what an empty frame takes round the ring.
    """

    def __init__(self, stage: Stage, peers: Sequence[str], try_s: float) -> None:
        self.stage = stage
        self._peers = peers
        self._ring: Ring | None = None
        self._out: Outstanding[_Sent] = Outstanding(TRIES, try_s)
        self._ready: deque[Answer] = deque()
        self._run = os.urandom(16)
        self._asked: StageSample | None = None  # what this stage had to tell when it asked the others
        self._samples: list[StageSample] | None = None
        self.trip_s = 0.0

    @property
    def is_linked(self) -> bool:
        """Whether work can be put: the links stand, or none are needed."""
        return self._ring is not None or not self._peers

    @property
    def is_worn(self) -> bool:
        """Whether the links need new keys: no more work then, and `renew` once the ring is at rest."""
        return self._ring is not None and self._ring.is_worn

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is on its way, and no figures wait to be taken."""
        return not self._out and self._asked is None and self._samples is None

    def link(self, ring: Ring) -> Problem | None:
        """Go on over a ring whose links are new: what was on its way is sent again, and no stage does it twice.

        Where a stage no longer has what it held, everybody begins anew, and why is returned. Raises LinkError or its
        kinds; NoAnswer if new links did not help a few times.
        """
        problem = None
        lost = self._stand(ring)
        if lost and (self._out or self.stage.handles):
            names = " and ".join(ring.plan.stages[index].peer for index in lost)
            problem = StageFailed(f"{names} was started anew and has lost the answer.", "Ask again.").problem
            self.begin_anew()
            self._stand(ring)
        self._send_again(ring, self._out.resend)
        if self._asked:
            ring.send_samples([])
        self._ring = ring
        return problem

    def unlink(self) -> None:
        """The ring broke; what is on its way waits for the next one."""
        self._ring = None

    def begin_anew(self) -> None:
        """Forget every handle and all work, here, and on every stage as soon as the links are new."""
        self._run = os.urandom(16)
        self._out.clear()
        self._ready.clear()
        self.stage.reset()

    def compose(self, ops: Sequence[Op], work: Any = None) -> None:
        """Change what the handles hold, on every stage. Raises LinkError: then it goes out over the next ring."""
        if self._ring and not self.stage.handles:
            self._ring.begin()
        frame = WorkFrame(FrameType.COMPOSE, NO_STEP, payload=encode_ops(ops))
        try:
            with self.stage.meter.span("compose", self._out.next_step, frame.handle):
                self.stage.compose(ops)
        except StageFailed as error:
            self._ready.append(Answer(work, problem=error.problem))
            return
        self._put(_Sent(frame, work, False), None)

    def forward(
        self,
        handle: int,
        tokens: mx.array,
        *,
        quiet: bool = False,
        every: bool = False,
        request: bytes = NO_REQUEST,
        work: Any = None,
    ) -> None:
        """Token ids [B, L] through all layers. The answer has logits [B, V] of the last position, or [B, L, V], not yet
        evaluated, with `every`, or none if it is `quiet`. Raises LinkError: then it goes out over the next ring.
        """
        position, rows = self.stage.position(handle), tokens.size
        frame = WorkFrame(FrameType.ACTIVATION, NO_STEP, handle, request, position, rows, quiet)
        logits = None
        try:
            with self.stage.meter.span("chunk" if quiet else "step", self._out.next_step, handle):
                if self._peers:
                    boundary = self.stage.embed(handle, tokens)
                else:
                    logits = self.stage.whole(handle, tokens, every=every)
        except StageFailed as error:
            self._ready.append(Answer(work, problem=error.problem))
            return
        if self._peers:
            with self.stage.meter.codec:
                frame = frame._replace(payload=encode_arrays(boundary))
        self._put(_Sent(frame, work, every), logits)

    def take(self) -> Answer | None:
        """The next answer, if one is there. Raises LinkError or its kinds."""
        while not self._ready and self._ring and self._ring.has_frame():
            self._read(self._ring, self._ring.receive())
        return self._ready.popleft() if self._ready else None

    def wait(self, inbox: Inbox | None, until: float | None = None) -> None:
        """Until a frame comes, the node has something to say, it is `until`, or something has to be sent again."""
        times = [at for at in (until, self._out.deadline()) if at is not None]
        timeout = max(0.0, min(times) - monotonic()) if times else None
        if self._ring and not self._ring.wait(inbox, timeout):
            self._send_again(self._ring, self._out.due)

    def renew(self) -> None:
        """New keys for every link. Raises LinkError or its kinds."""
        if self._ring:
            self._ring.renew()

    @property
    def awaits_samples(self) -> bool:
        """Whether figures are on their way."""
        return self._asked is not None

    def ask_samples(self) -> bool:
        """Ask every stage for its figures; False where there is no ring, or none of it answered the last time."""
        if self._ring is None or self._asked:
            return False
        self._asked = self._ring.sample()
        self._ring.send_samples([])
        return True

    def take_samples(self) -> list[StageSample] | None:
        """The figures that were asked for, once they are here: each stage's of the moment when they were asked for."""
        samples, self._samples = self._samples, None
        return samples

    def _put(self, sent: _Sent, logits: mx.array | None) -> None:
        if not self._peers:
            self._ready.append(Answer(sent.work, logits))
            return
        step = self._out.put(sent, monotonic())
        if self._ring:
            self._ring.send_work(sent.frame._replace(step=step), self._out.base)

    def _read(self, ring: Ring, frame: Frame) -> None:
        if frame.header.type is FrameType.TELEMETRY and self._asked:
            self._samples = [self._asked, *read_samples(frame)[1:]]
            self._asked = None
            ring.heed(self._samples)
        elif frame.header.type in WORK_TYPES:
            work, _ = read_work(frame)
            if work.step == NO_STEP:
                raise read_break(frame)
            sent = self._out.answered(work.step, monotonic())
            if sent:
                self._ready.append(self._answer(sent, work))
        else:
            raise ProtocolError(f"Frame 0x{frame.header.type:02x} came to the head.")

    def _answer(self, sent: _Sent, came: WorkFrame) -> Answer:
        asked = sent.frame
        if came.kind is FrameType.ERROR:
            return Answer(sent.work, problem=decode_problem(came.payload[0]))
        kind = FrameType.ACK if asked.quiet else asked.kind
        if (came.kind, came.handle, came.position, came.rows) != (kind, asked.handle, asked.position, asked.rows):
            raise ProtocolError(f"Frame 0x{came.kind:02x} came as the answer to step {came.step}.")
        if kind is not FrameType.ACTIVATION:
            return Answer(sent.work)
        boundary = decode_arrays(memoryview(came.payload[0]))
        try:
            with self.stage.meter.span("output", came.step, asked.handle):
                return Answer(sent.work, self.stage.output(asked.handle, boundary, every=sent.every))
        except StageFailed as error:
            return Answer(sent.work, problem=error.problem)

    def _stand(self, ring: Ring) -> tuple[int, ...]:
        """The stages that do not hold what they should."""
        asked = Standing(self._run, self._out.base)
        started = monotonic()
        ring.send(FrameType.STANDING, encode_standing(asked))
        told = decode_standing(ring.expect(FrameType.STANDING, DIAL_S))
        self.trip_s = monotonic() - started
        others = range(1, len(ring.plan.stages))
        if (told.run, told.base) != (asked.run, asked.base) or not all(index in others for index in told.lost):
            raise ProtocolError("A stage answered for another run.")
        return told.lost

    def _send_again(self, ring: Ring, overdue: Callable[[float], list[tuple[int, _Sent]]]) -> None:
        try:
            steps = overdue(monotonic())
        except LinkTimeout as error:
            raise NoAnswer(f"{' or '.join(self._peers)} does not answer.") from error
        for step, sent in steps:
            ring.send_work(sent.frame._replace(step=step), self._out.base)
