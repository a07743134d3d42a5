"""A child process that runs a model's tokenizer, bounded in time and memory."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, TypeVar, cast

import msgspec
import psutil

from core.errors import BadModel, Problem, error_from
from core.models.files.checked_files import name_of
from core.models.files.child_start import ChildStart, starting
from core.models.files.sandbox import TRY_AGAIN, rss_of
from core.models.text import text_messages as wire
from core.node.base.kill_process import kill_unless_over
from core.pipe_messages import pack, split
from core.settings import MIB

MAX_RSS_BYTES: Final = 2048 * MIB
MAX_CHAT_BYTES: Final = 512 * MIB  # growth while a chat template runs
LOOK_S: Final = 0.02

Answer = TypeVar("Answer", wire.TokenizerRead, wire.Encoded, wire.Constrained, wire.Decoded, wire.Parts)


class _Pending(NamedTuple):
    request: wire.TextRequest
    then: Callable[[wire.TextAnswer], None]


class TokenizerProcess(asyncio.SubprocessProtocol):
    """Answers requests in order."""

    read: wire.TokenizerRead  # what it has read

    def __init__(self, name: str, start: ChildStart) -> None:
        self._name, self._start = name, start
        self._fault: Problem | None = None  # of this installation
        self._waiting: deque[_Pending] = deque()
        self._begun_at = 0.0
        self._had_bytes, self._had_at = 0, 0.0
        self._arrived = bytearray()
        self._look: asyncio.TimerHandle | None = None
        self._why, self._is_garbled = "", False
        self._end = asyncio.Event()
        self.is_over = False  # whether it has ended
        self.ended_by: wire.TextRequest | None = None  # the request that it was working on when it ended
        self.is_at_fault = False  # whether it ended at a limit

    @classmethod
    async def start(cls, directory: Path) -> TokenizerProcess:
        """Start one and read the tokenizer of the model in `directory`. Raises ModelNotFound, BadModel, NodeError."""
        with starting(f"The tokenizer of {name_of(directory)}"):
            start = ChildStart("core.models.text")
            _, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: cls(name_of(directory), start), *start.command, stdin=PIPE, stdout=PIPE, **start.options
            )
        start.close()
        try:
            process.read = await process.answer(wire.ReadTokenizer(directory=str(directory)), wire.TokenizerRead)
        except BaseException:  # even if the caller was cancelled
            await process.end()
            raise
        return process

    async def end(self) -> None:
        self._pipe.close()
        self._kill(f"The tokenizer of {self._name} was stopped.")
        await self._end.wait()

    def ask(self, request: wire.TextRequest, then: Callable[[wire.TextAnswer], None]) -> None:
        """Send a request; `then` gets its answer, or the reason for having none."""
        if self._pipe.is_closing():  # before the loop has said that the process ended
            self._kill()
        if self.is_over:
            then(self.refused())
            return
        if not self._waiting:
            self._begun_at = monotonic()
        self._waiting.append(_Pending(request, then))
        self._pipe.write(pack(request))
        self._look = self._look or asyncio.get_running_loop().call_later(LOOK_S, self._check)

    async def answer(self, request: wire.TextRequest, kind: type[Answer]) -> Answer:
        """Send a request and wait for its answer. Raises BadModel, UsageError."""
        return await answered(partial(self.ask, request), kind)

    async def ended(self) -> None:
        """Wait for the end of a process that is over."""
        self._kill()
        await self._end.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._process = cast(asyncio.SubprocessTransport, transport)
        self._watched = psutil.Process(self._process.get_pid())
        self._pipe = cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._arrived += data
        try:
            for body in split(self._arrived):
                self._take(wire.unpack_answer(body))
        except msgspec.MsgspecError:
            self._is_garbled = True
            self._kill()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._kill()

    def connection_lost(self, exc: Exception | None) -> None:
        self._kill()
        self._process.close()
        status = self._process.get_returncode()
        if (fault := self._start.fault()) and not self._why:
            self._fault = fault.problem
        if status == -wire.OUT_OF_TIME:
            self._why = self._why or f"The chat template of {self._name} takes too long."
        self.is_at_fault = bool(self._why) or self._is_garbled or status == -signal.SIGXCPU
        does = (
            "sent something unreadable"
            if self._is_garbled
            else "takes too long"
            if status == -signal.SIGXCPU
            else f"ends its process (status {status})"
        )
        self._why = self._why or f"The tokenizer of {self._name} {does}."
        self.ended_by = self._waiting[0].request if self._waiting else None
        for waiting in self._waiting:
            asyncio.get_running_loop().call_soon(waiting.then, self.refused())
        self._waiting.clear()
        self._end.set()

    def _take(self, answer: wire.TextAnswer) -> None:
        if not self._waiting:
            raise msgspec.ValidationError("An answer without a request.")
        first = self._waiting.popleft()
        self._begun_at = monotonic()
        first.then(answer)

    def _check(self) -> None:
        self._look = None
        if self.is_over or not self._waiting:
            return
        # first, so that the check repeats after any failure below
        self._look = asyncio.get_running_loop().call_later(LOOK_S, self._check)
        request = self._waiting[0].request
        is_chat = isinstance(request, wire.Encode) and not request.raw
        has = rss_of(self._watched)
        if self._had_at != self._begun_at:
            self._had_bytes, self._had_at = has, self._begun_at
        most = min(MAX_RSS_BYTES, self._had_bytes + MAX_CHAT_BYTES) if is_chat else MAX_RSS_BYTES
        subject = f"The {'chat template or the ' if is_chat else ''}tokenizer of {self._name}"
        if monotonic() - self._begun_at > request.wall_s:
            self._kill(f"{subject} takes too long.")
        elif has > most:
            self._kill(f"{subject} takes more than {most // MIB} MiB of memory.")

    def _kill(self, why: str = "") -> None:
        self.is_over, self._why = True, self._why or why
        kill_unless_over(self._process.get_pid(), self._process.get_returncode())

    def refused(self) -> wire.Refused:
        return wire.Refused(
            problem=self._fault or BadModel(self._why or f"The tokenizer of {self._name} ends.", TRY_AGAIN).problem
        )


async def answered(ask: Callable[[Callable[[wire.TextAnswer], None]], None], kind: type[Answer]) -> Answer:
    """Call `ask` and wait for the answer. Raises BadModel, UsageError."""
    answer: asyncio.Future[wire.TextAnswer] = asyncio.get_running_loop().create_future()

    def take(said: wire.TextAnswer) -> None:
        if not answer.done():  # the caller may be gone
            answer.set_result(said)

    ask(take)
    match await answer:
        case wire.Refused(problem=problem):
            raise error_from(problem)
        case said:
            assert isinstance(said, kind)
            return said
