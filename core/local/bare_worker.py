"""A worker process without a node: `python -m core.worker` and its pipe."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final, NamedTuple, TypeVar

import msgspec

from core.errors import WorkerDied, WorkerError, error_from
from core.models.files.child_start import OFFLINE, command_of
from core.pipe_messages import read_messages, write_message
from core.trust.identity import Identity
from core.worker.messages import Command, Failed, Join, Listening, Load, Loaded, Report, unpack_report

HOST: Final = "127.0.0.1"
START_S: Final = 120.0
LOAD_S: Final = 300.0
STOP_S: Final = 2.0

R = TypeVar("R", bound=Report)


class Arrival(NamedTuple):
    """A report of a worker."""

    at: float  # seconds of `perf_counter`
    report: Report


class BareWorker:
    """A worker process: `send` takes commands, `next` and `expect` give its reports, each with a timeout."""

    def __init__(self, index: int, *, own_gpu: bool = False) -> None:
        """With `own_gpu` the worker sees only the NVIDIA GPU number `index`; MLX uses one per process."""
        self.index = index
        self.port = 0
        gpu = {"CUDA_VISIBLE_DEVICES": str(index)} if own_gpu else {}
        self._process = subprocess.Popen(
            command_of("core.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **OFFLINE, **gpu},
        )
        self._arrivals: SimpleQueue[Arrival | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"reports of worker {index}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id, also after the process has ended."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, command: Command) -> None:
        """Write one command. Raises WorkerDied."""
        assert self._process.stdin
        try:
            write_message(self._process.stdin.fileno(), command)
        except OSError as error:
            raise self._died() from error

    def next(self, timeout_s: float) -> Arrival:
        """The next report. Raises WorkerDied, or WorkerError if none comes in time."""
        try:
            arrival = self._arrivals.get(timeout=max(0.0, timeout_s))
        except Empty:
            raise WorkerError(f"Worker {self.index} did not report in time.") from None
        if arrival is None:
            self._arrivals.put(None)  # so that the next call also sees the end
            raise self._died()
        return arrival

    def expect(self, kind: type[R], timeout_s: float) -> R:
        """The next report of `kind`. Raises the error of a Failed report, WorkerDied, or WorkerError after the time."""
        deadline = perf_counter() + timeout_s
        while True:
            report = self.next(deadline - perf_counter()).report
            if isinstance(report, kind):
                return report
            if isinstance(report, Failed):
                raise error_from(report.problem)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipe, as a node does; kill the process if it does not end within `STOP_S`."""
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
        """Queue reports until the pipe ends. A thread of its own, so each report has the time of its arrival."""
        assert self._process.stdout
        with suppress(msgspec.MsgspecError):  # treated like a dead worker
            for body in read_messages(partial(os.read, self._process.stdout.fileno())):
                self._arrivals.put(Arrival(perf_counter(), unpack_report(body)))
        self._arrivals.put(None)

    def _died(self) -> WorkerDied:
        return WorkerDied(f"Worker {self.index} (process {self.pid}) ended.", "See what it wrote above.")


def load_workers(workers: Mapping[BareWorker, Identity], loads: Mapping[BareWorker, Load]) -> None:
    """Give each worker its identity and stage, and wait until all have loaded. Raises a worker's error, WorkerError."""
    for worker, mac in workers.items():
        worker.send(Join(identity_folder=str(mac.key_path.parent), passphrase=mac.passphrase, host=HOST))
    for worker in workers:
        worker.port = worker.expect(Listening, START_S).port
        worker.send(loads[worker])
    for worker in workers:
        worker.expect(Loaded, LOAD_S)
