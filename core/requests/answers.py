"""Requests for an answer, and their responses."""

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
    Option("before this text; can be repeated", "Stop texts", "stop before this text (separate with |)"),
]
Number = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Fraction = Annotated[float, msgspec.Meta(ge=-MOST, le=MOST)]
TemplateOptions = dict[Annotated[str, msgspec.Meta(max_length=64)], bool | Number | Fraction | str | None]

# sampling options that a model may recommend
ModelOption = Literal["temperature", "top_p", "top_k", "min_p", "repetition_penalty"]


class Message(Body, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning: str = ""  # of an assistant, before its answer
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""  # which call a "tool" message answers


class AnswerOptions(Body, frozen=True, kw_only=True):
    """Options of an answer that every form of a request has, from the client to the worker."""

    sampling: Sampling = Sampling()
    max_tokens: Annotated[
        Positive, Option("after N tokens (default %(default)s)", "Max tokens", "longest answer, in tokens", short="max")
    ] = DEFAULT_MAX_TOKENS
    min_tokens: Annotated[Size, Option("don't stop before N tokens")] = 0
    # also score the prompt's tokens, if `sampling` asks for logprobs; disables prompt reuse
    prompt_logprobs: bool = False
    # shape of the answer; it ends when the shape is complete
    constraint: Annotated[Constraint | None, Option(label="Format", hint="schema FILE, regex R or grammar FILE")] = None

    @property
    def answer_options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in AnswerOptions.__struct_fields__}


class ChatRequest(AnswerOptions, frozen=True, kw_only=True):
    """A request for one answer."""

    messages: Annotated[tuple[Message, ...], msgspec.Meta(min_length=1)]
    stop: StopTexts = ()  # the answer ends before the first of these texts, even across token borders
    raw: bool = False  # send the last message without the chat template
    model_sampling: tuple[ModelOption, ...] = ()  # options that are as the model recommends, whatever `sampling` says
    keep: bool = True  # False: never write any of it to disk
    tools: tuple[Tool, ...] = ()
    one_call: bool = False  # end the answer after its first tool call
    must_call: tuple[ToolName, ...] = ()  # call one of these tools and write nothing else
    template_options: TemplateOptions = msgspec.field(default_factory=dict)
    prompt_tokens: tuple[TokenId, ...] = ()  # use these instead of messages


class RequestAccepted(Body, frozen=True, kw_only=True):
    """Response to a ChatRequest."""

    request_id: str
    prompt_tokens: int


class UnfinishedAnswer(Body, frozen=True, kw_only=True):
    """An answer cut off by a crash, or saved when its Macs were lost."""

    request_id: str
    model: str
    messages: tuple[Message, ...]
    text: str
    tokens: int  # written so far, of at most `max_tokens`
    max_tokens: int
    at: float  # time of the last token, seconds since the epoch


class AnswerId(Body, frozen=True, kw_only=True):
    """Selects an unfinished answer; an empty id means the newest."""

    request_id: Name = ""
