"""Fields that the requests of every API share, as fields of our `ChatRequest`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from core.answer_parts import Tool, ToolCall
from core.constraint import MAX_SOURCE, Grammar
from core.errors import UsageError
from core.field_errors import refusal
from core.requests.answers import DEFAULT_MAX_TOKENS, ChatRequest, Message, TemplateOptions
from core.sampling_options import Sampling

_ANY_OBJECT: Final = '{"type": "object"}'

_TEXTS: Final = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text"})

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message; only text is supported."""

    type: str
    text: str = ""


Content = str | tuple[ContentPart, ...] | None


def request_of(
    messages: Sequence[Message],
    sampling: dict[str, Any],
    *,
    max_tokens: int | None,
    shape: Grammar | None = None,
    tools: Sequence[Tool] = (),
    **more: Any,
) -> ChatRequest:
    """A request that is not kept; None in `sampling` means the default. Raises UsageError."""
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
                "constraint": msgspec.to_builtins(shape),
                "tools": msgspec.to_builtins(tools),
                **more,
            },
            ChatRequest,
            str_keys=True,
        )
    except msgspec.ValidationError as error:
        raise refusal(error) from error


def tool_rules(tools: Iterable[Tool], choice: object, *, one_call: bool) -> dict[str, Any]:
    """The `tools` fields of a request. Raises UsageError. `choice`: "auto", "none", "required", or an object that names
    the tool to call.
    """
    known = list(tools)
    match choice:
        case None | "auto":
            return {"tools": known, "one_call": one_call}
        case "none":
            return {"tools": [], "one_call": one_call}
        case "required" if known:
            return {"tools": known, "must_call": [tool.name for tool in known], "one_call": one_call}
        case "required":
            raise UsageError('tool_choice is "required", but tools is empty.', "Send tools, or leave tool_choice out.")
        case {"name": str(name)} | {"function": {"name": str(name)}}:
            if name not in {tool.name for tool in known}:
                raise UsageError(f"tool_choice names {name!r}, which is not in tools.")
            return {"tools": known, "must_call": [name], "one_call": True}
        case _:
            fix = 'Use "auto", "none", "required", or a function by its name.'
            raise UsageError("This tool_choice is not supported.", fix)


def shape_of(kind: str, schema: msgspec.Raw, field: str) -> Grammar | None:
    """The grammar for `kind` "json_object" or "json_schema", None for "text". Raises UsageError, naming `field`."""
    match kind:
        case "text":
            return None
        case "json_object":
            return Grammar(kind="json_schema", source=_ANY_OBJECT)
        case "json_schema":
            source = _object(bytes(schema), f"{field}: the schema")
            if len(source) > MAX_SOURCE:
                raise UsageError(f"{field}: the schema is longer than {MAX_SOURCE // 1024} KiB.")
            return Grammar(kind="json_schema", source=source)
        case _:
            raise UsageError(f"{field}: type {kind!r} is not supported.", "Use text, json_object or json_schema.")


def text_of(content: Content, field: str) -> str:
    """The text of a message. Raises UsageError, which names `field`, for images and the like."""
    if isinstance(content, str) or content is None:
        return content or ""
    for part in content:
        if part.type not in _TEXTS:
            raise UsageError(f"{field}: content of type {part.type!r} is not supported.", "Send text.")
    return "".join(part.text for part in content)


def effort_of(effort: str | None) -> TemplateOptions:
    if effort == "none":
        return {"enable_thinking": False}
    return {"reasoning_effort": effort} if effort else {}


def call_of(call_id: str, tool: str, arguments: str | msgspec.Raw) -> ToolCall:
    """A tool call in the history; "" counts as no arguments. Raises UsageError."""
    written = arguments.encode() if isinstance(arguments, str) else bytes(arguments)
    what = f"messages: the arguments of the call {call_id!r}"
    return ToolCall(id=call_id, name=tool, arguments=_object(written.strip() or b"{}", what))


def tool_of(name: str, description: str | None, schema: msgspec.Raw, strict: bool | None) -> Tool:
    """A tool that may be called; `schema` may be null. Raises UsageError."""
    written = b"{}" if bytes(schema) == b"null" else bytes(schema)
    parameters = _object(written, f"tools: the schema of {name!r}")
    return Tool(name=name, description=description or "", parameters=parameters, strict=bool(strict))


def _object(written: bytes, what: str) -> str:
    try:
        text = written.decode()
        if isinstance(json.loads(text), dict):
            return text
    except (ValueError, RecursionError):
        pass
    raise UsageError(f"{what} must be a JSON object.")
