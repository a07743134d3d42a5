"""The worker of a Mac: a process that loads, links and computes as `core.worker` does, one step after the other.

It uses the engine's scheduler and step rules over the stages of `tests.support.simulated`, one for each layer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from core.engine.requests import Request
from core.engine.ring_work import Compose, Restore
from core.errors import CachesLost, HandshakeError, LinkError, LinkLost, LinkTimeout, NoAnswer, NotLoaded, StageFailed
from core.events import Plan
from core.plan.stage_roles import role_of
from core.version import compute_hash
from core.worker.answer_row import untouched
from core.worker.messages import (
    Cancel,
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
    MirrorSpans,
    Prove,
    Proved,
    Report,
    SaveSession,
    SessionFailed,
    StopMirror,
    Token,
)
from core.worker.neighbours import DIAL_S
from tests.simulator.data_link import Link
from tests.simulator.disk import Disk
from tests.simulator.engine import Engine
from tests.simulator.loop import Process
from tests.simulator.network import Network
from tests.simulator.program import NUMBERS, Program
from tests.simulator.sessions import Moves
from tests.support.simulated import Frame, Ring, caches_of


class Worker:
    """One worker process, from its start to its end."""

    def __init__(self, device_id: str, node: Process, network: Network, random: Random, load_s: float) -> None:
        self.device_id, self._network, self._random, self._load_s = device_id, network, random, load_s
        self.process = Process(network.loop, f"{device_id[:2]} worker")
        self.program = Program(node, self)
        self.port = next(NUMBERS) % 50_000 + 7000
        self.stutters: Random | None = None  # dice: some messages are sent twice
        self.runs_out_of_memory: Callable[[], bool] = lambda: False  # asked at each load
        self.exit_s = random.choice((0.001, 0.05, 0.3, 1.0))
        self._commands: deque[Any] = deque()
        self._phase = "idle"
        self._patience: asyncio.TimerHandle | None = None
        self._backlog: list[Link] = []
        self._early: list[Any] = []
        self._sender: Link | None = None
        self._receiver: Link | None = None
        self._plan: Plan | None = None
        self._index = 0
        self._generations: set[int] = set()
        self._engine: Engine | None = None
        self._ring = Ring(1, 1, 1.0)
        self._run = 0
        self._resend: asyncio.TimerHandle | None = None
        self.disk = Disk()
        self._moves: Moves | None = None

    def hear(self, command: Any) -> None:
        """Handle a command of the node."""
        self._commands.append(command)
        self._next()

    def die(self, code: int, *, silently: bool = False) -> None:
        """Crash or end; `silently`: the Mac lost power, so its node sees nothing."""
        if self.process.is_dead:
            return
        self.process.kill()
        self._network.workers.pop(self.port, None)
        if not silently:
            self._close()
            for link in self._backlog:
                link.answer(is_welcome=False)
        self.program.ended(code)

    def _report(self, message: Report) -> None:
        self.program.say(message)
        if isinstance(message, Token) and self.stutters and self.stutters.random() < 0.05:
            self.program.say(message)

    def _next(self) -> None:
        while self._commands and self._phase in ("idle", "linked"):
            self._obey(self._commands.popleft())
        self._turn()

    def _obey(self, command: Any) -> None:  # noqa: C901 - a flat table of commands
        match command:
            case Join():
                self._wait("starting", self._started, self._random.uniform(0.1, 0.5))
            case Load():
                self._close()
                self._engine = self._moves = None
                self._early.clear()
                self._plan, self._index = command.plan, command.index
                self._report(Loading(plan_gen=command.plan.plan_gen, done_bytes=0, total_bytes=1000))
                self._wait("loading", lambda: self._loaded(command), self._load_s * self._random.uniform(0.5, 1.5))
            case Connect() if self._plan:
                self._connect(command)
            case Prove() if self._engine and self._is_linked and self._plan and command.plan_gen == self._plan.plan_gen:
                self._wait("proving", None)
                if self._sender:
                    self._send(("proof", command.plan_gen))
                else:
                    self._proved(command.plan_gen)
            case SaveSession() if self._moves:
                if self._moves.save(command):
                    self.process.soon(self._saved, self._moves, after=0.02 * len(command.tokens))
            case LoadSession() if self._moves:
                if moved := self._moves.load(command):
                    self._network.restored[self._run, moved[0]] = moved[1]
                    self._restore(moved[0])
            case SaveSession() | LoadSession():
                self._report(SessionFailed(problem=NotLoaded("No model is loaded in this worker.").problem))
            case Request() if self._engine:
                self._engine.submit(command)
            case MirrorSpans() if self._engine:
                self._engine.mirroring.take(command)
            case StopMirror() if self._engine:
                self._engine.mirroring.stop(command.request_id)
            case Cancel() if self._engine:
                self._engine.cancel(command.request_id)
            case Request():
                self._report(untouched(command, "error", LinkLost("No model is loaded in this worker.").problem))

    def _wait(self, phase: str, then: Callable[[], None] | None, after: float = DIAL_S) -> None:
        if self._patience:
            self._patience.cancel()
        self._phase = phase
        self._patience = self.process.soon(then, after=after) if then else None

    def _started(self) -> None:
        self._network.workers[self.port] = self
        self._wait("idle", None)
        self._report(Listening(pid=self.program.pid, port=self.port, compute=compute_hash()))
        self._next()

    def _loaded(self, command: Load) -> None:
        plan, stage = command.plan, command.plan.stages[command.index]
        self._wait("idle", None)
        if self.runs_out_of_memory():
            self._report(Failed(plan_gen=plan.plan_gen, problem=StageFailed("It ran out of memory.").problem))
            return
        if command.index == 0:
            self._engine = Engine(command, self._report)
            self._ring, self._run = self._engine.ring, next(NUMBERS)
            self._moves = Moves(self.disk, self._engine, self._report)
            self._engine.came = self._moves.came
        else:
            self._ring = Ring(plan.layers, 1, 1.0)
        owned = role_of(plan, command.index)
        self._report(
            Loaded(
                plan_gen=plan.plan_gen,
                weight_bytes=stage.weight_bytes,
                seconds=1.0,
                start=stage.start,
                stop=stage.stop,
                embed=owned.embeds,
                output=owned.outputs,
                fingerprint=plan.fingerprint,
            )
        )
        self._next()

    @property
    def _is_linked(self) -> bool:
        assert self._plan
        return self._phase in ("linked", "proving") or len(self._plan.stages) == 1

    @property
    def _own(self) -> range:
        """Its layers, counted in ring order from the head's, whatever their place in the model."""
        assert self._plan
        sizes = [stage.stop - stage.start for stage in self._plan.stages]
        start = sum(sizes[: self._index])
        return range(start, start + sizes[self._index])

    # the links

    def _connect(self, command: Connect) -> None:
        assert command.plan.plan_gen not in self._generations, "two rings of one generation"
        self._generations.add(command.plan.plan_gen)
        self._close()
        self._plan, self._port, self._way = command.plan, command.next_port, command.ways[0]
        self._early.clear()
        if self._index == 0:
            self._dial()
        else:
            self._accept()

    def _dial(self) -> None:
        target = self._network.workers.get(self._port)
        after = self._plan.stages[(self._index + 1) % len(self._plan.stages)].peer if self._plan else ""
        if target is None:
            error = LinkLost(f"{after} refused the connection.")
            self._wait("dialling", lambda: self._break(error), 0.01)
            return
        assert self._plan
        self._wait("dialling", lambda: self._break(LinkTimeout(f"{after} did not answer for {DIAL_S:.0f} s.")))
        self._sender = Link(self._network, self, target, self._plan)
        self._sender.dial()

    def _accept(self) -> None:
        self._wait("accepting", lambda: self._break(LinkTimeout(f"Nobody dialled for {DIAL_S:.0f} s.")))
        self._look()

    def knocked(self, link: Link) -> None:
        """Answer another worker that dials."""
        self._backlog.append(link)
        self._look()

    def _look(self) -> None:
        while self._backlog and self._phase == "accepting":
            link = self._backlog.pop(0)
            fits = link.plan == self._plan and not link.is_over
            link.answer(is_welcome=fits)
            if fits:
                self._receiver = link
                (self._dial if self._index else self._stand)()

    def welcomed(self, link: Link) -> None:
        """Continue after a successful dial."""
        if link is self._sender and self._phase == "dialling":
            (self._linked if self._index else self._accept)()

    def refused(self, link: Link) -> None:
        """Handle a refused dial."""
        if link is self._sender and self._phase == "dialling":
            self._break(HandshakeError("The other Mac has another plan."))

    def _linked(self) -> None:
        assert self._plan
        self._wait("linked", None)
        self._network.linked.add((self.device_id, self._plan.plan_gen))
        self._report(Linked(plan_gen=self._plan.plan_gen, way=self._way))
        if any(link is None or link.is_over for link in (self._sender, self._receiver)):
            self._break(LinkLost("The link ended."))
            return
        early, self._early = self._early, []
        for item in early:
            self._take(item)
        self._next()

    def ended(self, link: Link) -> None:
        """Handle a link that the other end closed or lost."""
        link.is_over = True
        if link in (self._sender, self._receiver) and self._phase in ("standing", "linked", "proving"):
            self._break(LinkLost("The link ended."))

    def reset(self) -> None:
        """Handle a broken link; both ends see it."""
        if self._sender and self._phase in ("standing", "linked", "proving"):
            self._break(LinkLost("The connection was reset."))

    def _break(self, error: LinkError) -> None:
        assert self._plan
        was_proving = self._phase == "proving"
        self._close()
        self._wait("idle", None)
        if self._engine and (was_proving or isinstance(error, NoAnswer)):
            self._begin_anew(error)
        self._report(LinkBroken(plan_gen=self._plan.plan_gen, problem=error.problem))
        self._next()

    def _close(self) -> None:
        for link in (self._sender, self._receiver):
            if link and not link.is_over:
                link.close(self)
        self._sender = self._receiver = None
        self._ring.lose()

    def _begin_anew(self, error: LinkError | CachesLost) -> None:
        assert self._engine
        self._engine.lose_all(error)
        self._run = next(NUMBERS)
        if self._moves:
            self._moves.fail(error.problem)

    def _saved(self, moves: Moves) -> None:
        if moves is self._moves:
            moves.end()

    def _restore(self, handle: int) -> None:
        """Deliver a session's tokens to every layer here; a mirror's spans come later."""
        tokens = self._network.restored.get((self._run, handle))
        if tokens is None:
            return
        for stage, cache in zip(self._ring.stages, caches_of(tokens, len(self._ring.stages)), strict=True):
            stage.arriving[handle] = cache

    # frames on the links

    def _send(self, item: Any) -> None:
        if self._sender:
            self._sender.send(item)

    def came(self, link: Link, item: Any) -> None:
        """Handle a frame."""
        if link is not self._receiver:
            return
        if self._phase in ("standing", "linked", "proving"):
            self._take(item)
        else:
            self._early.append(item)

    def _take(self, item: Any) -> None:
        match item:
            case Frame():
                self._work(item)
            case ("stand", run, base, lost):
                self._stood(lost) if self._engine else self._stand_for(run, base, lost)
            case ("proof", plan_gen):
                self._proved(plan_gen) if self._engine else self._send(item)

    def _work(self, frame: Frame) -> None:
        assert self._plan
        links, own = self._ring.links, self._own
        for op in frame.work.ops if isinstance(frame.work, Compose) and not self._engine else ():
            if isinstance(op, Restore):
                self._restore(op.handle)
        links[0 if self._engine else own.start].append(frame)
        try:
            if self._engine:
                self._engine.collect(self._network.loop.now)
            else:
                self._through(own.start, own.stop)
        except LinkError as error:
            self._break(error)
            return
        self._next()

    def _turn(self) -> None:
        """Let the head put everything possible on the ring."""
        if self._engine is None or self._phase == "proving" or not self._is_linked or self._phase == "loading":
            return
        assert self._plan
        while self._engine.turn(self._network.loop.now):
            self._through(1, self._own.stop)
            if len(self._plan.stages) == 1:
                while self._ring.links[0]:
                    self._engine.collect(self._network.loop.now)
        if self._resend is None and self._ring.outstanding.deadline() is not None:
            self._plan_resend()

    def _through(self, start: int, stop: int) -> None:
        """Run work through each of this Mac's layers, then pass it to the next Mac."""
        links = self._ring.links
        for layer in range(start, stop):
            while links[layer]:
                self._ring.deliver(layer)
        if self._sender:
            out = links[stop % len(links)]
            while out:
                self._send(out.popleft())

    def _plan_resend(self) -> None:
        deadline = self._ring.outstanding.deadline()
        self._resend = None
        if deadline is not None:
            self._resend = self.process.soon(self._send_again, after=max(0.0, deadline - self._network.loop.now))

    def _send_again(self) -> None:
        assert self._plan
        if self._is_linked:
            try:
                self._ring.send(self._ring.outstanding.due(self._network.loop.now))
            except LinkTimeout as error:
                self._resend = None
                self._break(NoAnswer(error.what))
                return
            self._through(1, self._own.stop)
            self._plan_resend()
        else:
            self._resend = None

    def _stand(self) -> None:
        self._wait("standing", lambda: self._break(LinkTimeout("The ring did not answer.")))
        self._send(("stand", self._run, self._ring.outstanding.base, ()))

    def _stand_for(self, run: int, base: int, lost: tuple[int, ...]) -> None:
        assert self._plan
        own = self._own
        if run != self._run or any(self._ring._replies[layer].last < base - 1 for layer in own):
            self._ring, self._run, lost = Ring(self._plan.layers, 1, 1.0), run, (*lost, self._index)
            for layer in own:
                self._ring._replies[layer].restart(base)
        self._send(("stand", run, base, lost))

    def _stood(self, lost: tuple[int, ...]) -> None:
        if self._phase != "standing" or self._engine is None or self._plan is None:
            return
        if lost and (self._ring.outstanding or self._ring.stages[0].handles):
            self._begin_anew(CachesLost(f"Stage {lost} was restarted and has lost the answer."))
            self._stand()
            return
        try:
            self._ring.send(self._ring.outstanding.resend(self._network.loop.now))
        except LinkTimeout as error:
            self._break(NoAnswer(error.what))
            return
        self._linked()
        self._through(1, self._own.stop)

    def _proved(self, plan_gen: int) -> None:
        if self._phase == "proving":
            self._wait("linked" if self._sender else "idle", None)
            self._report(Proved(plan_gen=plan_gen, seconds=0.1, tokens=4, difference=None))
            self._next()
