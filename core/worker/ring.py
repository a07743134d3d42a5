"""The two data links of a stage: frames out to the next stage, frames in from the one before."""

from __future__ import annotations

import contextlib
import select
from time import monotonic
from typing import NoReturn

import mlx.core as mx
import msgspec

from core.errors import LinkError, LinkLost, LinkTimeout, Problem, ProtocolError, error_from
from core.link.arrays import encode_arrays
from core.link.channel import Alarm, Frame
from core.link.frames import FrameType
from core.link.wear import KeyUse
from core.text import clean_text
from core.worker.desk import Desk
from core.worker.messages import StageSample
from core.worker.neighbours import DIAL_S, Neighbours
from core.worker.pipe import Inbox
from core.worker.telemetry import StageMeter

PREFILL = 0b10
FRAME_S = 5.0
TEXT_LIMIT = 500

_samples = msgspec.msgpack.Decoder(list[StageSample])
_problem = msgspec.msgpack.Decoder(Problem)


class Ring:
    """The links of a stage to its neighbours. Every frame carries the request, the position and the plan generation.

    The head gives every link a new key once one of them reached `limits` (security.md §3): `renew_worn` sends RESUME
    round the ring, each stage passes it on and then links anew, as when the ring was made, with `follow`.
    """

    def __init__(self, neighbours: Neighbours, meter: StageMeter, limits: KeyUse) -> None:
        """Link to the neighbours. Raises LinkError or its kinds."""
        self.plan = plan = neighbours.plan
        self.index = neighbours.index
        self._stage = plan.stages[self.index]
        self._before = plan.stages[self.index - 1]
        self._neighbours = neighbours
        self._meter = meter
        self._limits = limits
        self._told_worn = False
        self._renewals = 0
        self._sender, self._receiver = neighbours.link()

    @property
    def is_tail(self) -> bool:
        """Whether the next stage is the head."""
        return self.index == len(self.plan.stages) - 1

    def begin(self) -> None:
        """Count from zero for a new request."""
        self._meter.start(self._sender, self._receiver)

    def sample(self) -> StageSample:
        """The counters of this stage for the current request."""
        return self._meter.sample(self._sender, self._receiver, self._renewals)

    def heed(self, samples: list[StageSample]) -> None:
        """Head: what the stages tell of their keys counts before the next round."""
        self._told_worn = any(s.key.reaches(self._limits) for s in samples)

    def renew_worn(self, request: bytes, desk: Desk) -> None:
        """Head, while no other frame is on its way: new keys for every link, if one of them is worn.

        Raises LinkError or its kinds, and the error that an ERROR frame carries; the ring is broken then.
        """
        uses = (self._sender.key.use, self._receiver.key.use)
        if self._told_worn or any(use.reaches(self._limits) for use in uses):
            self.send(FrameType.RESUME, request)
            self.expect(FrameType.RESUME, request, 0, desk, DIAL_S)
            self._link_anew()

    def follow(self, request: bytes) -> None:
        """Any other stage: the head gives all links new keys. Raises LinkError or its kinds."""
        self.send(FrameType.RESUME, request)
        self._link_anew()

    def _link_anew(self) -> None:
        """The links that stand are closed when the new ones are ready; until then they tell when the ring breaks."""
        sender, receiver = self._neighbours.link(Alarm(self._receiver.fileno(), self._break_off))
        sender.stats, receiver.stats = self._sender.stats, self._receiver.stats
        self.close()
        self._sender, self._receiver = sender, receiver
        self._told_worn = False
        self._renewals += 1

    def _break_off(self) -> NoReturn:
        """Nobody speaks on the old links but to say that a stage cannot link anew."""
        frame = self.receive()
        if frame.header.type != FrameType.ERROR:
            raise ProtocolError(
                f"{self._before.peer} sent frame 0x{frame.header.type:02x} while the ring was relinked."
            )
        problem = _read_problem(frame)
        error = error_from(problem)
        raise error if isinstance(error, LinkError) else LinkLost(problem.what, problem.fix)

    def send_activation(self, request: bytes, position: int, rows: int, arrays: list[mx.array], flags: int) -> None:
        """Boundary arrays of `rows` positions, the first of which is `position`."""
        with self._meter.codec:
            parts = encode_arrays(arrays)
        self._sender.send(
            FrameType.ACTIVATION,
            request_id=request,
            pos=position,
            rows=rows,
            layers=(self._stage.start, self._stage.stop),
            plan_gen=self.plan.plan_gen & 0xFFFF,
            flags=flags,
            parts=parts,
        )

    def send(self, kind: FrameType, request: bytes, position: int = 0, body: bytes = b"") -> None:
        """A frame without a tensor."""
        self._sender.send(
            kind,
            request_id=request,
            pos=position,
            plan_gen=self.plan.plan_gen & 0xFFFF,
            parts=[body] if body else (),
        )

    def send_samples(self, kind: FrameType, request: bytes, before: list[StageSample]) -> None:
        """Telemetry or the end of a request, with this stage's sample added."""
        self.send(kind, request, body=msgspec.msgpack.encode([*before, self.sample()]))

    def send_problem(self, request: bytes, problem: Problem) -> None:
        """Tell the head, round the ring, why its answer ends. The link may be gone too: then its end says it."""
        with contextlib.suppress(LinkError):
            self.send(FrameType.ERROR, request, body=msgspec.msgpack.encode(problem))

    def wait(self, inbox: Inbox, timeout_s: float | None) -> bool:
        """Until a frame begins to arrive (True), or the node has something to say or the time is up (False)."""
        if self._receiver.pending():
            return True
        with self._meter.wait:
            ready, _, _ = select.select([self._receiver.fileno(), inbox.fileno()], [], [], timeout_s)
        return self._receiver.fileno() in ready

    def receive(self) -> Frame:
        """The frame that is arriving, checked against the plan. Raises LinkError or its kinds."""
        frame = self._receiver.recv(FRAME_S)
        header = frame.header
        if header.plan_gen != self.plan.plan_gen & 0xFFFF:
            raise ProtocolError(f"A frame of plan {header.plan_gen} came while plan {self.plan.plan_gen} runs.")
        if header.type == FrameType.ACTIVATION and header.layers != (self._before.start, self._before.stop):
            raise ProtocolError(f"An activation of layers {header.layers} came from {self._before.peer}.")
        return frame

    def expect(self, kind: FrameType, request: bytes, position: int, desk: Desk, timeout_s: float) -> Frame:
        """The next frame of this request, which must be of `kind` at `position`.

        Raises LinkTimeout after `timeout_s` seconds, and the error that an ERROR frame carries.
        """
        deadline = monotonic() + timeout_s
        while not self.wait(desk.inbox, max(0.0, deadline - monotonic())):
            desk.sort()
            if monotonic() >= deadline:
                raise LinkTimeout(f"{self._before.peer} did not answer for {timeout_s:.0f} s.")
        frame = self.receive()
        if frame.header.type == FrameType.ERROR:
            raise error_from(_read_problem(frame))
        if (frame.header.type, frame.header.request_id, frame.header.pos) != (kind, request, position):
            raise ProtocolError(f"{self._before.peer} sent frame 0x{frame.header.type:02x} out of turn.")
        return frame

    def close(self) -> None:
        """Close both links."""
        self._sender.close()
        self._receiver.close()


def _read_problem(frame: Frame) -> Problem:
    """Why another stage ends the answer; its text comes from another Mac and is cleaned here."""
    try:
        told = _problem.decode(frame.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError("An error frame does not decode.") from error
    return Problem(kind=told.kind, what=clean_text(told.what)[:TEXT_LIMIT], fix=clean_text(told.fix)[:TEXT_LIMIT])


def read_samples(frame: Frame) -> list[StageSample]:
    """The samples in a telemetry or end frame."""
    try:
        return _samples.decode(frame.body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError("A telemetry frame does not decode.") from error
