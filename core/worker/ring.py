"""The two data links of a stage: frames out to the next stage, frames in from the one before."""

from __future__ import annotations

import contextlib
import select
from collections import deque
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from core.errors import LinkError, LinkLost, LinkTimeout, Problem, ProtocolError, error_from
from core.link.data_plane import Alarm, Frame
from core.link.frames import FrameType
from core.link.rekey_limits import KeyUse
from core.plan.topology import has_ranks
from core.settings import MAX_CONTROL_BODY
from core.worker import work_frames
from core.worker.messages import StageSample
from core.worker.neighbours import DIAL_S, Neighbours
from core.worker.telemetry import StageMeter
from core.worker.work_frames import NO_STEP, WorkFrame

FRAME_S: Final = 5.0
ARRIVED_LIMIT: Final = 1024
# limits of the link itself, or of the cache part in a frame
BULKY: Final = frozenset({FrameType.ACTIVATION, FrameType.KV})

_samples = msgspec.msgpack.Decoder(list[StageSample])


class Ring:
    """The links of a stage to its neighbours. Every frame has the plan generation, every work frame also its step,
    handle and position.

    The head renews every link's key once one of them reached `limits` (security.md §3): `renew` sends RESUME round the
    ring, and each stage passes it on and then relinks with `follow`.
    """

    def __init__(self, neighbours: Neighbours, meter: StageMeter, limits: KeyUse) -> None:
        self.plan = plan = neighbours.plan
        self.index = neighbours.index
        self._stage = plan.stages[self.index]
        self._before = plan.stages[self.index - 1]
        self.neighbours = neighbours
        self._meter = meter
        self.limits = limits
        self._others_need_keys = False
        self._renewals = 0
        self._are_ranks = has_ranks(plan)
        self._arrived: deque[Frame] = deque()
        self._sender, self._receiver = neighbours.link()
        self._set_up_links()

    def _set_up_links(self) -> None:
        self._sender.stats, self._receiver.stats = self._meter.sent, self._meter.received
        if self.index == 0:
            self._sender.drain_meanwhile(self._receiver.fileno(), self._drain)

    def _drain(self) -> None:
        header, body = self._receiver.recv(FRAME_S)
        self._arrived.append(Frame(header, memoryview(bytes(body))))
        if len(self._arrived) > ARRIVED_LIMIT:
            raise ProtocolError(f"{self._before.peer} sends more answers than it gets requests.")

    @property
    def needs_new_keys(self) -> bool:
        """Whether a key has reached its limit: the head lets the ring come to rest, then renews the keys."""
        uses = (self._sender.key.use, self._receiver.key.use)
        return self._others_need_keys or any(use.reaches(self.limits) for use in uses)

    def begin(self) -> None:
        self._meter.start()

    def sample(self) -> StageSample:
        return self._meter.sample(self._sender, self._receiver, self._renewals)

    def note_keys(self, samples: list[StageSample]) -> None:
        """Head: note the key use of the stages. Raises ProtocolError unless each stage sent its own sample."""
        if [sample.index for sample in samples] != list(range(len(self.plan.stages))):
            raise ProtocolError(f"{len(samples)} samples came from {len(self.plan.stages)} stages.")
        self._others_need_keys = any(s.key.reaches(self.limits) for s in samples)

    def renew(self) -> None:
        """Head, with nothing in flight: renew all keys. Raises LinkError or its kinds; the ring is broken then."""
        self.send(FrameType.RESUME)
        self.expect(FrameType.RESUME, DIAL_S)
        self._link_anew()

    def follow(self) -> None:
        """Any other stage: relink for new keys from the head. Raises LinkError or its kinds."""
        self.send(FrameType.RESUME)
        self._link_anew()

    def _link_anew(self) -> None:
        """Relink; old links are closed only when the new ones are ready, so that they can report a break."""
        sender, receiver = self.neighbours.link(Alarm(self._receiver.fileno(), self._break_off))
        self.close()
        self._sender, self._receiver = sender, receiver
        self._set_up_links()
        self._others_need_keys = False
        self._renewals += 1

    def _break_off(self) -> NoReturn:
        """Listen on the old links: a stage only uses them to report that it can't relink."""
        frame = self.receive()
        if frame.header.type != FrameType.ERROR:
            raise ProtocolError(
                f"{self._before.peer} sent frame 0x{frame.header.type:02x} while the ring was relinked."
            )
        raise read_break(frame)

    def send_work(self, work: WorkFrame, base: int) -> None:
        """Send a frame of the engine; `base` is the lowest unanswered step."""
        sealed_s = self._meter.sent.seal_s
        self._sender.send(
            work.kind,
            request_id=work.request,
            pos=work.position,
            rows=work.rows,
            layers=(self._stage.start, self._stage.stop),
            plan_gen=self.plan.plan_gen & 0xFFFF,
            flags=work.flags,
            parts=work.parts(base),
        )
        if phases := self._meter.phases:
            goes_to_ranks = self._are_ranks and work.kind in work_frames.TOKEN_TYPES
            phases.sent(self._meter.sent.seal_s - sealed_s, "allgather" if goes_to_ranks else "send_hop")

    def send(self, kind: FrameType, body: bytes = b"") -> None:
        self._sender.send(kind, plan_gen=self.plan.plan_gen & 0xFFFF, parts=[body] if body else ())

    def send_samples(self, before: Sequence[StageSample]) -> None:
        self.send(FrameType.TELEMETRY, msgspec.msgpack.encode([*before, self.sample()]))

    def send_break(self, problem: Problem) -> None:
        """Report round the ring why it breaks. If the link is gone, its end reports that."""
        with contextlib.suppress(LinkError):
            self.send_work(WorkFrame(FrameType.ERROR, NO_STEP, payload=work_frames.encode_problem(problem)), NO_STEP)

    def has_frame(self) -> bool:
        if self._arrived or self._receiver.pending():
            return True
        return bool(select.select([self._receiver.fileno()], [], [], 0)[0])

    def fileno(self) -> int:
        """For select; check `has_frame` first."""
        return self._receiver.fileno()

    def wait(self, others: Sequence[int], timeout_s: float | None) -> bool:
        """Wait until a frame starts to arrive (True), or one of `others` is readable or the time is up (False)."""
        if self._arrived or self._receiver.pending():
            return True
        with self._meter.wait:
            ready, _, _ = select.select([self.fileno(), *others], [], [], timeout_s)
        return self.fileno() in ready

    def receive(self) -> Frame:
        """The arriving frame, checked against the plan. Raises LinkError or its kinds."""
        stats = self._meter.received
        wire_s, open_s = stats.wire_s, stats.open_s
        frame = self._arrived.popleft() if self._arrived else self._receiver.recv(FRAME_S)
        if phases := self._meter.phases:
            phases.arrived(stats.wire_s - wire_s, stats.open_s - open_s)
        header = frame.header
        if header.plan_gen != self.plan.plan_gen & 0xFFFF:
            raise ProtocolError(f"A frame of plan {header.plan_gen} came while plan {self.plan.plan_gen} runs.")
        if header.type in work_frames.WORK_TYPES and header.layers != (self._before.start, self._before.stop):
            raise ProtocolError(f"Work of layers {header.layers} came from {self._before.peer}.")
        if header.type not in BULKY and len(frame.body) > MAX_CONTROL_BODY:
            raise ProtocolError(f"Frame 0x{header.type:02x} has {len(frame.body)} bytes and no tensor.")
        return frame

    def expect(self, kind: FrameType, timeout_s: float) -> Frame:
        """The next frame, of `kind`. Raises LinkTimeout after `timeout_s`, and the error in an ERROR frame."""
        if not self.wait((), timeout_s):
            raise LinkTimeout(f"{self._before.peer} did not answer for {timeout_s:.0f} s.")
        frame = self.receive()
        if frame.header.type == FrameType.ERROR:
            raise read_break(frame)
        if frame.header.type != kind:
            raise ProtocolError(f"{self._before.peer} sent frame 0x{frame.header.type:02x} out of order.")
        return frame

    def close(self) -> None:
        self._sender.close()
        self._receiver.close()


def read_break(frame: Frame) -> LinkError:
    work, _ = work_frames.read_work(frame)
    problem, _ = work_frames.decode_problem(work.payload[0])
    error = error_from(problem)
    return error if isinstance(error, LinkError) else LinkLost(problem.what, problem.fix)


def read_samples(frame: Frame) -> list[StageSample]:
    try:
        return _samples.decode(frame.body)
    except work_frames.UNREADABLE as error:
        raise ProtocolError("A telemetry frame does not decode, or has impossible times.") from error
