"""Requests of `/v1/chat/completions`.

Unknown fields are ignored. A field that cannot be honoured is refused by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from core.answer_parts import Tool, ToolName
from core.errors import UsageError
from core.node.public_api import request_fields
from core.numbers import Size
from core.requests.answers import ChatRequest, Message, TemplateOptions
from core.sampling_options import MAX_LOGPROBS, Sampling

MAX_CHOICES: Final = 8


class CalledFunction(msgspec.Struct, frozen=True):
    """The function of a past call."""

    name: ToolName
    arguments: str = ""  # a JSON object, or "" for no arguments


class PastCall(msgspec.Struct, frozen=True):
    """A tool call in the history."""

    id: str
    function: CalledFunction


class Function(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: ToolName
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")  # JSON schema of the arguments
    strict: bool | None = None  # whether the arguments must match it


class ChatTool(msgspec.Struct, frozen=True):
    """A tool; only functions are supported."""

    type: str
    function: Function | None = None


class ChatTurn(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: str
    content: request_fields.Content = None
    reasoning_content: str | None = None  # clients use this field or the next
    reasoning: str | None = None
    tool_calls: tuple[PastCall, ...] | None = None
    tool_call_id: str | None = None


class ResponseFormat(msgspec.Struct, frozen=True):
    """The shape of the answer."""

    type: str = "text"
    json_schema: request_fields.TextFormat | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None


class CompletionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of both kinds of completions."""

    model: str = ""
    max_tokens: request_fields.Count | None = None
    min_tokens: Size | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: str | tuple[str, ...] | None = None
    seed: int | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHOICES)] = 1
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    response_format: ResponseFormat = ResponseFormat()


class ChatCompletion(CompletionOptions, frozen=True, kw_only=True):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[tuple[ChatTurn, ...], msgspec.Meta(min_length=1)]
    max_completion_tokens: request_fields.Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] = 0
    tools: tuple[ChatTool, ...] | None = None
    functions: tuple[Any, ...] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateOptions | None = None

    def request(self) -> ChatRequest:
        """The request for one choice. Raises UsageError."""
        if self.functions:
            raise UsageError("functions is not supported.", "Use tools.")
        logprobs, tools = self.top_logprobs if self.logprobs else None, map(_tool, self.tools or ())
        return completion_request(
            self,
            messages_of(self.messages),
            self.max_completion_tokens,
            logprobs,
            **request_fields.tool_rules(tools, self.tool_choice, one_call=self.parallel_tool_calls is False),
            template_options={**request_fields.effort_of(self.reasoning_effort), **(self.chat_template_kwargs or {})},
        )


def messages_of(turns: Sequence[ChatTurn]) -> list[Message]:
    """The conversation. Raises UsageError."""
    begins = request_fields.newest(turn.role for turn in turns)
    return [_message(turn, is_new=index >= begins and turn.role != "tool") for index, turn in enumerate(turns)]


def _message(turn: ChatTurn, *, is_new: bool) -> Message:
    calls = [(call.id, call.function.name, call.function.arguments) for call in turn.tool_calls or ()]
    return Message(
        role=request_fields.role_of(turn.role, "messages", (*request_fields.ROLES, "tool")),
        content=request_fields.text_of(turn.content, "messages", is_new=is_new),
        reasoning=turn.reasoning_content or turn.reasoning or "",
        tool_calls=tuple(request_fields.call_of(*call) for call in calls),
        tool_call_id=turn.tool_call_id or "",
    )


def _tool(tool: ChatTool) -> Tool:
    if tool.type != "function" or tool.function is None:
        raise UsageError(f"tools: type {tool.type!r} is not supported.", "Use functions.")
    function = tool.function
    return request_fields.tool_of(function.name, function.description, function.parameters, function.strict)


def completion_request(
    asked: CompletionOptions, messages: Sequence[Message], max_tokens: int | None, logprobs: int | None, **more: Any
) -> ChatRequest:
    """The request of a completion. Raises UsageError."""
    sampling = {name: getattr(asked, name, None) for name in Sampling.__struct_fields__}
    sampling |= {"logit_bias": _bias(asked.logit_bias), "logprobs": logprobs}
    for penalty in ("presence_penalty", "frequency_penalty"):
        sampling[penalty] = sampling[penalty] or None
    stop = (asked.stop,) if isinstance(asked.stop, str) else asked.stop or ()
    form = asked.response_format
    schema = (form.json_schema or request_fields.TextFormat()).schema
    return request_fields.request_of(
        messages,
        sampling,
        max_tokens=asked.max_tokens if max_tokens is None else max_tokens,
        min_tokens=asked.min_tokens or 0,
        stop=stop,
        shape=request_fields.shape_of(form.type, schema, "response_format"),
        **more,
    )


def _bias(given: dict[str, float] | None) -> dict[int, float] | None:
    try:
        return {int(token): value for token, value in given.items()} if given else None
    except ValueError as error:
        raise UsageError("logit_bias: keys must be token ids (whole numbers).") from error
