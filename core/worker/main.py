"""The worker process: owns its layers and the ring's two data links, in one thread.

It loads, runs and frees in that thread, because MLX streams belong to threads. It ends when its node goes away.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path
from time import monotonic, perf_counter

import mlx.core as mx

from core.engine.requests import Request
from core.errors import HandshakeError, LinkError, LinkLost, MaclusterError, NoAnswer, NotLoaded, Problem
from core.events import Plan
from core.link.channel import listen
from core.models.files.catalog import fingerprint
from core.models.slicing.loading import load_slice
from core.models.slicing.slots import Slice
from core.plan.stage_roles import role_of
from core.trust.identity import open_identity
from core.trust.roster import Cluster
from core.worker.follower import Follower
from core.worker.head import Head, untouched
from core.worker.messages import (
    Cancel,
    Command,
    Connect,
    Failed,
    Join,
    LinkBroken,
    Linked,
    Listening,
    Load,
    Loaded,
    Loading,
    LoadSession,
    Prove,
    SaveSession,
    SessionFailed,
    StopSession,
    Trace,
    Traced,
    Unproved,
    Worked,
)
from core.worker.neighbours import Neighbours
from core.worker.pipe import Inbox, Outbox
from core.worker.pipeline import Pipeline
from core.worker.proof import prove
from core.worker.ring import Ring
from core.worker.ring_forward import LOGIT_BYTES
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter

IDLE_S = 3600.0


class Worker:
    """What this process holds: an identity, a stage, a ring; and on the head the engine, elsewhere a follower."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._report = outbox.put
        self._stage: LoadedStage | None = None
        self._pipeline: Pipeline | None = None
        self._head: Head | None = None
        self._follower: Follower | None = None
        self._ring: Ring | None = None

    def run(self) -> None:
        """Serve commands, requests and frames for ever; the inbox ends the process."""
        while True:
            try:
                command = self._inbox.take()
                if command is not None:
                    self._obey(command)
                elif self._head and self._pipeline and self._pipeline.is_linked and self._head.is_busy:
                    self._head.turn(self._inbox)
                else:
                    self._wait(IDLE_S)
            except LinkError as error:
                self._break(error)

    def _wait(self, timeout_s: float) -> None:
        """For the node, and on a ring for frames: to a head that waits for nothing only repeated ones come. Not beyond
        the time when the node is to be told of the last step.
        """
        steps = self._stage.meter.steps if self._stage else None
        if steps and steps.due is not None:
            timeout_s = min(timeout_s, max(0.0, steps.due - monotonic()))
        if self._ring is None:
            select.select([self._inbox.fileno()], [], [], timeout_s)
        elif self._ring.wait(self._inbox, timeout_s):
            if self._follower:
                self._follower.serve(self._ring, self._ring.receive())
            elif self._pipeline:
                self._pipeline.take()
        if steps:
            steps.report(monotonic())

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
            case Request() if self._head:
                self._head.submit(command)
            case Request():
                no_model = LinkLost("No model is loaded in this worker.").problem
                self._report(untouched(command, "error", no_model))
            case Cancel() if self._head:
                self._head.cancel(command.request_id)
            case SaveSession() if self._head:
                self._head.sessions.save(command)
            case LoadSession() if self._head:
                self._head.sessions.load(command)
            case StopSession() if self._head:
                self._head.sessions.stop()
            case SaveSession() | LoadSession():
                self._report(SessionFailed(problem=NotLoaded("No model is loaded in this worker.").problem))
            case Trace():
                self._report(Traced(spans=self._meter.take_spans(), seen=self._meter.seen) if self._stage else Traced())
            case _:
                pass

    def _join(self, command: Join) -> None:
        self._identity = open_identity(Path(command.identity_folder), command.passphrase)
        self._listener = listen(command.host)
        self._report(Listening(pid=os.getpid(), port=self._listener.getsockname()[1]))

    def _load(self, command: Load) -> None:
        self._plan, self._index = command.plan, command.index
        self._meter = StageMeter(command.index, lambda step: self._report(Worked(step=step)))
        try:
            self._report(self._loaded(command))
        except MaclusterError as error:
            self._report(Failed(plan_gen=command.plan.plan_gen, problem=error.problem))

    def _loaded(self, command: Load) -> Loaded:
        """Load, and tell what is held: of this the head makes sure that every layer is owned once."""
        started = perf_counter()
        directory, plan = Path(command.directory), command.plan
        mine = plan.stages[command.index]
        owned = role_of(plan, command.index)
        layers = load_slice(
            directory,
            mine.start,
            mine.stop,
            embed=owned.embeds,
            output=owned.outputs,
            on_progress=lambda done, total: self._report(Loading(done_bytes=done, total_bytes=total)),
        )
        read = fingerprint(directory)
        self._stage = stage = LoadedStage(layers, self._meter, plan.kv_bits)
        if command.index == 0:
            self._pipeline = Pipeline(stage, plan, command.try_s)
            self._head = Head(plan, self._pipeline, self._report, lanes=command.lanes, draft=command.draft)
        else:
            self._follower = Follower(stage, plan, command.index)
        return Loaded(
            plan_gen=plan.plan_gen,
            weight_bytes=layers.weight_bytes,
            seconds=perf_counter() - started,
            start=layers.start,
            stop=layers.stop,
            embed=owned.embeds,
            output=owned.outputs,
            fingerprint=read,
        )

    def _connect(self, command: Connect) -> None:
        """Link anew under the next plan generation; what the caches hold, and what is on its way, stays."""
        if self._stage is None:
            return
        self._unlink(LinkLost("The ring is linked anew.").problem)
        self._plan = command.plan
        try:
            self._ring = Ring(self._neighbours(command, self._stage), self._meter, command.key_limits)
            if self._pipeline and self._head and (problem := self._pipeline.link(self._ring)):
                self._head.fail_all(problem)
        except LinkError:
            raise
        except MaclusterError as error:
            raise HandshakeError(error.what, error.fix) from error
        self._report(Linked(plan_gen=command.plan.plan_gen))

    def _neighbours(self, command: Connect, stage: LoadedStage) -> Neighbours:
        return Neighbours(
            command.plan,
            self._index,
            listener=self._listener,
            next_address=(command.next_host, command.next_port),
            identity=self._identity,
            cluster=Cluster.decode(command.cluster),
            row_bytes=row_bytes(command.plan, self._index, stage.layers),
        )

    def _prove(self, command: Prove) -> None:
        """Show that the ring computes; one that breaks meanwhile is proved when it stands again."""
        if not self._pipeline or not self._pipeline.is_linked or command.plan_gen != self._plan.plan_gen:
            return
        try:
            self._report(
                prove(
                    command,
                    self._plan,
                    self._pipeline,
                    weight_bytes=sum(s.weight_bytes for s in self._plan.stages),
                    idle=lambda: self._wait(0.0),
                )
            )
        except LinkError:
            self._pipeline.begin_anew()  # half a proof is worth nothing
            raise
        except MaclusterError as error:
            self._report(Unproved(plan_gen=command.plan_gen, problem=error.problem))

    def _break(self, error: LinkError) -> None:
        """A link failed: tell the others round the ring why, close both links, keep the layers and their caches."""
        self._unlink(error.problem)
        if self._head:
            self._head.flush()
        if isinstance(error, NoAnswer) and self._head and self._pipeline:
            self._head.fail_all(error.problem)
            self._pipeline.begin_anew()
        self._report(LinkBroken(plan_gen=self._plan.plan_gen, problem=error.problem))

    def _unlink(self, problem: Problem) -> None:
        ring, self._ring = self._ring, None
        if self._pipeline:
            self._pipeline.unlink()
        if ring:
            ring.send_break(problem)
            ring.close()


def row_bytes(plan: Plan, index: int, layers: Slice) -> int:
    """What a position may weigh that comes in: a hidden state, or to a head without the output also logits."""
    if index == 0 and not role_of(plan, 0).outputs:
        return max(layers.incoming_bytes_per_token, LOGIT_BYTES * layers.vocab_size)
    return layers.incoming_bytes_per_token


def main(inbox: Inbox, outbox: Outbox) -> None:
    """Serve the node at the other end of the pipe for ever; the inbox ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(0.0002)
    mx.set_cache_limit(256 << 20)
    Worker(inbox, outbox).run()
