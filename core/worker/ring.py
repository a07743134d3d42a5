"""The two data links of a stage: frames out to the next stage, frames in from the one before."""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
from time import monotonic

import mlx.core as mx
import msgspec

from core.errors import LinkError, LinkTimeout, MaclusterError, Problem, ProtocolError, error_from
from core.events import Plan
from core.link.arrays import encode_arrays
from core.link.channel import Frame, Receiver, Sender, accept, dial
from core.link.frames import FrameType
from core.text import clean_text
from core.trust.identity import Identity, parse_text_id
from core.trust.roster import Cluster
from core.worker.desk import Desk
from core.worker.messages import StageSample
from core.worker.pipe import Inbox
from core.worker.telemetry import StageMeter

PREFILL = 0b10
DIAL_S = 10.0
FRAME_S = 5.0
TEXT_LIMIT = 500

_samples = msgspec.msgpack.Decoder(list[StageSample])
_problem = msgspec.msgpack.Decoder(Problem)


def plan_digest(plan: Plan) -> bytes:
    """What both ends of a data link compare before the link is ready: SHA-256 over the whole plan."""
    return hashlib.sha256(b"macluster/1 plan\0" + msgspec.json.encode(plan)).digest()


class Ring:
    """The links of stage `index` in `plan`. Every frame carries the request, the position and the plan generation."""

    def __init__(self, plan: Plan, index: int, sender: Sender, receiver: Receiver, meter: StageMeter) -> None:
        self.plan = plan
        self.index = index
        self._stage = plan.stages[index]
        self._before = plan.stages[index - 1]
        self._sender = sender
        self._receiver = receiver
        self._meter = meter

    @property
    def is_tail(self) -> bool:
        """Whether the next stage is the head."""
        return self.index == len(self.plan.stages) - 1

    def begin(self) -> None:
        """Count from zero for a new request."""
        self._meter.start(self._sender, self._receiver)

    def sample(self) -> StageSample:
        """The counters of this stage for the current request."""
        return self._meter.sample(self._sender, self._receiver)

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


def join_ring(
    plan: Plan,
    index: int,
    *,
    listener: socket.socket,
    next_address: tuple[str, int],
    identity: Identity,
    cluster: Cluster,
    meter: StageMeter,
    row_bytes: int,
) -> Ring:
    """Link to both neighbours. The head dials first and everyone else accepts first, so the links close one by one
    round the ring and no two stages wait for each other.

    Raises LinkError or its kinds.
    """
    before = parse_text_id(plan.stages[index - 1].device_id)
    after = parse_text_id(plan.stages[(index + 1) % len(plan.stages)].device_id)
    binding = plan_digest(plan)

    def dial_next() -> Sender:
        host, port = next_address
        return dial(host, port, identity=identity, cluster=cluster, peer_id=after, binding=binding, timeout_s=DIAL_S)

    def accept_previous() -> Receiver:
        return accept(listener, identity=identity, cluster=cluster, peer_id=before, binding=binding, timeout_s=DIAL_S)

    if index == 0:
        sender = dial_next()
        try:
            receiver = accept_previous()
        except MaclusterError:
            sender.close()
            raise
    else:
        receiver = accept_previous()
        try:
            sender = dial_next()
        except MaclusterError:
            receiver.close()
            raise
    receiver.row_bytes = row_bytes
    return Ring(plan, index, sender, receiver, meter)
