"""Starts this Mac's worker, speaks to it over its pipe, and starts another when it ends."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine
from typing import Any

import msgspec

from core.errors import WorkerDied
from core.node.base.back_off import BackOff
from core.node.base.journal import Journal
from core.node.base.own_worker import OwnWorker
from core.node.base.signals import Signal, Signals
from core.node.base.tasks import Tasks
from core.trust.identity import Identity
from core.worker.messages import LENGTH, Command, Join, Listening, Loaded, Report, Worked, pack, unpack_report

START_S = 60.0
STOP_S = 2.0
BACK_OFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)
STEADY_S = 30.0


class WorkerReported(Signal, frozen=True):
    """This Mac's worker says something."""

    report: Report


class WorkerEnded(Signal, frozen=True):
    """This Mac's worker ended unexpectedly; another one is started."""

    error: WorkerDied


class Supervisor:
    """Keeps one worker process running. Emits WorkerReported and WorkerEnded, and writes down how `worker` is."""

    def __init__(
        self, identity: Identity, host: str, worker: OwnWorker, signals: Signals, journal: Journal, tasks: Tasks
    ) -> None:
        self._identity = identity
        self._host = host
        self._worker = worker
        self._signals = signals
        self._journal, self._tasks = journal, tasks
        self._process: Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._up = asyncio.Event()
        self._wanted = False
        self._port = 0

    def start(self) -> None:
        """Keep a worker running from now on."""
        self._wanted = True
        self._keeper = self._tasks.essential("The keeper of the worker", self._keep)

    async def ready(self) -> int:
        """Wait until the worker listens; its data port. Raises WorkerDied after a minute, and another is started."""
        try:
            async with asyncio.timeout(START_S):
                await self._up.wait()
        except TimeoutError:
            if self._process and self._process.returncode is None:
                self._process.kill()
            raise WorkerDied("The worker of this Mac did not start within a minute.") from None
        return self._port

    def send(self, command: Command) -> None:
        """Write one command to the worker; lost if it has just ended, which WorkerEnded tells."""
        if self._process and self._process.stdin and not self._process.stdin.is_closing():
            self._process.stdin.write(pack(command))

    async def replace(self) -> None:
        """End the worker, its layers and its links with it, and start an empty one: how a model is unloaded."""
        await self._end()

    async def stop(self) -> None:
        """End the worker for good."""
        self._wanted = False
        await self._end()
        if self._keeper:
            await self._keeper

    async def _end(self) -> None:
        process, self._process = self._process, None
        self._worker.pid = None
        self._up.clear()
        if process is None or process.returncode is not None:
            return
        if process.stdin:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _keep(self) -> None:
        back_off, clock = BackOff(BACK_OFF_S, STEADY_S), asyncio.get_running_loop().time
        while self._wanted:
            back_off.started(clock())
            code = await self._run_one()
            if not self._wanted or self._process is None:  # `_end` took it: it was ended on purpose
                back_off.ended_well()
                continue
            wait_s = back_off.failed(clock())
            how = f"signal {-code}" if code < 0 else f"status {code}"
            self._signals.emit(WorkerEnded(WorkerDied(f"its worker ended unexpectedly ({how}).")))
            await asyncio.sleep(wait_s)

    async def _run_one(self) -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "core.worker",
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, "PYTHONSAFEPATH": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"},
        )
        self._process = process
        self._worker.pid, self._worker.step, self._worker.has_model = process.pid, 0, False
        assert process.stdin
        assert process.stdout
        assert process.stderr
        if not self._wanted:
            process.kill()  # `stop` came while this process was being started
        lines = self._tasks.spawn("The reader of the worker's log", _or_end(process, self._copy_stderr(process.stderr)))
        self.send(
            Join(
                identity_folder=str(self._identity.key_path.parent),
                passphrase=self._identity.passphrase,
                host=self._host,
            )
        )
        reports = self._read_reports(process, process.stdout)
        await self._tasks.spawn("The reader of the worker", _or_end(process, reports))
        self._up.clear()
        code = await process.wait()
        self._worker.pid = None
        await lines
        return code

    async def _read_reports(self, process: Process, stdout: asyncio.StreamReader) -> None:
        try:
            while True:
                (length,) = LENGTH.unpack(await stdout.readexactly(LENGTH.size))
                report = unpack_report(await stdout.readexactly(length))
                if process is not self._process:
                    continue  # the last words of a worker that was ended on purpose
                self._handle(report)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return
        except msgspec.MsgspecError:
            self._journal.error("The worker sent something unreadable; it is stopped.")
            process.kill()

    def _handle(self, report: Report) -> None:
        match report:
            case Worked(step=step):
                self._worker.step = step
                return
            case Listening(port=port):
                self._port = port
                self._up.set()
            case Loaded():
                self._worker.has_model = True
            case _:
                pass
        self._signals.emit(WorkerReported(report))

    async def _copy_stderr(self, stderr: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue
            if not line:
                return
            self._journal.write("WARN", line.decode("utf-8", "replace"), source="worker")


async def _or_end(process: Process, reading: Coroutine[Any, Any, None]) -> None:
    """A worker that nobody reads any more must not stay."""
    is_over = False
    try:
        await reading
        is_over = True
    finally:
        if not is_over and process.returncode is None:
            process.kill()
