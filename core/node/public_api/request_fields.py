"""Fields that the requests of every API share, as fields of our `ChatRequest`."""

from __future__ import annotations

import codecs
import json
from collections.abc import Container, Iterable, Sequence
from functools import cache
from typing import Annotated, Any, Final, TypeVar, get_args

import msgspec

from core.answer_parts import Tool, ToolCall
from core.constraint import MAX_SOURCE, Grammar
from core.errors import UsageError
from core.field_errors import decoded, refusal
from core.numbers import MOST
from core.requests.answers import ChatRequest, Message, ModelOption, TemplateOptions
from core.sampling_options import Sampling

# fields in which other servers take the shape of an answer
_OTHER_SHAPES: Final = {
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs"),
    *("json_schema", "grammar", "format", "regex", "ebnf"),
}
ROLES: Final = ("system", "developer", "user", "assistant")
_ANY_OBJECT: Final = '{"type": "object"}'

MAX_TEXTS: Final = 300_000  # keys and values of a body, so that its objects are bounded, too
MAX_FIELD_BYTES: Final = 1 << 20  # of a field that isn't one of these
_LONG_FIELDS: Final = {"messages", "input", "prompt", "system", "instructions", "tools"}

_TEXTS: Final = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text", "refusal"})

Count = Annotated[int, msgspec.Meta(ge=-1, le=1 << 31)]  # -1: as if omitted

_Request = TypeVar("_Request", bound=msgspec.Struct)


def request_body(raw: bytes, kind: type[_Request]) -> _Request:
    """Decode a body, without fields that are null. Raises UsageError, also for the shape fields of other servers.

    Bounds the work by the number of texts before any object is made; unknown fields are skipped.
    """
    raw = raw.removeprefix(codecs.BOM_UTF8)
    if _texts_in(raw) > MAX_TEXTS:
        raise UsageError(f"The body has more than {MAX_TEXTS} texts.", "Send a shorter conversation.")
    found = decoded(raw, _fields_of(kind), as_written=True)
    fields = {name: bytes(getattr(found, name)) for name in found.__struct_fields__}
    given = {name: msgspec.Raw(value) for name, value in fields.items() if value and value != b"null"}
    if shapes := sorted(given.keys() & _OTHER_SHAPES):
        raise UsageError(f"{shapes[0]} is not supported.", "Send the schema in the field of this API.")
    for name in given.keys() - _LONG_FIELDS:
        if len(fields[name]) > MAX_FIELD_BYTES:
            raise UsageError(f"{name} is longer than {MAX_FIELD_BYTES >> 20} MiB.")
    has_null = b"null" in fields.values()
    return decoded(msgspec.json.encode(given) if has_null else raw, kind, as_written=True)


def _texts_in(raw: bytes) -> int:
    """Number of texts, keys included, in JSON."""
    if (most := raw.count(b'"') // 2) <= MAX_TEXTS:
        return most
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"') // 2


@cache
def _fields_of(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A body with the fields of `kind` and those of other servers, which are not decoded."""
    names = {*kind.__struct_fields__, *_OTHER_SHAPES}
    return msgspec.defstruct("Fields", [(name, msgspec.Raw, msgspec.Raw()) for name in sorted(names)])


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message; only text is supported."""

    type: str
    text: str = ""
    refusal: str = ""


class TextFormat(msgspec.Struct, frozen=True):
    """The shape of the answer, which is enforced, `strict` or not."""

    type: str = "text"
    name: str = "answer"
    schema: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def as_json(self) -> dict[str, Any]:
        shape = {"name": self.name, "schema": self.schema, "strict": True} if self.type == "json_schema" else {}
        return {"type": self.type, **shape}


Content = str | tuple[ContentPart, ...] | None


def request_of(
    messages: Sequence[Message],
    sampling: dict[str, Any],
    *,
    max_tokens: int | None,
    stop: Iterable[str] = (),
    shape: Grammar | None = None,
    tools: Sequence[Tool] = (),
    **more: Any,
) -> ChatRequest:
    """A request that is not kept; None in `sampling` means the model's default. Without `max_tokens` an answer may fill
    the context. Raises UsageError.
    """
    given = {name: value for name, value in sampling.items() if value is not None}
    left_open = [name for name in get_args(ModelOption) if name not in given]
    for name, off, none in (("top_p", 1, 0.0), ("top_k", -1, 0), ("seed", -1, None)):
        if given.get(name) == off:
            given[name] = none
    try:
        chosen = msgspec.convert(given, Sampling)
        return msgspec.convert(
            {
                "messages": msgspec.to_builtins(messages),
                "sampling": msgspec.to_builtins(chosen),
                "max_tokens": MOST if max_tokens in (None, -1) else max_tokens,
                "model_sampling": left_open,
                "keep": False,
                "stop": [text for text in stop if text],
                "constraint": msgspec.to_builtins(shape),
                "tools": msgspec.to_builtins(tools),
                **more,
            },
            ChatRequest,
            str_keys=True,
        )
    except msgspec.ValidationError as error:
        raise refusal(error, as_written=True) from error


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
        case {"type": "allowed_tools", "allowed_tools": {"mode": str(mode), "tools": [*allowed]}} | {
            "type": "allowed_tools",
            "mode": str(mode),
            "tools": [*allowed],
        }:
            there = {tool.name for tool in known}
            names = {_named(tool, there) for tool in allowed}
            return tool_rules((tool for tool in known if tool.name in names), mode, one_call=one_call)
        case {"type": "any"}:
            return tool_rules(known, "required", one_call=one_call)
        case {"type": "auto" | "none" | "required" as word}:
            return tool_rules(known, word, one_call=one_call)
        case _:
            return {"tools": known, "must_call": [_named(choice, {tool.name for tool in known})], "one_call": True}


def _named(choice: object, known: Container[str]) -> str:
    """The tool that `choice` names. Raises UsageError."""
    match choice:
        case {"name": str(name)} | {"function": {"name": str(name)}}:
            if name not in known:
                raise UsageError(f"tool_choice names {name!r}, which is not in tools.")
            return name
        case _:
            fix = 'Use "auto", "none", "required", or a function by its name.'
            raise UsageError("tool_choice has an unknown form.", fix)


def shape_of(kind: str, schema: msgspec.Raw, field: str) -> Grammar | None:
    """The grammar for `kind` "json_object" or "json_schema", None for "text". Raises UsageError, naming `field`."""
    match kind:
        case "text":
            return None
        case "json_object":
            return Grammar(kind="json_schema", source=_ANY_OBJECT)
        case "json_schema":
            source = _object(_or_empty(schema), f"{field}: the schema")
            if len(source) > MAX_SOURCE:
                raise UsageError(f"{field}: the schema is longer than {MAX_SOURCE // 1024} KiB.")
            return Grammar(kind="json_schema", source=source)
        case _:
            raise UsageError(f"{field}: type {kind!r} is not supported.", "Use text, json_object or json_schema.")


def text_of(content: Content, field: str, *, is_new: bool = False) -> str:
    """The text of a message, with placeholders for images and the like. Raises UsageError, which names `field`, for
    those of a message that `is_new`: a client can't change its history.
    """
    if isinstance(content, str) or content is None:
        return content or ""
    parts = (
        part.text or part.refusal if part.type in _TEXTS else left_out(part.type, field, is_new=is_new)
        for part in content
    )
    return "".join(parts)


def left_out(kind: str, field: str, *, is_new: bool) -> str:
    """A placeholder for content of another type than text. Raises UsageError if it `is_new`."""
    if is_new:
        raise UsageError(f"{field}: content of type {kind!r} is not supported.", "Send text.")
    return f"[{kind.removeprefix('input_').removesuffix('_url').replace('_', ' ')} left out: this model reads text]"


def role_of(role: str, field: str, roles: Sequence[str]) -> Any:
    """Our name of a role, which must be one of `roles`. Raises UsageError."""
    if role not in roles:
        raise UsageError(f"{field}: role {role!r} is not supported.", f"Use {', '.join(roles)}.")
    return "system" if role == "developer" else role


def newest(roles: Iterable[str]) -> int:
    """Index of the first message after the assistant's last one, where the newest turn begins."""
    return max((index for index, role in enumerate(roles, 1) if role == "assistant"), default=0)


def effort_of(effort: str | None) -> TemplateOptions:
    if effort == "none":
        return {"enable_thinking": False}
    return {"reasoning_effort": effort} if effort else {}


def call_of(call_id: str, tool: str, arguments: str | msgspec.Raw) -> ToolCall:
    """A tool call in the history; "" counts as no arguments, and torn ones become the object's only value."""
    written = arguments.encode() if isinstance(arguments, str) else bytes(arguments)
    try:
        whole = _object(written.strip() or b"{}", "arguments")
    except UsageError:
        whole = json.dumps({"input": written.decode("utf-8", "replace")})
    return ToolCall(id=call_id, name=tool, arguments=whole)


def tool_of(name: str, description: str | None, schema: msgspec.Raw, strict: bool | None) -> Tool:
    """A tool that may be called; `schema` may be null. Raises UsageError."""
    parameters = _object(_or_empty(schema), f"tools: the schema of {name!r}")
    return Tool(name=name, description=description or "", parameters=parameters, strict=bool(strict))


def _or_empty(schema: msgspec.Raw) -> bytes:
    return b"{}" if bytes(schema) == b"null" else bytes(schema)


def _object(written: bytes, what: str) -> str:
    try:
        msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        return written.decode()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be a JSON object.") from error
