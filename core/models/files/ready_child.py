"""A warm child process for several jobs, each with the limits of `sandbox`, without the start-up time of a new child.

A job that hits a limit ends the child.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

import psutil

from core.errors import BadModel
from core.models.files.child_start import ChildStart
from core.models.files.sandbox import (
    POLL_S,
    READ_BYTES,
    Job,
    allow,
    check,
    confine,
    end_with_parent,
    finished,
    rss_of,
)

READY: Final = "--ready"
_REQUEST: Final = struct.Struct("<I")  # length
_ANSWER: Final = struct.Struct("<iI")  # exit status, length

Work = Callable[[bytes], tuple[int, bytes]]


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
        except (OSError, EOFError) as error:
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
        process = subprocess.Popen(
            start.command,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=start.stderr,
            env=start.env,
            pass_fds=start.pass_fds,
        )
        start.close()
        theirs.close()
        self._end = weakref.finalize(self, _end, ours, process)
        self._child = _Child(process, psutil.Process(process.pid), ours, start)


def _exchanged(child: _Child, job: Job, request: bytes) -> tuple[int, bytes]:
    deadline = time.monotonic() + job.seconds
    child.line.settimeout(job.seconds)
    child.line.sendall(_REQUEST.pack(len(request)) + request)
    child.line.settimeout(POLL_S)
    read = bytearray()
    while len(read) < _ANSWER.size or len(read) < _ANSWER.size + _ANSWER.unpack_from(read)[1]:
        try:
            part = child.line.recv(READ_BYTES)
        except TimeoutError:
            part = None
        if part == b"":
            raise EOFError
        read += part or b""
        check(child.watched, job, len(read) - _ANSWER.size, deadline)
    status, _ = _ANSWER.unpack_from(read)
    return int(status), bytes(read[_ANSWER.size :])


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
    with socket.socket(fileno=os.dup(0)) as line, line.makefile("rb") as inbox:
        while len(head := inbox.read(_REQUEST.size)) == _REQUEST.size:
            request = inbox.read(*_REQUEST.unpack(head))
            allow(seconds)
            status, answer = work(request)
            line.sendall(_ANSWER.pack(status, len(answer)) + answer)
    os._exit(0)


def _end(line: socket.socket, process: subprocess.Popen[bytes]) -> None:
    line.close()
    process.kill()
    process.wait()
