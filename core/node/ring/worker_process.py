"""One worker process and the pipe to it."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from errno import EAGAIN
from typing import Any, Final

import msgspec

from core.errors import NodeError
from core.mac.installation import on_disk, running, why_no_child
from core.models.files.child_start import OFFLINE, command_of, without_secrets
from core.node.base.journal import Journal
from core.node.base.kill_process import kill
from core.node.base.tasks import Tasks
from core.pipe_messages import pack, read_message
from core.trust.identity import Identity
from core.worker.messages import Command, Join, Listening, Report, unpack_report

STOP_S = 2.0
# with a display on, macOS stops long GPU work sooner (mlx#3267)
_LONG_WORK: Final = {"AGX_RELAX_CDM_CTXSTORE_TIMEOUT": "1"}


class WorkerProcess:
    """A worker that has got its Join; its reports go to `take`."""

    def __init__(
        self, process: Process, take: Callable[[WorkerProcess, Report], None], journal: Journal, tasks: Tasks
    ) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process, self._pipe = process, process.stdin
        self._take, self._journal = take, journal
        self.pid = process.pid
        self.listening: Listening | None = None  # its report about its data port
        lines, reports = self._copy_stderr(process.stderr), self._read_reports(process.stdout)
        self._lines = tasks.spawn("The reader of the worker's log", _or_end(process, lines))
        self._reports = tasks.spawn("The reader of the worker", _or_end(process, reports))

    def send(self, command: Command) -> None:
        """Write one command; it is lost if the process has just ended."""
        if not self._pipe.is_closing():
            self._pipe.write(pack(command))

    def kill(self) -> None:
        kill(self._process)

    def on_end(self, call: Callable[[], None]) -> None:
        self._reports.add_done_callback(lambda _: call())

    async def wait(self) -> int:
        await asyncio.wait({self._reports, self._lines})
        return await self._process.wait()

    async def end(self) -> None:
        """Let it end, kill it after `STOP_S`, and wait."""
        if self._process.returncode is not None:
            return
        self._pipe.close()
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    async def _read_reports(self, stdout: asyncio.StreamReader) -> None:
        try:
            while True:
                report = unpack_report(await read_message(stdout))
                if isinstance(report, Listening):
                    self.listening = report
                self._take(self, report)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return
        except msgspec.MsgspecError:
            self._journal.error("The worker sent something unreadable; it is stopped.")
            self.kill()

    async def _copy_stderr(self, stderr: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue
            if not line:
                return
            self._journal.warn(f"Worker: {line.decode('utf-8', 'replace')}")


async def start_worker(
    identity: Identity,
    host: str,
    take: Callable[[WorkerProcess, Report], None],
    journal: Journal,
    tasks: Tasks,
    *,
    wires: bool = True,
) -> WorkerProcess:
    """Start a process, and send its identity and the address to listen on. Raises OSError, and NodeError if it would
    not fit to this node, because macluster was updated.
    """
    if why := await asyncio.to_thread(lambda: why_no_child(running(), on_disk())):
        raise NodeError(why)
    try:
        process = await asyncio.create_subprocess_exec(
            *command_of("core.worker"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**without_secrets(), **OFFLINE, **_LONG_WORK},
        )
    except RuntimeError as error:  # on a Mac a thread waits for each process, and none is free
        raise OSError(EAGAIN, str(error)) from error
    worker = WorkerProcess(process, take, journal, tasks)
    folder = str(identity.key_path.parent)
    worker.send(Join(identity_folder=folder, passphrase=identity.passphrase, host=host, wires=wires))
    return worker


async def _or_end(process: Process, reading: Coroutine[Any, Any, None]) -> None:
    try:
        await reading
    except BaseException:
        kill(process)
        raise
