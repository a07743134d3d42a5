"""A bare worker process: `python -m core.worker` and its pipe, with no node around it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

import msgspec

from core.errors import WorkerDied, WorkerError, error_from
from core.pipe_messages import LENGTH, pack
from core.worker.messages import Command, Failed, Report, unpack_report

STOP_S: Final = 2.0

R = TypeVar("R", bound=Report)


class Arrival(NamedTuple):
    """A report, and when it came by `perf_counter`, in seconds."""

    at: float
    report: Report


class BareWorker:
    """Commands go in with `send`, reports come out with `next` or `expect`, each by a deadline."""

    def __init__(self, index: int, *, own_gpu: bool = False) -> None:
        """`own_gpu`: of several NVIDIA GPUs it sees the one of its own number alone; MLX takes one a process."""
        self.index = index
        self.port = 0
        offline = {"PYTHONSAFEPATH": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}
        gpu = {"CUDA_VISIBLE_DEVICES": str(index)} if own_gpu else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "core.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **offline, **gpu},
        )
        self._arrivals: SimpleQueue[Arrival | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"reports of worker {index}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id; it stays when the process has ended."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def send(self, command: Command) -> None:
        """Write one command. Raises WorkerDied."""
        assert self._process.stdin
        data = memoryview(pack(command))
        try:
            while data:
                data = data[self._process.stdin.write(data) or 0 :]
        except OSError as error:
            raise self._died() from error

    def next(self, timeout_s: float) -> Arrival:
        """The next report. Raises WorkerDied, or WorkerError if none comes in time."""
        try:
            arrival = self._arrivals.get(timeout=max(0.0, timeout_s))
        except Empty:
            raise WorkerError(f"Worker {self.index} did not report in time.") from None
        if arrival is None:
            self._arrivals.put(None)  # for whoever asks next
            raise self._died()
        return arrival

    def expect(self, kind: type[R], timeout_s: float) -> R:
        """The next report of `kind`; others are passed over, but a Failed is raised as the error that it carries.

        Raises WorkerDied, or WorkerError if it does not come in time.
        """
        deadline = perf_counter() + timeout_s
        while True:
            report = self.next(deadline - perf_counter()).report
            if isinstance(report, kind):
                return report
            if isinstance(report, Failed):
                raise error_from(report.problem)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it as a node does: its pipe ends, and it goes; or else it is killed."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join()
        self._process.stdout.close()

    def _read(self) -> None:
        """Until the pipe ends; the thread takes the time of each report, whoever reads it when."""
        while (head := self._exactly(LENGTH.size)) is not None:
            body = self._exactly(LENGTH.unpack(head)[0])
            if body is None:
                break
            try:
                self._arrivals.put(Arrival(perf_counter(), unpack_report(body)))
            except msgspec.MsgspecError:
                break  # a worker that babbles is as good as dead
        self._arrivals.put(None)

    def _exactly(self, count: int) -> bytes | None:
        assert self._process.stdout
        data = bytearray()
        while len(data) < count:
            part = self._process.stdout.read(count - len(data))
            if not part:
                return None
            data += part
        return bytes(data)

    def _died(self) -> WorkerDied:
        return WorkerDied(f"Worker {self.index} (process {self.pid}) ended.", "See what it wrote above.")
