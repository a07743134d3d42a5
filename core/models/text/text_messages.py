"""Messages between a node and its tokenizer process, over that process's stdin and stdout, packed by
`core.pipe_messages`. Responses come in the order of the requests.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from core.answer_parts import AnswerPart, CallRules, Tool
from core.constraint import Constraint
from core.errors import Problem
from core.requests.answers import Message, TemplateOptions
from core.sampling_options import Sampling

PROMPT_END: Final = 16  # last tokens of a prompt that show whether the answer begins with reasoning
OUT_OF_TIME: Final = signal.SIGPROF  # ends the process when a chat template takes too long


class TextMessage(msgspec.Struct, frozen=True, kw_only=True, tag=""):
    """Base of all messages."""


class AskedText(TextMessage, frozen=True, kw_only=True):
    """Base of all requests."""

    cpu_s: ClassVar[int] = 10  # processor time that the process allows itself
    wall_s: ClassVar[float] = 60.0  # time that the node allows it; generous since a Mac may compute and swap


class ReadTokenizer(AskedText, frozen=True, kw_only=True, tag="ReadTokenizer"):
    """First request: read the tokenizer of the model in `directory`. Response: `TokenizerRead`."""

    cpu_s: ClassVar[int] = 60
    wall_s: ClassVar[float] = 120.0
    directory: str


class Encode(AskedText, frozen=True, kw_only=True, tag="Encode"):
    """Encode the prompt of a conversation, as `Tokens.encode`. Response: `Encoded`."""

    cpu_s: ClassVar[int] = 20  # the longest honest prompt takes about two seconds
    wall_s: ClassVar[float] = 90.0
    messages: tuple[Message, ...]
    raw: bool
    tools: tuple[Tool, ...] = ()
    template_options: TemplateOptions = {}


class Constrain(AskedText, frozen=True, kw_only=True, tag="Constrain"):
    """Make the constraint of an answer after `prompt_end`, as `Tokens.constrain`. Response: `Constrained`."""

    cpu_s: ClassVar[int] = 20
    wall_s: ClassVar[float] = 90.0
    constraint: Constraint | None
    calls: CallRules
    prompt_end: list[int]
    raw: bool


class Decode(AskedText, frozen=True, kw_only=True, tag="Decode"):
    """Decode the next tokens of `stream`, begun by its first, and each of `named` alone. Response: `Decoded`."""

    stream: str
    tokens: list[int]
    is_chat: bool = False  # of the answer, see `Tokens.stream`
    named: list[int] = []


class EndStream(AskedText, frozen=True, kw_only=True, tag="EndStream"):
    """End `stream`. Response: `Decoded`."""

    stream: str


class BeginReading(AskedText, frozen=True, kw_only=True, tag="BeginReading"):
    """Begin reading the answer `stream` in parts, after a prompt that ends with `prompt_end`. Response: `Parts`."""

    stream: str
    prompt_end: list[int]
    tools: tuple[Tool, ...]


class ReadText(AskedText, frozen=True, kw_only=True, tag="ReadText"):
    """Read more text of the answer `stream`. Response: `Parts`."""

    stream: str
    text: str


class EndReading(AskedText, frozen=True, kw_only=True, tag="EndReading"):
    """End reading; `is_whole`: the model ended the answer itself. Response: `Parts`."""

    stream: str
    is_whole: bool


class TokenizerRead(TextMessage, frozen=True, kw_only=True, tag="TokenizerRead"):
    """The tokenizer is ready."""

    eos: frozenset[int]  # token ids that end an answer
    vocab_size: int  # counts all ids it can produce
    longest: int = 0  # characters of the longest token; 0: not known
    sampling: Sampling = Sampling()  # as the model recommends


class Encoded(TextMessage, frozen=True, kw_only=True, tag="Encoded"):
    """Token ids of a prompt."""

    tokens: list[int]


class Constrained(TextMessage, frozen=True, kw_only=True, tag="Constrained"):
    """The constraint, in the worker's form."""

    constraint: Constraint


class Decoded(TextMessage, frozen=True, kw_only=True, tag="Decoded"):
    """Completed text, and the held-back rest that comes last if no more tokens do."""

    text: str = ""
    held: str = ""
    names: tuple[str, ...] = ()  # texts of the `named` tokens


class Parts(TextMessage, frozen=True, kw_only=True, tag="Parts"):
    """Parts completed by the text."""

    parts: tuple[AnswerPart, ...] = ()


class Refused(TextMessage, frozen=True, kw_only=True, tag="Refused"):
    """Error response."""

    problem: Problem


TextRequest = ReadTokenizer | Encode | Constrain | Decode | EndStream | BeginReading | ReadText | EndReading
TextAnswer = TokenizerRead | Encoded | Constrained | Decoded | Parts | Refused

# raise msgspec.ValidationError
unpack_request: Final[Callable[[bytes], TextRequest]] = msgspec.msgpack.Decoder(TextRequest).decode
unpack_answer: Final[Callable[[bytes], TextAnswer]] = msgspec.msgpack.Decoder(TextAnswer).decode
