"""A model's tokenizer in the test's process; a node starts a process for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from core.answer_parts import CallRules, Tool
from core.constraint import Constraint
from core.models.text.harmony import Stream
from core.models.text.text_messages import Decoded, Refused
from core.models.text.tokenizer import Tokens
from core.node.answers.answer_stream import PlainReader
from core.requests.answers import Message, TemplateOptions


class StreamHere:
    """Decodes at once."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def add(self, tokens: Sequence[int], named: Sequence[int], then: Callable[[Decoded | Refused], None]) -> None:
        text = "".join(map(self._stream.add, tokens))
        then(Decoded(text=text, held=self._stream.held, names=tuple(map(str, named))))

    async def add_all(self, tokens: Sequence[int]) -> Decoded:
        return Decoded(text="".join(map(self._stream.add, tokens)), held=self._stream.held)

    def reader(self, prompt: Sequence[int], tools: tuple[Tool, ...]) -> PlainReader:
        return PlainReader()

    def end(self) -> None:
        """End nothing; there is no process."""


class LateStream(StreamHere):
    """Decodes when the test calls the entry in `late`."""

    def __init__(self, stream: Stream, late: deque[Callable[[], None]]) -> None:
        super().__init__(stream)
        self._late = late

    def add(self, tokens: Sequence[int], named: Sequence[int], then: Callable[[Decoded | Refused], None]) -> None:
        self._late.append(partial(super().add, tokens, named, then))


class TokenizerHere:
    """In-process replacement of `core.node.answers.tokenizer.Tokenizer`."""

    is_over = False

    def __init__(self, tokens: Tokens) -> None:
        self._tokens, self.eos, self.vocab_size = tokens, tokens.eos, tokens.vocab_size
        self.sampling, self.longest = tokens.sampling, tokens.longest

    async def encode(
        self, messages: Sequence[Message], raw: bool, tools: Sequence[Tool], options: TemplateOptions
    ) -> list[int]:
        return self._tokens.encode(messages, raw, tools, options)

    async def constrain(
        self, constraint: Constraint | None, calls: CallRules, prompt: Sequence[int], raw: bool
    ) -> Constraint:
        return self._tokens.constrain(constraint, calls, prompt, raw=raw)

    def stream(self, name: str, *, is_chat: bool = False) -> StreamHere:
        return StreamHere(self._tokens.stream(is_chat=is_chat))

    async def end(self) -> None:
        """End nothing; there is no process."""


class LateTokenizer(TokenizerHere):
    """A tokenizer whose texts wait in `late`; calling an entry delivers it."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.late = deque[Callable[[], None]]()

    def stream(self, name: str, *, is_chat: bool = False) -> StreamHere:
        return LateStream(self._tokens.stream(is_chat=is_chat), self.late)


async def read_here(directory: Path) -> TokenizerHere:
    """The tokenizer of the model in `directory`."""
    return TokenizerHere(Tokens.load(directory))
