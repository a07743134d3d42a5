"""What programs ask for, whichever API they ask by, as one request of ours; nothing here waits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from core.answer_parts import Tool, ToolCall
from core.errors import UsageError
from core.field_errors import plain
from core.requests import DEFAULT_MAX_TOKENS, ChatRequest, Message
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
        told = plain(error)
        raise UsageError(f"{told[0].upper()}{told[1:]}.") from error


def call_of(call_id: str, tool: str, arguments: str) -> ToolCall:
    """A call in the history; models write nothing for no arguments. Raises UsageError."""
    written = arguments.strip() or "{}"
    if not _is_object(written):
        raise UsageError(f"messages: the arguments of the call {call_id!r} are no JSON object.")
    return ToolCall(id=call_id, name=tool, arguments=written)


def tool_of(name: str, description: str | None, schema: msgspec.Raw) -> Tool:
    """A tool that may be called; `schema` may be null. Raises UsageError."""
    written = bytes(schema).decode()
    if written != "null" and not _is_object(written):
        raise UsageError(f"tools: the schema of {name!r} is no JSON object.")
    return Tool(name=name, description=description or "", parameters="{}" if written == "null" else written)


def _is_object(written: str) -> bool:
    try:
        return isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        return False
