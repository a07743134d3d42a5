"""Chat completions as OpenAI's clients ask for them, as requests of ours; nothing here waits.

Unknown fields are ignored. What cannot be honoured is refused by the name of its field: an answer that only looks as
asked for is worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from core.answer_parts import Tool, ToolCall, ToolName
from core.errors import UsageError
from core.node.public_api.request_fields import Count, allowed, call_of, effort_of, request_of, shape_of, tool_of
from core.numbers import Size
from core.requests.answers import ChatRequest, Message, TemplateOptions
from core.sampling_options import MAX_LOGPROBS

MOST_CHOICES: Final = 8

_ROLES: Final[dict[str, Literal["system", "user", "assistant", "tool"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class CalledFunction(msgspec.Struct, frozen=True):
    """What was called, with a JSON object as text; models write nothing for no arguments."""

    name: ToolName
    arguments: str = ""


class PastCall(msgspec.Struct, frozen=True):
    """A call in the history."""

    id: str
    function: CalledFunction


class Function(msgspec.Struct, frozen=True):
    """A function that may be called; `parameters` is the JSON schema of its arguments, which hold it if `strict`."""

    name: ToolName
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None


class ChatTool(msgspec.Struct, frozen=True):
    """A tool; only functions can be called by the model that is loaded."""

    type: str
    function: Function | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message; only text can be answered."""

    type: str
    text: str = ""


class ChatTurn(msgspec.Struct, frozen=True):
    """One message of the conversation. Clients say what was thought in the one field or in the other."""

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[PastCall, ...] | None = None
    tool_call_id: str | None = None


class JsonSchema(msgspec.Struct, frozen=True):
    """The schema of an answer; it is held, `strict` or not."""

    schema: msgspec.Raw = msgspec.Raw(b"{}")


class ResponseFormat(msgspec.Struct, frozen=True):
    """Which shape the answer is to have."""

    type: str = "text"
    json_schema: JsonSchema = JsonSchema()


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream tells besides the answer."""

    include_usage: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What both kinds of completions say alike."""

    model: str = ""
    max_tokens: Count | None = None
    min_tokens: Size | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    stop: str | tuple[str, ...] | None = None
    seed: int | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] = 1
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class ChatCompletion(Asked, frozen=True, kw_only=True):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[tuple[ChatTurn, ...], msgspec.Meta(min_length=1)]
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] = 0
    tools: tuple[ChatTool, ...] | None = None
    functions: tuple[Any, ...] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateOptions | None = None
    response_format: ResponseFormat = ResponseFormat()

    def request(self) -> ChatRequest:
        """What the cluster is asked for, for each choice. Raises UsageError."""
        if self.functions:
            raise UsageError("functions: this API has none.", "Say them as tools.")
        wanted = self.top_logprobs if self.logprobs else None
        said = tuple(map(_message, self.messages))
        return request_by(
            self,
            said,
            self.max_completion_tokens,
            wanted,
            shape=shape_of(self.response_format.type, self.response_format.json_schema.schema, "response_format"),
            **{
                "one_call": self.parallel_tool_calls is False,
                **allowed(map(_tool, self.tools or ()), self.tool_choice),
            },
            template_options={**effort_of(self.reasoning_effort), **(self.chat_template_kwargs or {})},
        )


def _message(turn: ChatTurn) -> Message:
    role = _ROLES.get(turn.role)
    if role is None:
        raise UsageError(f"messages: the role {turn.role!r} cannot be answered.", f"Use one of {', '.join(_ROLES)}.")
    return Message(
        role=role,
        content=_text(turn.content),
        reasoning=turn.reasoning_content or turn.reasoning or "",
        tool_calls=tuple(map(_past_call, turn.tool_calls or ())),
        tool_call_id=turn.tool_call_id or "",
    )


def _past_call(call: PastCall) -> ToolCall:
    return call_of(call.id, call.function.name, call.function.arguments)


def _text(content: str | tuple[ContentPart, ...] | None) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    for part in content:
        if part.type not in ("text", "input_text", "output_text"):
            raise UsageError(f"messages: {part.type} cannot be read by this model.", "Send text.")
    return "".join(part.text for part in content)


def _tool(tool: ChatTool) -> Tool:
    if tool.type != "function" or tool.function is None:
        raise UsageError(f"tools: {tool.type} cannot be called by this model.", "Say functions alone.")
    function = tool.function
    return tool_of(function.name, function.description, function.parameters, function.strict)


def request_by(
    asked: Asked, messages: Sequence[Message], most: int | None, logprobs: int | None, **more: Any
) -> ChatRequest:
    """What both kinds of completions are asked for by. Raises UsageError."""
    sampling = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": asked.top_k,
        "min_p": asked.min_p,
        "seed": asked.seed,
        "presence_penalty": asked.presence_penalty or None,
        "frequency_penalty": asked.frequency_penalty or None,
        "repetition_penalty": asked.repetition_penalty,
        "logit_bias": _bias(asked.logit_bias),
        "logprobs": logprobs,
    }
    stop = (asked.stop,) if isinstance(asked.stop, str) else asked.stop or ()
    return request_of(
        messages,
        sampling,
        max_tokens=most or asked.max_tokens,
        min_tokens=asked.min_tokens or 0,
        stop=stop,
        **more,
    )


def _bias(given: dict[str, float] | None) -> dict[int, float] | None:
    try:
        return {int(token): value for token, value in given.items()} if given else None
    except ValueError as error:
        raise UsageError("logit_bias: its keys are token ids, whole numbers.") from error
