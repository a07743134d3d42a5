"""The tokenizer of a model in two processes: one encodes prompts, the other decodes answers.

So running answers never wait for a prompt, whatever its chat template does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from core.answer_parts import AnswerPart, CallRules, Tool
from core.constraint import Constraint
from core.errors import BadModel
from core.models.text import text_messages as wire
from core.node.answers.lasting_texts import LastingTexts
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.tokenizer_process import TokenizerProcess
from core.requests.answers import Message, TemplateOptions

LONG_PROMPT: Final = 1 << 20  # characters
LONG_AT_ONCE: Final = 2  # each takes memory of its own

Prompt = TypeVar("Prompt", wire.Encoded, wire.Constrained)


class PartsReader:
    """Turns the text of one answer into its parts."""

    def __init__(self, process: LastingTexts, name: str) -> None:
        self._process, self._name = process, name
        self._is_over = False

    async def read(self, text: str) -> tuple[AnswerPart, ...]:
        if not text:
            return ()
        return (await self._process.answer(wire.ReadText(stream=self._name, text=text), wire.Parts)).parts

    async def end(self, text: str, is_whole: bool) -> tuple[AnswerPart, ...]:
        last = await self.read(text)
        self._is_over = True
        ending = wire.EndReading(stream=self._name, is_whole=is_whole)
        return last + (await self._process.answer(ending, wire.Parts)).parts

    def drop(self) -> None:
        if not self._is_over:
            self._process.ask(wire.EndReading(stream=self._name, is_whole=False), lambda _: None)


class AnswerText:
    """Turns the tokens of one answer into text, in whole characters."""

    def __init__(self, process: LastingTexts, name: str, *, is_chat: bool) -> None:
        self._process, self._name, self._is_chat = process, name, is_chat

    def add(
        self, tokens: Sequence[int], named: Sequence[int], then: Callable[[wire.Decoded | wire.Refused], None]
    ) -> None:
        self._process.ask(self._decode(tokens, named), partial(_decoded, then))

    async def add_all(self, tokens: Sequence[int]) -> wire.Decoded:
        return await self._process.answer(self._decode(tokens), wire.Decoded)

    def _decode(self, tokens: Sequence[int], named: Sequence[int] = ()) -> wire.Decode:
        return wire.Decode(stream=self._name, tokens=list(tokens), is_chat=self._is_chat, named=list(named))

    def reader(self, prompt: Sequence[int], tools: tuple[Tool, ...]) -> PartsReader:
        begin = wire.BeginReading(stream=self._name, prompt_end=list(prompt[-wire.PROMPT_END :]), tools=tools)
        self._process.ask(begin, lambda _: None)
        return PartsReader(self._process, self._name)

    def end(self) -> None:
        self._process.ask(wire.EndStream(stream=self._name), lambda _: None)


class Tokenizer:
    """Encodes prompts and decodes answers, each in a process that is replaced when it ends. A long prompt
    has a process of its own, so that no other prompt waits for it; `LONG_AT_ONCE` of them run at the same time.
    """

    def __init__(self, directory: Path, texts: TokenizerProcess, prompts: ModelTokenizer[TokenizerProcess]) -> None:
        self._texts, self._prompts = LastingTexts(texts, partial(TokenizerProcess.start, directory)), prompts
        read = texts.read
        self.eos, self.vocab_size, self.longest, self.sampling = read.eos, read.vocab_size, read.longest, read.sampling
        self._directory, self._turns_of_long = directory, asyncio.Semaphore(LONG_AT_ONCE)

    @classmethod
    async def start(cls, directory: Path) -> Tokenizer:
        """Read the tokenizer of the model in `directory`. Raises ModelNotFound, BadModel."""
        texts, prompts = ModelTokenizer(TokenizerProcess.start), ModelTokenizer(TokenizerProcess.start)
        try:
            await asyncio.gather(texts.read(directory), prompts.read(directory))
            reading = texts.now()
            assert reading
            return cls(directory, reading.result(), prompts)
        except BaseException:  # even if the caller was cancelled
            await asyncio.gather(texts.close(), prompts.close())
            raise

    @property
    def is_over(self) -> bool:
        return self._texts.is_over

    async def encode(
        self, messages: Sequence[Message], raw: bool, tools: Sequence[Tool] = (), options: TemplateOptions | None = None
    ) -> list[int]:
        """Token ids of the prompt, as `core.models.text.tokenizer.Tokens.encode`. Raises BadModel, UsageError."""
        asked = wire.Encode(messages=tuple(messages), raw=raw, tools=tuple(tools), template_options=options or {})
        if sum(len(message.content) for message in messages) <= LONG_PROMPT:
            return (await self._prompt(asked, wire.Encoded)).tokens
        async with self._turns_of_long:
            process = await TokenizerProcess.start(self._directory)
            try:
                return (await process.answer(asked, wire.Encoded)).tokens
            finally:
                await process.end()

    async def constrain(
        self, constraint: Constraint | None, calls: CallRules, prompt: Sequence[int], raw: bool
    ) -> Constraint:
        """The constraint on the answer to `prompt`, as `core.models.text.tokenizer.Tokens.constrain`. Raises
        UsageError, ModelError.
        """
        asked = wire.Constrain(constraint=constraint, calls=calls, prompt_end=list(prompt[-wire.PROMPT_END :]), raw=raw)
        return (await self._prompt(asked, wire.Constrained)).constraint

    def stream(self, name: str, *, is_chat: bool = False) -> AnswerText:
        return AnswerText(self._texts, name, is_chat=is_chat)

    async def end(self) -> None:
        await asyncio.gather(self._texts.close(), self._prompts.close())

    async def _prompt(self, asked: wire.Encode | wire.Constrain, kind: type[Prompt]) -> Prompt:
        while reading := self._prompts.now():
            process = await asyncio.shield(reading)
            try:
                return await process.answer(asked, kind)
            except BadModel:
                if process.ended_by is asked or not process.is_over:
                    raise
        raise BadModel("The tokenizer was stopped.", "Try again.")


def _decoded(then: Callable[[wire.Decoded | wire.Refused], None], answer: wire.TextAnswer) -> None:
    assert isinstance(answer, wire.Decoded | wire.Refused)
    then(answer)
