"""What programs ask for, whichever API they ask by, as one request of ours; nothing here waits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from core.answer_parts import Tool, ToolCall
from core.errors import UsageError
from core.field_errors import refusal
from core.requests import DEFAULT_MAX_TOKENS, ChatRequest, Message, TemplateOptions
from core.sampling_options import Sampling

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


def request_of(
    messages: Sequence[Message],
    sampling: dict[str, Any],
    *,
    max_tokens: int | None,
    tools: Sequence[Tool] = (),
    **more: Any,
) -> ChatRequest:
    """A request that is kept nowhere; what is None in `sampling` was not asked for. Raises UsageError."""
    given = {name: value for name, value in sampling.items() if value is not None}
    if given.get("top_p") == 1:
        given["top_p"] = 0.0  # both cut nothing off
    try:
        chosen = msgspec.convert(given, Sampling)
        return msgspec.convert(
            {
                "messages": msgspec.to_builtins(messages),
                "sampling": msgspec.to_builtins(chosen),
                "max_tokens": max_tokens or DEFAULT_MAX_TOKENS,
                "keep": False,
                "tools": msgspec.to_builtins(tools),
                **more,
            },
            ChatRequest,
            str_keys=True,
        )
    except msgspec.ValidationError as error:
        raise refusal(error) from error


def allowed(tools: Iterable[Tool], choice: object) -> list[Tool]:
    """Those that the model may call: where it may call none, it is told of none. Raises UsageError."""
    if choice not in (None, "auto", "none"):
        raise UsageError("tool_choice: only auto and none can be honoured yet.", "Leave it out.")
    return [] if choice == "none" else list(tools)


def effort_of(effort: str | None) -> TemplateOptions:
    """How much thought is to go into an answer, as templates know it."""
    if effort == "none":
        return {"enable_thinking": False}
    return {"reasoning_effort": effort} if effort else {}


def call_of(call_id: str, tool: str, arguments: str | msgspec.Raw) -> ToolCall:
    """A call in the history; models write nothing for no arguments. Raises UsageError."""
    written = arguments.encode() if isinstance(arguments, str) else bytes(arguments)
    what = f"messages: the arguments of the call {call_id!r}"
    return ToolCall(id=call_id, name=tool, arguments=_object(written.strip() or b"{}", what))


def tool_of(name: str, description: str | None, schema: msgspec.Raw) -> Tool:
    """A tool that may be called; `schema` may be null. Raises UsageError."""
    written = b"{}" if bytes(schema) == b"null" else bytes(schema)
    return Tool(name=name, description=description or "", parameters=_object(written, f"tools: the schema of {name!r}"))


def _object(written: bytes, what: str) -> str:
    try:
        text = written.decode()
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    raise UsageError(f"{what}: it is no JSON object.")
