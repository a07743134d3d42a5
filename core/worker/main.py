"""The worker process: owns its layers and the ring's two data links, in one thread.

It loads, runs and frees in that thread, because MLX streams belong to threads. It ends with its node.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic, perf_counter, sleep
from typing import NamedTuple

import mlx.core as mx

from core import errors
from core.engine.constraints import Grammars
from core.engine.drafting import Drafter
from core.engine.requests import Request
from core.events import Plan
from core.link.data_plane import listen
from core.models.files.model_folder import read_folder
from core.models.metal import GpuFault, fault_of, obey_device, wire_weights, working_set_bytes
from core.models.slicing.boundary import bytes_per_token
from core.models.slicing.loading import load_slice
from core.models.slicing.ranks import Rank
from core.models.slicing.slots import Slice
from core.models.text.vocabulary import read_vocabulary
from core.plan.stage_roles import role_of
from core.plan.topology import has_ranks, stages_in_turn
from core.requests.trace import MOST_TURNS, PhaseTurn
from core.trust.identity import Identity, open_identity
from core.version import compute_hash, package_version
from core.worker import messages
from core.worker.answer_row import untouched
from core.worker.draft_model import load_draft
from core.worker.follower import Follower
from core.worker.group import open_group
from core.worker.group_init import OpenGroup
from core.worker.head import Head
from core.worker.neighbours import Neighbours
from core.worker.pipe import Inbox, Outbox
from core.worker.pipeline import Pipeline
from core.worker.proof import prove
from core.worker.reference_model import Reference, reference_for
from core.worker.ring import Ring
from core.worker.ring_forward import LOGIT_BYTES
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter

IDLE_S = 3600.0
READ_S = 8.0  # longer than a chunk takes; three times this is less than the limit after which a ring counts as hung
GIVES_WAY = 5
LEAVE_S = 0.3  # a node that releases a plan ends its worker itself


class Joined(NamedTuple):
    """The state since Join."""

    identity: Identity
    listener: socket.socket  # where the neighbour in the ring finds it
    wires: bool


@dataclass(frozen=True, slots=True)
class DrivenStage:
    """The state since Load: the layers and their driver."""

    plan: Plan  # the newest, from Load or Connect
    index: int
    stage: LoadedStage
    fingerprint: str  # of the model's files
    driver: Head | Follower
    reference: Reference  # of the ring's logits, on the head

    @property
    def head(self) -> Head | None:
        return self.driver if isinstance(self.driver, Head) else None


class Worker:
    """The state of this process, as acquired: an identity, a stage, a ring, and for ranks a group."""

    def __init__(self, inbox: Inbox, outbox: Outbox) -> None:
        self._inbox = inbox
        self._report = outbox.put
        self._joined: Joined | None = None
        self._held: DrivenStage | None = None
        self._ring: Ring | None = None
        self._group: OpenGroup | None = None
        self._parting = Lock()

    @property
    def _head(self) -> Head | None:
        return self._held.head if self._held else None

    def run(self) -> None:
        """Serve commands, requests and frames until the GPU fails; the inbox or a broken group ends the process."""
        try:
            self._serve()
        except (GpuFault, RuntimeError) as error:
            fault = error if isinstance(error, GpuFault) else fault_of(error)
            if fault is None:
                raise
            self._report(messages.GpuFailed(why=fault.why, is_memory=fault.is_memory))

    def _serve(self) -> None:
        while True:
            try:
                command = self._inbox.take()
                if command is not None:
                    self._obey(command)
                elif (head := self._head) and head.pipeline.is_linked and head.is_busy:
                    head.turn(self._inbox)
                else:
                    self._wait(IDLE_S)
            except errors.LinkError as error:
                self._break(error)

    def _wait(self, timeout_s: float) -> None:
        """Wait for the node, and on a ring for frames, until the last step is due for report."""
        held = self._held
        steps = held.stage.meter.steps if held else None
        if steps and steps.due is not None:
            timeout_s = min(timeout_s, max(0.0, steps.due - monotonic()))
        if self._ring is None:
            select.select([self._inbox.fileno()], [], [], timeout_s)
        elif self._ring.wait((self._inbox.fileno(),), timeout_s):
            if held and isinstance(held.driver, Follower):
                held.driver.serve(self._ring, self._ring.receive())
            elif held and held.head:
                held.head.pipeline.take()
        if steps:
            steps.report(monotonic())

    def _obey(self, command: messages.Command) -> None:
        match command:
            case messages.Join():
                self._join(command)
            case messages.Load():
                self._load(command)
            case messages.ConnectPrefill():
                self._connect_prefill(command)
            case messages.Connect():
                self._connect(command)
            case messages.Prove():
                self._prove(command.plan_gen)
            case messages.Trace():
                meter = self._held.stage.meter if self._held else None
                self._report(messages.Traced(spans=meter.take_spans(), seen=meter.seen) if meter else messages.Traced())
            case messages.TracePhases(is_on=is_on):
                self._trace_phases(is_on)
            case _ if self._head:
                _obey_on_head(self._head, command)
            case Request():
                no_model = errors.LinkLost("No model is loaded in this worker.").problem
                self._report(untouched(command, "error", no_model))
            case messages.SaveSession() | messages.LoadSession():
                not_loaded = errors.NotLoaded("No model is loaded in this worker.").problem
                self._report(messages.SessionFailed(problem=not_loaded))
            case _:
                pass

    def _trace_phases(self, is_on: bool) -> None:
        turns: list[PhaseTurn] = []
        if self._held:
            turns = self._held.stage.meter.trace(is_on=is_on, most=MOST_TURNS)
        self._report(messages.TracedPhases(turns=tuple(turns)))

    def _join(self, command: messages.Join) -> None:
        identity = open_identity(Path(command.identity_folder), command.passphrase)
        self._joined = Joined(identity, listen(command.host), command.wires)
        port = self._joined.listener.getsockname()[1]
        self._report(
            messages.Listening(
                pid=os.getpid(), port=port, working_set_bytes=working_set_bytes(), compute=compute_hash()
            )
        )

    def _load(self, command: messages.Load) -> None:
        try:
            self._report(self._loaded(command))
        except errors.MaclusterError as error:
            self._report(messages.Failed(plan_gen=command.plan.plan_gen, problem=error.problem))

    def _loaded(self, command: messages.Load) -> messages.Loaded:
        """Load, and report the layers: the head checks their owners. Only weights that are needed again are kept."""
        if self._group:
            what = "This worker was a rank of another plan."
            raise errors.StageFailed(what, "Load the model again: a new worker starts.")
        started = perf_counter()
        directory, plan = Path(command.directory), command.plan
        mine = plan.stages[command.index]
        owned = role_of(plan, command.index)

        def on_progress(done: int, total: int) -> None:
            self._report(messages.Loading(plan_gen=plan.plan_gen, done_bytes=done, total_bytes=total))

        on_progress(0, mine.weight_bytes)
        folder = read_folder(directory)
        held = self._let_go(folder.fingerprint)
        reference = reference_for(command, folder, held, on_progress) if command.references else Reference()
        layers = load_slice(
            folder,
            mine.start,
            mine.stop,
            embed=owned.embeds,
            output=owned.outputs,
            rank=Rank(command.index, len(plan.stages)) if has_ranks(plan) else None,
            on_progress=on_progress,
            held=held,
        )
        if self._joined and self._joined.wires:
            wire_weights()
        meter = StageMeter(command.index, lambda step: self._report(messages.Worked(step=step)))
        stage = LoadedStage(layers, meter, plan.kv_bits)
        driver = self._driver(command, stage)
        self._held = DrivenStage(plan, command.index, stage, folder.fingerprint, driver, reference)
        return messages.Loaded(
            plan_gen=plan.plan_gen,
            weight_bytes=layers.weight_bytes,
            seconds=perf_counter() - started,
            start=layers.start,
            stop=layers.stop,
            embed=owned.embeds,
            output=owned.outputs,
            fingerprint=folder.fingerprint,
            mlx_lm=package_version("mlx-lm"),
        )

    def _let_go(self, wanted: str) -> dict[str, mx.array]:
        self._unlink(errors.LinkLost("Another plan replaces this one.").problem)
        before, self._held = self._held, None
        if before is None:
            return {}
        if before.head:
            before.head.reading.unlink()
        weights = dict(before.stage.layers.weights) if before.fingerprint == wanted else {}
        before.stage.layers.weights.clear()
        del before
        gc.collect()  # caches and graphs are in reference cycles
        return weights

    def _driver(self, command: messages.Load, stage: LoadedStage) -> Head | Follower:
        plan, size = command.plan, stage.layers.vocab_size
        grammars = Grammars(partial(read_vocabulary, Path(command.directory), size), size)
        if command.index > 0:
            return Follower(stage, plan, command.index, grammars)
        pipeline = Pipeline(stage, plan, command.try_s)
        drafter = None
        if command.drafter:
            model = load_draft(Path(command.drafter), size)
            drafter = Drafter(model, command.draft, stages_in_turn(plan), perf_counter)
        return Head(plan, pipeline, self._report, grammars, lanes=command.lanes, draft=command.draft, drafter=drafter)

    def _connect(self, command: messages.Connect) -> None:
        if self._joined is None or self._held is None:
            return
        self._unlink(errors.LinkLost("The ring is being linked again.").problem)
        self._held = held = replace(self._held, plan=command.plan)
        try:
            neighbours = _neighbours(command, self._joined, held)
            self._ring = Ring(neighbours, held.stage.meter, command.key_limits)
            if held.stage.layers.rank:
                self._join_group(held, self._ring)
            if held.head and (problem := held.head.pipeline.link(self._ring)):
                held.head.fail_all(problem)
        except errors.LinkError:
            raise
        except errors.StageFailed as error:
            self._report(messages.Failed(plan_gen=command.plan.plan_gen, problem=error.problem))
            return
        except errors.MaclusterError as error:
            raise errors.HandshakeError(error.what, error.fix) from error
        self._report(messages.Linked(plan_gen=command.plan.plan_gen, way=neighbours.way))

    def _connect_prefill(self, command: messages.ConnectPrefill) -> None:
        held, gen = self._held, command.plan.plan_gen
        if self._joined is None or held is None or held.head is None:
            return
        stage = LoadedStage(held.stage.layers, StageMeter(0))  # nothing runs in it, and its figures are separate
        other = Pipeline(stage, command.plan, READ_S)
        try:
            neighbours = _neighbours(command, self._joined, replace(held, index=0))
            other.link(Ring(neighbours, stage.meter, command.key_limits))
        except errors.MaclusterError as error:
            self._report(messages.PrefillBroken(plan_gen=gen, problem=error.problem))
            return
        held.head.reading.link(other, gen)
        self._report(messages.PrefillLinked(plan_gen=gen))

    def _join_group(self, held: DrivenStage, ring: Ring) -> None:
        if self._group:
            raise errors.GroupFailed("The links of a rank broke, and with them its group.", "It is loaded again.")
        assert held.plan.parallelism
        self._group = open_group(held.plan.parallelism.group, ring, self._lose_group)
        held.stage.layers.join(self._group.group, shares_tokens=not self._group.needs_python)

    def _lose_group(self, error: errors.LinkError) -> None:
        """End the process after losing a rank, from another thread: the main one may hang in MLX. Later calls wait."""
        self._parting.acquire()
        sleep(LEAVE_S)
        self._report(messages.GroupBroken(problem=error.problem))
        os._exit(1)

    def _prove(self, plan_gen: int) -> None:
        """Prove that the ring computes; if it breaks, the proof runs again on the next ring."""
        held = self._held
        if held is None or held.head is None:
            return
        plan, head, pipeline = held.plan, held.head, held.head.pipeline
        if not pipeline.is_linked or plan_gen != plan.plan_gen:
            return

        def goes_on(tokens: int, seconds: float) -> None:
            self._report(messages.Proving())
            if tokens:
                head.telemetry.took(tokens, seconds)

        try:
            self._report(prove(plan, pipeline, held.reference, goes_on))
        except errors.LinkError:
            pipeline.begin_anew()  # half a proof has no value
            raise
        except errors.MaclusterError as error:
            self._report(messages.Unproved(plan_gen=plan_gen, problem=error.problem))

    def _break(self, error: errors.LinkError) -> None:
        """Report a link error round the ring, close both links, keep layers and caches. A rank ends instead."""
        if self._held is None:  # it never joined: without a place in a ring this process is useless
            raise error
        self._unlink(error.problem)
        head = self._held.head
        if head:
            head.flush()
        if isinstance(error, errors.GroupFailed) and self._group is None:
            self._report(messages.Failed(plan_gen=self._held.plan.plan_gen, problem=error.problem))
        if isinstance(error, errors.GroupFailed) or self._group:
            self._lose_group(error)
        if head and isinstance(error, errors.NoAnswer):
            head.fail_all(error.problem)
            head.pipeline.begin_anew()
        self._report(messages.LinkBroken(plan_gen=self._held.plan.plan_gen, problem=error.problem))

    def _unlink(self, problem: errors.Problem) -> None:
        ring, self._ring = self._ring, None
        if head := self._head:
            head.pipeline.unlink()
        if ring:
            ring.send_break(problem)
            ring.close()


def _obey_on_head(head: Head, command: messages.Command) -> None:
    """Handle a command that only a head gets; others are ignored."""
    match command:
        case Request():
            head.submit(command)
        case messages.Cancel():
            head.cancel(command.request_id)
        case messages.SaveSession():
            head.sessions.save(command)
        case messages.LoadSession():
            head.sessions.load(command)
        case messages.StopSession():
            head.sessions.stop()
        case messages.MirrorSpans():
            head.mirroring.take(command)
        case messages.StopMirror():
            head.mirroring.stop(command.request_id)
        case messages.UnlinkPrefill():
            head.reading.unlink()
        case _:
            pass


def _neighbours(command: messages.Connect, joined: Joined, held: DrivenStage) -> Neighbours:
    most = row_bytes(command.plan, held.index, held.stage.layers)
    return Neighbours(command, held.index, joined.listener, joined.identity, row_bytes=most)


def row_bytes(plan: Plan, index: int, layers: Slice) -> int:
    """Most bytes of one incoming position: a hidden state, or logits if the head does not have the output."""
    if has_ranks(plan):
        return 0  # token ids only
    hidden = bytes_per_token(plan.wire, layers.incoming)
    if index == 0 and not role_of(plan, 0).outputs:
        return max(hidden, LOGIT_BYTES * layers.vocab_size)
    return hidden


def main(inbox: Inbox, outbox: Outbox) -> None:
    """Serve the node at the other end of the pipe until the GPU fails; the inbox ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(0.0002)
    compute_hash()  # an update may change the files while this runs
    obey_device()
    if mx.default_device() == mx.cpu:  # CPU compute takes all cores; a node and its tokenizer need little
        os.nice(GIVES_WAY)
    mx.set_cache_limit(256 << 20)
    Worker(inbox, outbox).run()
    os._exit(1)  # MLX would wait for a failed GPU, which may never finish
