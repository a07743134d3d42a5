"""What programs ask for, whichever API they ask by, as one request of ours; nothing here waits."""

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

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]


def request_of(
    messages: Sequence[Message],
    sampling: dict[str, Any],
    *,
    max_tokens: int | None,
    shape: Grammar | None = None,
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
                "constraint": msgspec.to_builtins(shape),
                "tools": msgspec.to_builtins(tools),
                **more,
            },
            ChatRequest,
            str_keys=True,
        )
    except msgspec.ValidationError as error:
        raise refusal(error) from error


def allowed(tools: Iterable[Tool], choice: object) -> dict[str, Any]:
    """What a request says of those that the model may call: where it may call none, it is told of none. `choice`:
    "auto", "none", "required", or an object with the name of the one that it must call. Raises UsageError.
    """
    known = list(tools)
    match choice:
        case None | "auto":
            return {"tools": known}
        case "none":
            return {"tools": []}
        case "required" if known:
            return {"tools": known, "must_call": [tool.name for tool in known]}
        case "required":
            raise UsageError("tool_choice: there is no tool that could be called.", "Say some, or leave it out.")
        case {"name": str(name)} | {"function": {"name": str(name)}}:
            if name not in {tool.name for tool in known}:
                raise UsageError(f"tool_choice: {name!r} is none of the tools.", "Name one of them.")
            return {"tools": known, "must_call": [name], "one_call": True}
        case _:
            fix = 'Say "auto", "none", "required", or the name of a function.'
            raise UsageError("tool_choice: this cannot be honoured.", fix)


def shape_of(kind: str, schema: msgspec.Raw, field: str) -> Grammar | None:
    """What an answer must look like by its field of that name: "text", "json_object", or a "json_schema". Raises
    UsageError.
    """
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
            raise UsageError(f"{field}: {kind} is no form of answer here.", "Say text, json_object or json_schema.")


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
    raise UsageError(f"{what}: it is no JSON object.")
