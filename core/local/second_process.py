"""A second process with a pipe to it, so that its CPU time is its own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

from core.errors import WorkerDied, WorkerError

STOP_S: Final = 5.0

Work = Callable[["Connection[Any, Any]"], None]  # a module's function; gets the other end of the pipe


class SecondProcess:
    """This process's end of the pipe."""

    def __init__(self, pipe: Connection[Any, Any], pid: int) -> None:
        self._pipe, self.pid = pipe, pid

    def send(self, message: object) -> None:
        """Send one value. Raises WorkerDied."""
        try:
            self._pipe.send(message)
        except OSError as error:
            raise _gone() from error

    def receive(self, timeout_s: float) -> Any:
        """The next value. Raises WorkerDied, or WorkerError if none comes within `timeout_s`."""
        try:
            if not self._pipe.poll(timeout_s):
                raise WorkerError(f"The second process of the bench did not answer within {timeout_s:g} s.")
            return self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise _gone() from error


@contextmanager
def second_process(work: Work) -> Iterator[SecondProcess]:
    """Run `work` in a new process, which ends with the block."""
    context = multiprocessing.get_context("spawn")  # a fork would share MLX's threads and locks
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        assert process.pid
        yield SecondProcess(ours, process.pid)
    finally:
        ours.close()
        process.join(STOP_S)
        process.kill()
        process.join()
        process.close()


def _run(work: Work, pipe: Connection[Any, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the bench, and the bench ends this process
    try:
        work(pipe)
    except (EOFError, ConnectionError):
        return  # the bench is over


def _gone() -> WorkerDied:
    return WorkerDied("The second process of the bench ended.", "See what it wrote above.")
