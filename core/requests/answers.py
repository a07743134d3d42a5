"""What a request for an answer says, and what it is answered."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from core.answer_parts import Tool, ToolCall, ToolName
from core.constraint import Constraint
from core.numbers import MOST, Positive, Size, TokenId
from core.requests.body import Body, Name
from core.sampling_options import Option, Sampling

DEFAULT_MAX_TOKENS: Final = 512
StopTexts = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1)], ...],
    msgspec.Meta(max_length=16),
    Option("before this text; can be repeated", "Stop texts", "the answer ends before; | between two"),
]
Number = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Fraction = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
TemplateOptions = dict[Annotated[str, msgspec.Meta(max_length=64)], bool | Number | Fraction | str | None]


class Message(Body, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of a conversation. Of an assistant's also what it thought before it and the tools that it called; of a
    "tool" what the call with `tool_call_id` came to.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""


class AnswerOptions(Body, frozen=True, kw_only=True):
    """An answer of at least `min_tokens` and at most `max_tokens` tokens: what a request says in each of its forms,
    from the person to the process that runs it. `prompt_logprobs`: with `sampling.logprobs`, also report
    those of the prompt, which is then prefilled in full.
    `constraint`: what the answer has to look like; it ends where that does.
    """

    sampling: Sampling = Sampling()
    max_tokens: Annotated[
        Positive,
        Option("after N tokens (default %(default)s)", "Max tokens", "the answer ends after this many", short="max"),
    ] = DEFAULT_MAX_TOKENS
    min_tokens: Annotated[Size, Option("not by itself before there are N tokens")] = 0
    prompt_logprobs: bool = False
    constraint: Annotated[Constraint | None, Option(label="Shape", hint="schema FILE, regex R or grammar FILE")] = None

    @property
    def answer_options(self) -> dict[str, Any]:
        """These fields, by name, for another form of the same request."""
        return {name: getattr(self, name) for name in AnswerOptions.__struct_fields__}


class ChatRequest(AnswerOptions, frozen=True, kw_only=True):
    """One answer, which also ends before the first of the texts in `stop`, wherever the borders of its tokens lie.
    `raw` sends the last message without the chat template, which else is told of `tools` and `template_options`.
    Without `keep` nothing of it is ever on disk. `prompt_tokens`: what is read, in the place of messages.
    A program is told `one_call` at most: behind it the answer ends. Where there are tools that it `must_call`, it calls
    those and says nothing else.
    """

    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1)]
    stop: StopTexts = ()
    raw: bool = False
    keep: bool = True
    tools: tuple[Tool, ...] = ()
    one_call: bool = False
    must_call: tuple[ToolName, ...] = ()
    template_options: TemplateOptions = msgspec.field(default_factory=dict)
    prompt_tokens: tuple[TokenId, ...] = ()


class RequestAccepted(Body, frozen=True, kw_only=True):
    """The answer to a ChatRequest."""

    request_id: str
    prompt_tokens: int


class UnfinishedAnswer(Body, frozen=True, kw_only=True):
    """An answer that a crash cut off, or that was saved when its Macs were lost: `text` to `messages` are `tokens`
    tokens of at most `max_tokens`; the last one was written at `at`, seconds since the epoch.
    """

    request_id: str
    model: str
    messages: tuple[Message, ...]
    text: str
    tokens: int
    max_tokens: int
    at: float


class AnswerId(Body, frozen=True, kw_only=True):
    """Which answer; an empty id is the newest that is unfinished."""

    request_id: Name = ""
