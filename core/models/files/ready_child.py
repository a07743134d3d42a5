"""A warm child process for several jobs, each with the limits of `sandbox`, without the start-up time of a new child.

A job that hits a limit ends the child.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

import msgspec
import psutil

from core.errors import BadModel
from core.models.files.child_start import ChildStart
from core.models.files.sandbox import (
    POLL_S,
    Job,
    allow,
    check,
    confine,
    end_with_parent,
    finished,
    rss_of,
)
from core.pipe_messages import READ_BYTES, pack, read_messages, split

READY: Final = "--ready"
_FRAME_BYTES: Final = 32  # of a message without its data, at most

Work = Callable[[bytes], tuple[int, bytes]]


class _JobRequest(msgspec.Struct, frozen=True, array_like=True):
    data: bytes


class _JobAnswer(msgspec.Struct, frozen=True, array_like=True):
    status: int
    data: bytes


class _Child(NamedTuple):
    process: subprocess.Popen[bytes]
    watched: psutil.Process
    line: socket.socket
    start: ChildStart


class ReadyChild:
    """Runs jobs of `module`, which calls `run_jobs`, one at a time; starts with the first job or `start`."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._child: _Child | None = None
        self._end: Callable[[], object] = lambda: None

    def run(self, job: Job, request: bytes) -> tuple[int, bytes]:
        """Like `sandbox.run_child`. Raises BadModel at the first limit that is hit."""
        self.start()
        child, self._child = self._child, None
        assert child
        try:
            status, answer = _exchanged(child, job, request)
            if rss_of(child.watched) < job.rss_bytes // 3:  # otherwise the next job would have too little memory
                self._child = child
        except TimeoutError as error:
            raise BadModel(f"{job.subject} does not end in time.", job.fix) from error
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            child.process.kill()
            status = child.process.wait()
            if fault := child.start.fault():
                raise fault from error
            finished(job, status)
            raise BadModel(f"{job.subject} cannot be run: its process is gone.", job.fix) from error
        finally:
            if self._child is None:
                self._end()
        return status, answer

    def start(self) -> None:
        if self._child:
            return
        ours, theirs = socket.socketpair()
        start = ChildStart(self._module, READY)
        process = subprocess.Popen(start.command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, **start.options)
        start.close()
        theirs.close()
        self._end = weakref.finalize(self, _end, ours, process)
        self._child = _Child(process, psutil.Process(process.pid), ours, start)


def _exchanged(child: _Child, job: Job, request: bytes) -> tuple[int, bytes]:
    deadline = time.monotonic() + job.seconds
    child.line.settimeout(job.seconds)
    child.line.sendall(pack(_JobRequest(data=request)))
    child.line.settimeout(POLL_S)
    read = bytearray()
    while True:
        for body in split(read):
            answer = msgspec.msgpack.decode(body, type=_JobAnswer)
            return answer.status, answer.data
        try:
            part = child.line.recv(READ_BYTES)
        except TimeoutError:
            part = None
        if part == b"":
            raise EOFError
        read += part or b""
        check(child.watched, job, len(read) - _FRAME_BYTES, deadline)


def run_jobs(work: Work, seconds: int, get_ready: Callable[[], object]) -> NoReturn:
    """Main loop of the child: `work` returns exit status and answer, within `seconds` of processor time per request.

    A child started for many jobs calls `get_ready` first, then does one job after another.
    """
    if READY in sys.argv:
        get_ready()
        _serve(work, seconds)
    confine(seconds)
    status, answer = work(sys.stdin.buffer.read())
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    sys.exit(status)


def _serve(work: Work, seconds: int) -> NoReturn:
    end_with_parent()
    with socket.socket(fileno=os.dup(0)) as line:
        for body in read_messages(line.recv):
            request = msgspec.msgpack.decode(body, type=_JobRequest)
            allow(seconds)
            status, answer = work(request.data)
            line.sendall(pack(_JobAnswer(status=status, data=answer)))
    os._exit(0)


def _end(line: socket.socket, process: subprocess.Popen[bytes]) -> None:
    line.close()
    process.kill()
    process.wait()
