"""A warm child process for several jobs, each with the limits of `sandbox`, without the start-up time of a new child.

A job that hits a limit ends the child.
"""

from __future__ import annotations

import os
import socket
import subprocess
import weakref
from collections.abc import Callable
from typing import NoReturn

import msgspec

from core.errors import BadModel
from core.models.files.sandbox import Child, Job, allow, end_with_parent, exchange, finished, rss_of
from core.pipe_messages import pack, read_messages, split

Work = Callable[[bytes], tuple[int, bytes]]


class _JobRequest(msgspec.Struct, frozen=True, array_like=True):
    data: bytes


class _JobAnswer(msgspec.Struct, frozen=True, array_like=True):
    status: int
    data: bytes


class ReadyChild:
    """Runs jobs of one module, which calls `run_jobs`, one at a time; starts with the first job."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._end: Callable[[], object] = lambda: None

    def run(self, job: Job, request: bytes) -> tuple[int, bytes]:
        """Like `sandbox.run_child`. Raises BadModel at the first limit that is hit, and NodeError."""
        child, self._child = self._child or self._begun(job), None
        try:
            status, answer = _exchanged(child, job, request)
            if rss_of(child.watched) < job.rss_bytes // 3:  # otherwise the next job would have too little memory
                self._child = child
        except (EOFError, msgspec.MsgspecError) as error:
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

    def _begun(self, job: Job) -> Child:
        child = Child.begin(job, answers_by_line=True)
        self._end = weakref.finalize(self, _end, child.line, child.process)
        return child


def _exchanged(child: Child, job: Job, request: bytes) -> tuple[int, bytes]:
    read = bytearray()
    for part in exchange(child, job, pack(_JobRequest(data=request))):
        read += part
        for body in split(read):
            answer = msgspec.msgpack.decode(body, type=_JobAnswer)
            return answer.status, answer.data
    raise EOFError


def run_one(job: Job, request: bytes) -> tuple[int, bytes]:
    """Run one job in a child of its own."""
    return ReadyChild().run(job, request)


def run_jobs(work: Work, seconds: int, get_ready: Callable[[], object]) -> NoReturn:
    """The child's main loop: each job gets `seconds` of processor time; `work` returns exit status and answer."""
    get_ready()
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
