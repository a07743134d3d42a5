"""A child that stands ready: each piece of work runs in a copy of it, which is watched, confined and ended as one that
is started anew, but need not import anything first.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from signal import SIGKILL
from typing import Final

from core.errors import BadModel
from core.models.files.sandbox import PARENT, Job, Running, command_of, end_with_parent, environment, exchange, finished

READY: Final = "--ready"
_NUMBER: Final = struct.Struct("<i")
_START_S: Final = 60.0  # a busy machine takes a while to start one


class ReadyChild:
    """Runs one job at a time of `module`, which calls `serve_copies` where it is started with `READY`. It starts with
    the first job, unless it was started before, and ends with this object, or with this process.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._line: socket.socket | None = None

    def run(self, job: Job, request: bytes) -> tuple[int, bytes]:
        """As `sandbox.run_child`. Raises BadModel at the first limit that is hit."""
        deadline = time.monotonic() + job.seconds
        line = self.start()
        try:
            copy = _copied(line)
            with copy.stdin, copy.stdout:
                try:
                    answer = exchange(copy, job, request, deadline)
                    line.settimeout(max(0.1, deadline - time.monotonic()))
                    status = _read(line)
                except BaseException as error:  # whatever it was, the copy does not stay
                    with suppress(ProcessLookupError):
                        os.kill(copy.pid, SIGKILL)
                    line.settimeout(_START_S)
                    _read(line)
                    if isinstance(error, TimeoutError):
                        raise BadModel(f"{job.subject} does not end.", job.fix) from error
                    raise
        except (OSError, EOFError) as error:
            self._line = None
            raise BadModel(f"{job.subject} cannot be run: its process is gone.", job.fix) from error
        return finished(job, status), answer

    def start(self) -> socket.socket:
        """Have it ready, and the line to it."""
        if self._line:
            return self._line
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            command_of(self._module, READY),
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
        )
        theirs.close()
        weakref.finalize(self, _end, ours, process)
        self._line = ours
        return ours


def _copied(line: socket.socket) -> Running:
    its_input, stdin = os.pipe()
    stdout, its_output = os.pipe()
    ours = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)
    try:
        line.settimeout(_START_S)
        socket.send_fds(line, [b"."], [its_input, its_output])
        return Running(_read(line), *ours)
    except BaseException:  # whatever it was, no pipe stays open
        for pipe in ours:
            pipe.close()
        raise
    finally:
        os.close(its_input)
        os.close(its_output)


def serve_copies(work: Callable[[], int]) -> None:
    """The child's side: run `work` in a copy for each pair of pipes that comes, its standard input and output."""
    end_with_parent()
    line = socket.socket(fileno=os.dup(0))
    while True:
        _, pipes, _, _ = socket.recv_fds(line, 1, 2)
        if len(pipes) != 2:
            return
        pid = os.fork()
        if pid == 0:
            _become(pipes, line, work)
        for pipe in pipes:
            os.close(pipe)
        line.sendall(_NUMBER.pack(pid))
        _, status = os.waitpid(pid, 0)
        line.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _become(pipes: list[int], line: socket.socket, work: Callable[[], int]) -> None:
    status = 1
    try:
        line.close()
        for own, pipe in enumerate(pipes):
            os.dup2(pipe, own)
            os.close(pipe)
        os.environ[PARENT] = str(os.getppid())
        status = work()
    finally:
        os._exit(status)


def _read(line: socket.socket) -> int:
    data = line.recv(_NUMBER.size, socket.MSG_WAITALL)
    if len(data) != _NUMBER.size:
        raise EOFError
    (number,) = _NUMBER.unpack(data)
    return int(number)


def _end(line: socket.socket, process: subprocess.Popen[bytes]) -> None:
    line.close()
    process.kill()
    process.wait()
