"""Runs work on hostile files in a child process that is watched and killed at its limits.

The parent calls `run_child`, which enforces the limits of a `Job`. The child is one of our modules, run as `python -m`;
it calls `confine` first, so that it ends even if its parent is gone.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Final, NamedTuple

import msgspec
import psutil

from core.errors import BadModel, MaclusterError, NodeError
from core.events import Value
from core.models.files.child_start import PARENT, ChildStart, say_hello
from core.pipe_messages import READ_BYTES
from core.settings import MIB

POLL_S: Final = 0.01
# what helps where the Mac may have been busy, or a file of the model makes its process fail
TRY_AGAIN: Final = "Try again. If that fails too, choose another version of the model."
_PARENT_POLL_S: Final = 0.2
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


class Running(NamedTuple):
    """The process of a job, and its pipes."""

    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]


def run_child(job: Job, request: bytes = b"", stop: threading.Event | None = None) -> tuple[int, bytes]:
    """Run `job` with `request` on standard input until it ends; returns exit status and output.

    Setting `stop` from another thread ends the child at once. Raises BadModel at the first limit that is hit, and
    NodeError if the child cannot start.
    """
    deadline = time.monotonic() + job.seconds
    try:
        start = ChildStart(job.module, *job.arguments)
        started = subprocess.Popen(start.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **start.options)
    except OSError as error:
        raise NodeError(
            f"{job.subject} can't start: {error.strerror}.", "Close other programs, then try again."
        ) from error
    with started as child:
        start.close()
        try:
            assert child.stdin
            assert child.stdout
            running = Running(child.pid, child.stdin, child.stdout)
            answer = exchange(running, job, request, deadline, stop)
            status = child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise BadModel(f"{job.subject} does not end.", job.fix) from error
        finally:
            child.kill()
    if (fault := start.fault()) and status:
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
    say_hello()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=_end_with, args=(int(os.environ.get(PARENT, os.getppid())),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_S)
    os._exit(1)


def exchange(child: Running, job: Job, request: bytes, deadline: float, stop: threading.Event | None = None) -> bytes:
    """Write the request and read the whole answer within the limits. Raises BadModel at the first limit hit."""
    process = psutil.Process(child.pid)
    answer = bytearray()
    unsent = memoryview(request)
    with selectors.DefaultSelector() as ready:
        os.set_blocking(child.stdin.fileno(), False)
        ready.register(child.stdin, selectors.EVENT_WRITE)
        ready.register(child.stdout, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select(POLL_S):
                if key.fileobj is child.stdin:
                    unsent = unsent[_write_some(child.stdin.fileno(), unsent) :]
                    if not unsent:
                        ready.unregister(child.stdin)
                        child.stdin.close()
                    continue
                part = os.read(child.stdout.fileno(), READ_BYTES)
                if not part:
                    return bytes(answer)
                answer += part
            check(process, job, len(answer), deadline)
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


def _write_some(fd: int, data: memoryview) -> int:
    """Number of bytes written; all of them if the child has closed its end."""
    try:
        return os.write(fd, data[:READ_BYTES])
    except BrokenPipeError:
        return len(data)


def rss_of(process: psutil.Process) -> int:
    """Resident memory in bytes; 0 if the process has ended."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def answer(work: Callable[[], object], cpu_seconds: int) -> int:
    """In the child: `confine`, then write the JSON result of `work`, or the Problem it raised, to standard output.

    Returns the exit status, 0 or 1.
    """
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
