"""Keeps this Mac's worker running, and a spare one ready while a model is loaded."""

from __future__ import annotations

import asyncio
from functools import partial

from core.errors import NodeError, WorkerDied
from core.node.base.context import NodeContext
from core.node.base.signals import Signal
from core.node.peers.worker_state import WorkerState
from core.node.ring.worker_process import WorkerProcess, start_worker
from core.rates import BackOff
from core.version import compute_hash
from core.worker.messages import Command, GpuFailed, GroupBroken, Listening, Load, Loaded, Loading, Report, Worked

START_S = 60.0
BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_S = 30.0
SPARE_REST_S = 2.0  # the loaded model starts to work first
SPARE_BACK_OFF_S = (5.0, 30.0, 120.0)
RESTART = "Restart the node: `macluster restart`."


class WorkerReported(Signal, frozen=True):
    """This Mac's worker reported something."""

    report: Report


class WorkerEnded(Signal, frozen=True):
    """This Mac's worker ended unexpectedly; another one takes its place."""

    error: WorkerDied


class Supervisor:
    """Keeps one worker process running and, with `has_spare`, an empty one ready to take its place at once. Emits
    WorkerReported and WorkerEnded, and keeps `worker` up to date.
    """

    def __init__(self, node: NodeContext, worker: WorkerState) -> None:
        config = node.config
        self._identity, self._host, self._worker = node.identity, config.host, worker
        self._signals, self._journal, self._tasks = node.signals, node.journal, node.tasks
        self._has_spare, self._wires = config.has_spare, config.wires
        self._process: WorkerProcess | None = None
        self._spare: WorkerProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._refusal: NodeError | None = None  # why no worker is started
        self._up = asyncio.Event()  # a worker listens, or none is started
        self._spare_is_due = asyncio.Event()
        self._begun: int | None = None  # the generation of the plan whose stage it loads
        self._has_news = asyncio.Event()
        self._wanted = False
        self._port = 0
        self._compute = compute_hash()

    def start(self) -> None:
        self._wanted = True
        self._keeper = self._tasks.essential("The keeper of the worker", self._keep)
        if self._has_spare:
            self._tasks.restartable("The keeper of the spare worker", self._keep_spare)

    async def ready(self) -> int:
        """Wait until the worker listens; returns its data port. Raises WorkerDied after `START_S`, and NodeError if
        macluster was updated and there is no worker of this version.
        """
        try:
            async with asyncio.timeout(START_S):
                await self._up.wait()
        except TimeoutError:
            if self._process:
                self._process.kill()
            raise WorkerDied("The worker of this Mac did not start within a minute.") from None
        if self._refusal:
            raise NodeError(self._refusal.what, self._refusal.fix)
        return self._port

    async def reported(self) -> None:
        """Wait for the first report of what this Mac's GPU may use. Raises as `ready`."""
        if self._worker.working_set_bytes is None:
            await self.ready()

    async def begins(self, load: Load, within_s: float) -> bool:
        """Have a worker that holds another stage load this one instead; whether it began in time."""
        self._begun = None
        self.send(load)
        try:
            async with asyncio.timeout(within_s):
                while self._begun != load.plan.plan_gen:
                    self._has_news.clear()
                    await self._has_news.wait()
        except TimeoutError:
            return False
        return True

    def send(self, command: Command) -> None:
        """Write one command to the worker; it is lost if the worker has just ended (WorkerEnded follows)."""
        if self._process:
            self._process.send(command)

    async def replace(self) -> None:
        """End the worker with its layers and links; an empty one takes its place. This is how a model is unloaded."""
        process, self._process = self._process, None
        self._worker.pid, self._worker.has_model = None, False
        self._up.clear()
        if process:
            await process.end()

    async def stop(self) -> None:
        """End both workers for good."""
        self._wanted = False
        spare = self._take_spare()
        await self.replace()
        if spare:
            await spare.end()
        if self._keeper:
            await self._keeper

    async def _keep(self) -> None:
        back_off, clock = BackOff(BACK_OFF_S, STEADY_S), asyncio.get_running_loop().time
        while self._wanted:
            back_off.started(clock())
            try:
                code = await self._run_one()
            except NodeError as error:  # macluster was updated
                if self._refusal is None:
                    self._journal.error(f"No worker is started. {error}")
                self._refusal = error
                self._up.set()
                await asyncio.sleep(back_off.failed(clock()))
                continue
            except OSError as error:  # the system has no process, memory or file descriptor free for it
                self._journal.error(f"The worker can't be started: {error.strerror}.")
                await asyncio.sleep(back_off.failed(clock()))
                continue
            if not self._wanted or self._process is None:  # `replace` has ended it on purpose
                back_off.reset()
                continue
            self._process = None
            wait_s = back_off.failed(clock())
            how = f"signal {-code}" if code < 0 else f"status {code}"
            self._signals.emit(WorkerEnded(WorkerDied(f"its worker ended unexpectedly ({how}).")))
            if self._spare is None:
                await asyncio.sleep(wait_s)

    async def _run_one(self) -> int:
        process = self._take_spare() or await self._started()
        self._process = process
        self._up.clear()
        self._worker.pid, self._worker.step = process.pid, 0
        if not self._wanted:
            process.kill()  # `stop` was called while this process started
        if process.listening:
            self._take(process, process.listening)
        code = await process.wait()
        self._up.clear()
        self._worker.pid, self._worker.has_model = None, False
        return code

    def _take_spare(self) -> WorkerProcess | None:
        spare, self._spare, self._worker.spare_pid = self._spare, None, None
        return spare

    async def _started(self) -> WorkerProcess:
        return await start_worker(self._identity, self._host, self._take, self._journal, self._tasks, wires=self._wires)

    def _take(self, process: WorkerProcess, report: Report) -> None:
        if process is not self._process:
            return  # the spare one, or a late report of one that was ended on purpose
        match report:
            case Worked(step=step):
                self._worker.step = step
                return
            case Listening(port=port, working_set_bytes=most, compute=compute):
                self._port, self._worker.working_set_bytes = port, most
                other = NodeError("macluster was updated, and the node is of the version before.", RESTART)
                self._refusal = None if compute == self._compute else other
                self._up.set()
            case Loading(plan_gen=gen):
                self._begun = gen
                self._has_news.set()
            case Loaded():
                self._worker.has_model = True
                self._spare_is_due.set()
            case GpuFailed(why=why, is_memory=is_memory):
                self._worker.memory_faults += is_memory
                less = " From now on plans use a tenth less of its memory." if is_memory else ""
                self._journal.error(f"A step failed on this Mac's GPU: {why}. The worker is restarted.{less}")
            case GroupBroken(problem=problem):
                self._journal.warn(f"The tensor group broke; the worker is restarted: {problem.what}")
            case _:
                pass
        self._signals.emit(WorkerReported(report))

    async def _keep_spare(self) -> None:
        back_off, clock = BackOff(SPARE_BACK_OFF_S, STEADY_S), asyncio.get_running_loop().time
        rest_s = SPARE_REST_S

        def ended(spare: WorkerProcess) -> None:
            nonlocal rest_s
            if spare is self._spare:
                self._spare = self._worker.spare_pid = None
                self._journal.warn("The spare worker ended.")
                rest_s = back_off.failed(clock())
                self._spare_is_due.set()

        while True:
            await self._spare_is_due.wait()
            self._spare_is_due.clear()
            await asyncio.sleep(rest_s)
            rest_s = SPARE_REST_S
            if self._spare or not self._worker.has_model:
                continue
            back_off.started(clock())
            try:
                spare = await self._started()
            except NodeError:  # macluster was updated; `_keep` reports it when it needs a worker
                continue
            if not (self._wanted and self._worker.has_model):  # it is not needed any more
                await spare.end()
                continue
            self._spare, self._worker.spare_pid = spare, spare.pid
            spare.on_end(partial(ended, spare))
