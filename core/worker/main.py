"""The worker process: owns its layers and the ring's two data links, in one thread.

It loads, runs and frees in that thread, because MLX streams belong to threads. It ends when its node goes away.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path
from time import perf_counter

import mlx.core as mx

from core.errors import HandshakeError, LinkError, MaclusterError, ProtocolError, StageFailed
from core.link.arrays import decode_arrays
from core.link.channel import Frame, listen
from core.link.frames import FrameType
from core.models.catalog import fingerprint
from core.models.loading import load_slice
from core.trust.identity import open_identity
from core.trust.roster import Cluster
from core.worker.desk import Desk
from core.worker.head import Answer, refusal
from core.worker.messages import (
    Broken,
    Cancel,
    Command,
    Connect,
    Failed,
    Generate,
    Join,
    Linked,
    Listening,
    Load,
    Loaded,
    Loading,
    Prove,
    Unproved,
)
from core.worker.neighbours import Neighbours
from core.worker.pipe import Inbox, Outbox, private_pipe
from core.worker.proof import prove
from core.worker.ring import PREFILL, Ring, read_samples
from core.worker.rounds import Rounds
from core.worker.stage import Stage
from core.worker.telemetry import StageMeter

IDLE_S = 3600.0


class Worker:
    """What this process holds: an identity, a stage, a ring."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._desk = Desk(inbox)
        self._report = outbox.put
        self._stage: Stage | None = None
        self._ring: Ring | None = None
        self._request = bytes(16)

    def run(self) -> None:
        """Serve commands and frames for ever; the inbox ends the process."""
        while True:
            try:
                command = self._desk.next()
                if command is not None:
                    self._obey(command)
                elif self._ring is None or self._ring.index == 0:
                    self._wait_for_the_node()
                elif self._ring.wait(self._desk.inbox, IDLE_S):
                    self._serve(self._ring, self._ring.receive())
            except LinkError as error:
                self._break(error)

    def _wait_for_the_node(self, timeout_s: float = IDLE_S) -> None:
        """The head and an unlinked stage have nothing to do before the node speaks, but the head watches its link."""
        if self._ring is None:
            select.select([self._desk.inbox.fileno()], [], [], timeout_s)
        elif self._ring.wait(self._desk.inbox, timeout_s):
            frame = self._ring.receive()
            raise ProtocolError(f"Frame 0x{frame.header.type:02x} came to the head while no request runs.")

    def _obey(self, command: Command) -> None:
        match command:
            case Join():
                self._join(command)
            case Load():
                self._load(command)
            case Connect():
                self._connect(command)
            case Prove():
                self._prove(command)
            case Generate():
                self._generate(command)
            case Cancel():
                pass

    @property
    def _is_whole(self) -> bool:
        """Whether the links that the plan asks for are there."""
        return self._ring is not None or len(self._plan.stages) == 1

    def _join(self, command: Join) -> None:
        self._identity = open_identity(Path(command.identity_folder), command.passphrase)
        self._listener = listen(command.host)
        self._report(Listening(pid=os.getpid(), port=self._listener.getsockname()[1]))

    def _load(self, command: Load) -> None:
        self._plan, self._index = command.plan, command.index
        self._meter = StageMeter(command.index)
        try:
            self._report(self._loaded(command))
        except MaclusterError as error:
            self._report(Failed(plan_gen=command.plan.plan_gen, problem=error.problem))

    def _loaded(self, command: Load) -> Loaded:
        """Load, and tell what is held: of this the head makes sure that every layer is owned once."""
        started = perf_counter()
        directory, mine = Path(command.directory), command.plan.stages[command.index]
        embed, output = mine.start == 0, mine.device_id == command.plan.output
        layers = load_slice(
            directory,
            mine.start,
            mine.stop,
            embed=embed,
            output=output,
            on_progress=lambda done, total: self._report(Loading(done_bytes=done, total_bytes=total)),
        )
        read = fingerprint(directory)
        self._stage = Stage(layers, self._meter, command.plan.kv_bits)
        return Loaded(
            plan_gen=command.plan.plan_gen,
            weight_bytes=layers.weight_bytes,
            seconds=perf_counter() - started,
            start=layers.start,
            stop=layers.stop,
            embed=embed,
            output=output,
            fingerprint=read,
        )

    def _connect(self, command: Connect) -> None:
        if self._stage is None:
            return
        self._close()
        self._plan = command.plan
        try:
            self._ring = Ring(self._neighbours(command, self._stage), self._meter, command.key_limits)
        except LinkError:
            raise
        except MaclusterError as error:
            raise HandshakeError(error.what, error.fix) from error
        self._report(Linked(plan_gen=command.plan.plan_gen))

    def _neighbours(self, command: Connect, stage: Stage) -> Neighbours:
        return Neighbours(
            command.plan,
            self._index,
            listener=self._listener,
            next_address=(command.next_host, command.next_port),
            identity=self._identity,
            cluster=Cluster.decode(command.cluster),
            row_bytes=stage.layers.incoming_bytes_per_token,
        )

    def _prove(self, command: Prove) -> None:
        """Show that the ring computes; one that breaks meanwhile is proved when it stands again."""
        if self._stage is None or not self._is_whole or command.plan_gen != self._plan.plan_gen:
            return
        try:
            self._report(
                prove(
                    command,
                    self._plan,
                    Rounds(os.urandom(16), self._stage, self._ring, self._desk),
                    self._stage.layers.vocab_size,
                    weight_bytes=sum(s.weight_bytes for s in self._plan.stages),
                    idle=lambda: self._wait_for_the_node(0.0),
                )
            )
        except LinkError:
            raise
        except MaclusterError as error:
            self._report(Unproved(plan_gen=command.plan_gen, problem=error.problem))
        self._end_request()

    def _generate(self, command: Generate) -> None:
        if self._stage is None or not self._is_whole:
            self._report(refusal(command))
            return
        answer = Answer(command, self._stage, self._ring, self._plan.chunk, self._report, self._desk)
        broken = answer.run()
        self._desk.forget(command.request_id)
        if broken:
            raise broken

    def _serve(self, ring: Ring, frame: Frame) -> None:
        """One frame on a stage that is not the head."""
        request = frame.header.request_id
        match frame.header.type:
            case FrameType.ACTIVATION:
                self._activation(ring, frame)
            case FrameType.TELEMETRY:
                ring.send_samples(FrameType.TELEMETRY, request, read_samples(frame))
            case FrameType.SESSION_END:
                ring.send_samples(FrameType.SESSION_END, request, read_samples(frame))
                self._end_request()
            case FrameType.RESUME:
                ring.follow(request)
            case FrameType.ACK | FrameType.ERROR:
                ring.send(FrameType(frame.header.type), request, frame.header.pos, bytes(frame.body))
            case other:
                raise ProtocolError(f"Frame 0x{other:02x} does not belong on a data link.")

    def _activation(self, ring: Ring, frame: Frame) -> None:
        assert self._stage is not None
        header = frame.header
        if header.request_id != self._request:
            self._stage.begin()
            ring.begin()
            self._request = header.request_id
        try:
            out = self._stage.run(decode_arrays(frame.body), header.pos, header.rows)
        except StageFailed as error:
            peer = self._plan.stages[self._index].peer
            ring.send_problem(header.request_id, StageFailed(f"{peer}: {error.what}", error.fix).problem)
            return
        if ring.is_tail and header.flags & PREFILL:
            ring.send(FrameType.ACK, header.request_id, header.pos)
        else:
            ring.send_activation(header.request_id, header.pos, header.rows, out, header.flags)

    def _end_request(self) -> None:
        self._request = bytes(16)
        if self._stage:
            self._stage.end()

    def _break(self, error: LinkError) -> None:
        """A link failed: tell the head down the ring why, close both links, keep the layers."""
        if self._ring:
            self._ring.send_problem(self._request, error.problem)
        self._close()
        self._report(Broken(plan_gen=self._plan.plan_gen, problem=error.problem))

    def _close(self) -> None:
        if self._ring:
            self._ring.close()
        self._ring = None
        self._end_request()


def main() -> None:
    """Entry of `python -m core.worker`."""
    inbox, outbox = private_pipe()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(0.0002)
    mx.set_cache_limit(256 << 20)
    Worker(inbox, outbox).run()
