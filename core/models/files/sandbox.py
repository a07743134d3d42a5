"""Runs work on hostile files in a child process that is watched and killed at its limits.

The parent calls `run_child`, which enforces the limits of a `Job`. The child is one of our modules, run as `python -m`;
it calls `confine` first, so that it ends even if its parent is gone.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import psutil

from core.errors import BadModel, MaclusterError
from core.events import Value
from core.models.files.child_start import ChildStart, say_hello, starting
from core.pipe_messages import READ_BYTES
from core.settings import MIB

POLL_S: Final = 0.01
END_S: Final = 1.0  # that a child takes to end after its answer
# what helps where the Mac may have been busy, or a file of the model makes its process fail
TRY_AGAIN: Final = "Try again. If that fails too, choose another version of the model."
# signals that end a child which exceeds its processor time
_OUT_OF_TIME: Final = (-signal.SIGXCPU, -signal.SIGKILL)


class Job(Value, frozen=True, kw_only=True):
    """A child's work and its limits."""

    module: str
    arguments: tuple[str, ...] = ()
    subject: str  # subject of the sentence in limit errors, such as "The chat template"
    fix: str  # advice in these errors
    seconds: float  # wall time
    rss_bytes: int
    answer_bytes: int = MIB


# runs a job with a request; returns exit status and answer
Run = Callable[[Job, bytes], tuple[int, bytes]]


class Child(NamedTuple):
    """The process of a job, and the line to its standard input."""

    process: subprocess.Popen[bytes]
    watched: psutil.Process
    line: socket.socket
    start: ChildStart

    @classmethod
    def begin(cls, job: Job, *, answers_by_line: bool) -> Child:
        """Start it; it answers by the line, or its standard output does, up to its end. Raises NodeError."""
        with starting(job.subject):
            ours, theirs = socket.socketpair()
            with theirs:
                start, end = ChildStart(job.module, *job.arguments), theirs.fileno()
                out = subprocess.DEVNULL if answers_by_line else end
                process = subprocess.Popen(start.command, stdin=end, stdout=out, **start.options)
        start.close()
        return cls(process, psutil.Process(process.pid), ours, start)


def run_child(job: Job, stop: threading.Event | None = None) -> tuple[int, bytes]:
    """Run `job` until it ends; returns exit status and output.

    Setting `stop` from another thread ends the child at once. Raises BadModel at the first limit that is hit, and
    NodeError if the child cannot start.
    """
    child = Child.begin(job, answers_by_line=False)
    with child.line, child.process:
        try:
            answer = b"".join(exchange(child, job, b"", is_last=True, stop=stop))
            status = child.process.wait(END_S)
        except subprocess.TimeoutExpired as error:
            raise BadModel(f"{job.subject} does not end.", job.fix) from error
        finally:
            child.process.kill()
    if (fault := child.start.fault()) and status:
        raise fault
    return finished(job, status), answer


def finished(job: Job, status: int) -> int:
    """Exit status of a child that ended by itself. Raises BadModel if the system ended it."""
    if status in _OUT_OF_TIME:
        raise BadModel(f"{job.subject} does not end in time.", job.fix)
    return status


def confine(seconds: int) -> None:
    """In the child: end with the parent, and after `seconds` of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    end_with_parent()


def allow(seconds: int) -> None:
    """In a child with several jobs: end after `seconds` more of processor time."""
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds + 1, most))


def end_with_parent() -> None:
    """In the child: say hello, and end when the parent is gone. Disables core files."""
    line = say_hello()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if line is not None:
        threading.Thread(target=_end_with, args=(line,), daemon=True).start()


def _end_with(line: int) -> None:
    with suppress(OSError):
        os.read(line, 1)
    os._exit(1)


def exchange(
    child: Child, job: Job, request: bytes, *, is_last: bool = False, stop: threading.Event | None = None
) -> Iterator[bytes]:
    """Send the request, the last one of this child or not, and yield the parts of the answer until the child closes
    its end. The child reads the whole request before it answers. Raises BadModel at the first limit that is hit.
    """
    deadline = time.monotonic() + job.seconds
    line = child.line
    line.settimeout(POLL_S)
    unsent, answered, is_open = memoryview(request), 0, is_last
    while True:
        try:
            if unsent:
                unsent = unsent[line.send(unsent) :]
            elif is_open:
                is_open = False
                with suppress(OSError):  # it may be gone
                    line.shutdown(socket.SHUT_WR)
            elif part := line.recv(READ_BYTES):
                answered += len(part)
                yield part
            else:
                return
        except TimeoutError:
            pass
        except ConnectionError:  # it is gone, or reads no more
            if not unsent:
                return
            unsent = unsent[:0]
        check(child.watched, job, answered, deadline)
        if stop and stop.is_set():
            raise BadModel(f"{job.subject} was stopped.", job.fix)


def check(process: psutil.Process, job: Job, answered: int, deadline: float) -> None:
    """Compare a job's use with its limits. Raises BadModel at the first limit that is hit."""
    if answered > job.answer_bytes:
        raise BadModel(f"{job.subject} writes more than {job.answer_bytes // MIB} MiB.", job.fix)
    if time.monotonic() > deadline:
        raise BadModel(f"{job.subject} does not end in time.", job.fix)
    if rss_of(process) > job.rss_bytes:
        raise BadModel(f"{job.subject} takes more than {job.rss_bytes // MIB} MiB of memory.", job.fix)


def rss_of(process: psutil.Process) -> int:
    """Resident memory in bytes; 0 if the process has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def answer(work: Callable[[], object], cpu_seconds: int) -> int:
    """In the child: `confine`, then print the JSON result of `work` or its Problem; returns the exit status."""
    output = os.dup(1)
    confine(cpu_seconds)
    os.dup2(2, 1)  # keeps libraries from printing into the answer
    try:
        found, status = work(), 0
    except MaclusterError as error:
        found, status = error.problem, 1
    with os.fdopen(output, "wb") as file:
        file.write(msgspec.json.encode(found))
    return status
