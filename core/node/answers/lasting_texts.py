"""The text process of a model, replaced when it ends: the texts of all answers go on in the next one.

Each stream's requests that were answered are repeated there. Only an answer at which a process reaches a limit, or two
processes end, is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec

from core.errors import BadModel, MaclusterError, NodeError
from core.models.text.text_messages import BeginReading, Decode, EndReading, EndStream, ReadText, Refused, TextAnswer
from core.node.answers.tokenizer_process import Answer, TokenizerProcess, answered

StreamRequest = Decode | EndStream | BeginReading | ReadText | EndReading


class _AskedText(NamedTuple):
    request: StreamRequest
    then: Callable[[TextAnswer], None]


@dataclass
class _TextStream:
    """A stream as the next process has to know it."""

    decoded: Decode | None = None  # the last request
    tokens: list[int] = field(default_factory=list)
    begun: BeginReading | None = None
    read: list[str] = field(default_factory=list)

    def requests(self) -> Iterator[StreamRequest]:
        if self.decoded:
            yield msgspec.structs.replace(self.decoded, tokens=self.tokens, named=[])
        if self.begun:
            yield self.begun
            yield ReadText(stream=self.begun.stream, text="".join(self.read))

    def note(self, request: StreamRequest) -> None:
        match request:
            case Decode(tokens=tokens):
                self.decoded = request
                self.tokens += tokens
            case EndStream():
                self.decoded = None
            case BeginReading():
                self.begun = request
            case ReadText(text=text):
                self.read.append(text)
            case EndReading():
                self.begun = None


class LastingTexts:
    """Answers the requests of all streams in order; `start` makes the next process."""

    def __init__(self, process: TokenizerProcess, start: Callable[[], Awaitable[TokenizerProcess]]) -> None:
        self.process, self._start = process, start
        self._asked: deque[_AskedText] = deque()
        self._streams: dict[str, _TextStream] = {}
        self._broken: dict[str, Refused] = {}  # streams at which processes ended
        self._suspect = ""  # the stream at which the last process ended
        self._restarting: asyncio.Task[None] | None = None
        self._end: Refused | None = None

    @property
    def is_over(self) -> bool:
        return self._end is not None

    async def close(self) -> None:
        self._end = self._end or Refused(problem=BadModel("The tokenizer was stopped.", "Try again.").problem)
        if restarting := self._restarting:
            restarting.cancel()
            await asyncio.wait([restarting])
        await self.process.end()

    def ask(self, request: StreamRequest, then: Callable[[TextAnswer], None]) -> None:
        """Send a request; `then` gets its answer, or the reason for having none."""
        if refused := self._end or self._broken.get(request.stream):
            if isinstance(request, EndStream):
                self._broken.pop(request.stream, None)
            then(refused)
            return
        self._asked.append(_AskedText(request, then))
        if self._restarting is None:
            self.process.ask(request, partial(self._answered, self.process))

    async def answer(self, request: StreamRequest, kind: type[Answer]) -> Answer:
        """Send a request and wait for its answer. Raises BadModel, UsageError."""
        return await answered(partial(self.ask, request), kind)

    def _answered(self, process: TokenizerProcess, answer: TextAnswer) -> None:
        if process is not self.process or self._ends(answer):
            return
        request, then = self._asked.popleft()
        if not isinstance(answer, Refused):
            stream = self._streams.setdefault(request.stream, _TextStream())
            stream.note(request)
            if not (stream.decoded or stream.begun):
                del self._streams[request.stream]
            if self._suspect == request.stream:
                self._suspect = ""
        then(answer)

    def _repeated(self, process: TokenizerProcess, name: str, answer: TextAnswer) -> None:
        if process is self.process and not self._ends(answer) and isinstance(answer, Refused):
            self._break(name, answer)

    def _ends(self, answer: TextAnswer) -> bool:
        """Whether the process has ended instead of answering; the next one is being started then."""
        has_ended = isinstance(answer, Refused) and self.process.is_over and not self._end
        if has_ended and self._restarting is None:
            self._restarting = asyncio.ensure_future(self._restart())
        return self._restarting is not None

    async def _restart(self) -> None:
        await self.process.ended()
        if (last := self.process.ended_by) and isinstance(last, StreamRequest):
            if self.process.is_at_fault or self._suspect == last.stream:
                self._break(last.stream, self.process.refused())
            self._suspect = last.stream
        try:
            self.process = process = await self._start()
        except (MaclusterError, OSError) as error:  # the system may start no process now
            own = error if isinstance(error, MaclusterError) else NodeError(f"No tokenizer can start: {error}.")
            self._end = Refused(problem=own.problem)
            while self._asked:
                self._asked.popleft().then(self._end)
            return
        finally:
            self._restarting = None
        for name, stream in [*self._streams.items()]:
            for request in stream.requests():
                process.ask(request, partial(self._repeated, process, name))
        for asked in [*self._asked]:
            process.ask(asked.request, partial(self._answered, process))

    def _break(self, name: str, refused: Refused) -> None:
        """Refuse all requests of a stream from now on."""
        self._streams.pop(name, None)
        self._broken[name] = refused
        waiting = [asked for asked in self._asked if asked.request.stream == name]
        self._asked = deque(asked for asked in self._asked if asked.request.stream != name)
        for asked in waiting:
            asked.then(refused)
