"""The tokenizer of a model, in a process of its own: what its rules do to a text is bounded in time and memory."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple, TypeVar

import msgspec
import psutil

from core.answer_parts import AnswerPart, CallRules, Tool
from core.constraint import Constraint
from core.errors import BadModel, error_from
from core.models.files.sandbox import command_of, environment
from core.models.text.text_messages import (
    PROMPT_END,
    BeginReading,
    Constrain,
    Constrained,
    Decode,
    Decoded,
    Encode,
    Encoded,
    EndReading,
    EndStream,
    Parts,
    ReadText,
    ReadTokenizer,
    Refused,
    TextAnswer,
    TextRequest,
    TokenizerRead,
    unpack_answer,
)
from core.node.base.killing import kill
from core.node.base.tasks import Tasks
from core.pipe_messages import pack, read_message
from core.requests import Message, TemplateOptions
from core.settings import MIB

MAX_RSS_BYTES: Final = 2048 * MIB
# of wall time, where a Mac computes and swaps; the process bounds its processor time by itself
MAX_SECONDS: Final = {
    ReadTokenizer: 120.0,
    Encode: 90.0,
    Constrain: 90.0,
    Decode: 60.0,
    EndStream: 60.0,
    BeginReading: 60.0,
    ReadText: 60.0,
    EndReading: 60.0,
}
LOOK_S: Final = 0.2
FIX: Final = "Fetch the model from a source you trust."

Answer = TypeVar("Answer", TokenizerRead, Encoded, Constrained, Decoded, Parts)


class Waiting(NamedTuple):
    """Who waits for an answer, and until when."""

    then: Callable[[TextAnswer], None]
    deadline: float


class PartsReader:
    """The text of one answer in, as it is shown, its parts out."""

    def __init__(self, process: TokenizerProcess, name: str) -> None:
        self._process, self._name = process, name
        self._is_over = False

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        """What the text completes. Raises BadModel."""
        if not text:
            return ()
        return (await self._process.answer(ReadText(stream=self._name, text=text), Parts)).parts

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        """The last text, and what was held back; `is_whole`: for the model ended it. Raises BadModel."""
        last = await self.read(text)
        self._is_over = True
        return last + (await self._process.answer(EndReading(stream=self._name, is_whole=is_whole), Parts)).parts

    def drop(self) -> None:
        """Nobody wants any more of it."""
        if not self._is_over:
            self._process.ask(EndReading(stream=self._name, is_whole=False), lambda _: None)


class TextStream:
    """The tokens of one answer in, text out as soon as whole characters are there."""

    def __init__(self, process: TokenizerProcess, name: str) -> None:
        self._process, self._name = process, name

    def add(self, token: int, then: Callable[[Decoded | Refused], None]) -> None:
        """`then` is called with what `token` completes, in the order of the tokens, or with why there will be none."""
        self._process.ask(Decode(stream=self._name, tokens=[token]), partial(_decoded, then))

    async def add_all(self, tokens: Sequence[int]) -> Decoded:
        """What many tokens say. Raises BadModel."""
        return await self._process.answer(Decode(stream=self._name, tokens=list(tokens)), Decoded)

    def reader(self, prompt: Sequence[int], tools: tuple[Tool, ...], *, shaped: bool) -> PartsReader:
        """What tells the parts of the text of this answer to `prompt`; it goes on where the stream has ended. `shaped`:
        it has a constraint.
        """
        begin = BeginReading(stream=self._name, prompt_end=list(prompt[-PROMPT_END:]), tools=tools, shaped=shaped)
        self._process.ask(begin, lambda _: None)
        return PartsReader(self._process, self._name)

    def end(self) -> None:
        """No more tokens come."""
        self._process.ask(EndStream(stream=self._name), lambda _: None)


class TokenizerProcess:
    """`eos`: token ids that end an answer; all ids are below `vocab_size`. `is_over`: the process has ended,
    and answers no more.
    """

    def __init__(self, process: Process, name: str, tasks: Tasks) -> None:
        assert process.stdin
        assert process.stdout
        self._process, self._pipe, self._name = process, process.stdin, name
        self._numbers = count(1)
        self._waiting: dict[int, Waiting] = {}
        self._why = ""
        self.is_over = False
        self.eos: frozenset[int] = frozenset()
        self.vocab_size = 0
        self._reader = tasks.spawn("The reader of the tokenizer", self._read(process.stdout))
        self._watcher = tasks.spawn("The watch over the tokenizer", self._watch())

    async def encode(
        self,
        messages: Sequence[Message],
        raw: bool,
        tools: Sequence[Tool] = (),
        options: TemplateOptions | None = None,
    ) -> list[int]:
        """Token ids of the prompt, as `core.models.text.tokenizer.Tokens.encode`. Raises BadModel, UsageError."""
        asked = Encode(messages=tuple(messages), raw=raw, tools=tuple(tools), template_options=options or {})
        return (await self.answer(asked, Encoded)).tokens

    async def constrain(
        self, constraint: Constraint | None, calls: CallRules, prompt: Sequence[int], raw: bool
    ) -> Constraint:
        """What the answer to `prompt` must look like, as `core.models.text.tokenizer.Tokens.constrain`. Raises
        UsageError, ModelError.
        """
        asked = Constrain(constraint=constraint, calls=calls, prompt_end=list(prompt[-PROMPT_END:]), raw=raw)
        return (await self.answer(asked, Constrained)).constraint

    def stream(self, name: str) -> TextStream:
        """Tokens to text, for one answer."""
        return TextStream(self, name)

    async def end(self) -> None:
        """Until the process has ended."""
        self._pipe.close()
        self._kill("was ended")
        await asyncio.wait({self._reader, self._watcher})

    def ask(self, request: TextRequest, then: Callable[[TextAnswer], None]) -> None:
        """Send a request; `then` is called with its answer, or with what became of the process."""
        number = next(self._numbers)
        if self.is_over or self._pipe.is_closing():
            then(self._refused())
            return
        self._waiting[number] = Waiting(then, monotonic() + MAX_SECONDS[type(request)])
        self._pipe.write(pack(msgspec.structs.replace(request, number=number)))

    async def answer(self, request: TextRequest, kind: type[Answer]) -> Answer:
        """What it answers. Raises BadModel, UsageError."""
        answered: asyncio.Future[TextAnswer] = asyncio.get_running_loop().create_future()

        def take(answer: TextAnswer) -> None:
            if not answered.done():  # whoever asked may be gone
                answered.set_result(answer)

        self.ask(request, take)
        match await answered:
            case Refused(problem=problem):
                raise error_from(problem)
            case answer:
                assert isinstance(answer, kind)
                return answer

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        try:
            while True:
                answer = unpack_answer(await read_message(stdout))
                if waiting := self._waiting.pop(answer.number, None):
                    waiting.then(answer)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        except msgspec.MsgspecError:
            self._why = "says something unreadable"
        finally:
            self.is_over = True
            self._kill(self._why)
            status = await self._process.wait()
            if not self._why:
                is_late = status == -signal.SIGXCPU
                self._why = "takes too long" if is_late else f"ends its process (status {status})"
            waiting_still, self._waiting = self._waiting, {}
            for waiting in waiting_still.values():
                waiting.then(self._refused())

    async def _watch(self) -> None:
        while not self.is_over:
            await asyncio.sleep(LOOK_S)
            if any(waiting.deadline < monotonic() for waiting in self._waiting.values()):
                self._kill("takes too long")
            elif self._waiting and _rss(self._process.pid) > MAX_RSS_BYTES:
                self._kill(f"takes more than {MAX_RSS_BYTES // MIB} MiB of memory")

    def _kill(self, why: str) -> None:
        self._why = self._why or why
        kill(self._process)

    def _refused(self) -> Refused:
        return Refused(problem=BadModel(f"The tokenizer of {self._name} {self._why}.", FIX).problem)


async def start_tokenizer(directory: Path, tasks: Tasks) -> TokenizerProcess:
    """A process that has read the tokenizer of the model in `directory`. Raises ModelNotFound, BadModel."""
    process = await asyncio.create_subprocess_exec(
        *command_of("core.models.text"), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment()
    )
    tokenizer = TokenizerProcess(process, directory.name, tasks)
    try:
        read = await tokenizer.answer(ReadTokenizer(directory=str(directory)), TokenizerRead)
        tokenizer.eos, tokenizer.vocab_size = read.eos, read.vocab_size
    except BaseException:  # also where nobody waits for it any more
        await tokenizer.end()
        raise
    return tokenizer


def _decoded(then: Callable[[Decoded | Refused], None], answer: TextAnswer) -> None:
    assert isinstance(answer, Decoded | Refused)
    then(answer)


def _rss(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
