"""Rules of arguments written between tags instead of as a JSON object: `<parameter=word>hop</parameter>`.

Strings are unquoted and end at the tag; everything else is JSON. mlx-lm's parsers distinguish them by the schema. A
strict tool is refused if no parser would read its arguments back as the schema says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from core.answer_parts import Tool
from core.errors import UsageError
from core.models.text.marks import TAGS, Mark, json_rule, mark_all, quoted

_NAME: Final = re.compile(r'[^\s<>"]+')
_JSON: Final = ("integer", "number", "boolean", "array", "object")
_SAID: Final = {"title", "description", "default", "examples", "$schema", "$defs", "definitions", "$comment"}
_TOP: Final = _SAID | {"type", "properties", "required", "additionalProperties"}
_NUMBER: Final = _SAID | {"type"}
_SAFE: Final = "^([^<]|<[^/])*<?$"  # no tag in a JSON string
_LIMITS: Final = {"pattern", "format", "enum", "const"}

# short enough that no parser changes the number
_TERMS: Final = (
    "INTEGER: /-?(0|[1-9][0-9]{0,14})/",
    "NUMBER: /-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,12})?/",
)


class Tags(NamedTuple):
    """A family's tags: `head` with the tool's NAME, `key` with the argument's KEY.

    `all_json`: everything but strings is read as JSON, even without a type in the schema; else only values of the
    types. `null`: the text null is read as None.
    """

    head: str
    key: str
    end: str
    behind: str
    tail: str
    all_json: bool = False
    null: bool = True


def tagged(tags: Tags) -> Callable[[Tool, Mark], str]:
    """Makes the rule of a tool's call."""

    def call(tool: Tool, mark: Mark) -> str:
        parts = [mark_all(tags.head.replace("NAME", tool.name), mark)]
        parts += [_argument(tags, mark, *each) for each in _arguments(tool, tags)]
        return " ".join(part for part in [*parts, mark_all(tags.tail, mark)] if part)

    return call


def terms(tags: Tags) -> Callable[[Mark], tuple[str, ...]]:
    """Makes the terminals used by these rules."""

    def of(mark: Mark) -> tuple[str, ...]:
        end, last = (re.escape(tag).replace("/", "\\/") for tag in (tags.end, TAGS.findall(tags.tail)[-1]))
        none = f" & ~/(.|\\n)*{last}(.|\\n)*/"  # a parser may stop at this earlier end
        none += f" & ~/\\n?null\\n?({end})?/i" if tags.null else ""
        if _is_text(tags, mark):
            return (*_TERMS, f"TEXT: /(.|\\n)*{end}/ & ~/(.|\\n)*{end}(.|\\n)+/{none}")
        return (*_TERMS, f"TEXT: /(.|\\n)+/ & ~/(.|\\n)*{end}(.|\\n)*/{none}")

    return of


def _is_text(tags: Tags, mark: Mark) -> bool:
    return mark(tags.end).startswith('"')


def _argument(tags: Tags, mark: Mark, name: str, value: str, is_required: bool) -> str:
    end = mark_all(tags.end, mark)
    if value == "TEXT":
        value, end = ("TEXT", "") if _is_text(tags, mark) else ("TEXT?", end)
    rule = " ".join(part for part in (mark_all(tags.key.replace("KEY", name), mark), value, end) if part)
    if tags.behind:
        rule += f" {quoted(tags.behind)}"
    return rule if is_required else f"({rule})?"


def _arguments(tool: Tool, tags: Tags) -> Iterator[tuple[str, str, bool]]:
    """Name, rule and whether it is required, of each argument. Raises UsageError."""
    if not _NAME.fullmatch(tool.name):
        raise _refused(tool, "its name")
    schema = json.loads(tool.parameters)
    found = schema.get("properties") or {}
    required = schema.get("required") or ()
    if tool.strict:
        for key in schema.keys() - _TOP:
            raise _refused(tool, key)
        for name in set(required) - found.keys():
            raise _refused(tool, f"required {name}")
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    for name, said in found.items():
        if not _NAME.fullmatch(name):
            raise _refused(tool, f"the name {name!r}")
        one = said if isinstance(said, dict) else {}
        yield name, _value(tool, name, one, shared, tags), name in required


def _value(tool: Tool, name: str, schema: Mapping[str, Any], shared: Mapping[str, Any], tags: Tags) -> str:
    kind = schema.get("type")
    if kind == "string" or (kind is None and not tags.all_json and _words(schema)):
        return _text(tool, name, schema)
    if kind == "integer" and schema.keys() <= _NUMBER:
        return "INTEGER"
    if kind == "number" and schema.keys() <= _NUMBER:
        return "NUMBER"
    if kind in _JSON or tags.all_json:
        return json_rule({**_safe(schema), **_safe(shared)}, strict=tool.strict)
    if tool.strict:
        raise _refused(tool, f"{name} without one type")
    return "TEXT"


def _text(tool: Tool, name: str, schema: Mapping[str, Any]) -> str:
    if words := _words(schema):
        return f"({' | '.join(map(quoted, words))})"
    if tool.strict and (limits := schema.keys() - _SAID - {"type"}):
        raise _refused(tool, f"{', '.join(sorted(limits))} of {name}")
    return "TEXT"


def _words(schema: Mapping[str, Any]) -> list[str]:
    """The allowed strings of an enum that can be written unquoted."""
    words = schema.get("enum", [schema["const"]] if "const" in schema else [])
    fit = all(isinstance(word, str) and word == word.strip() and "<" not in word for word in words)
    return words if fit and not {"null"} & {str(word).lower() for word in words} else []


def _safe(schema: Any) -> Any:
    """The schema with strings that contain no tag."""
    match schema:
        case dict():
            changed = {key: _safe(each) if key not in ("enum", "const") else each for key, each in schema.items()}
            is_free = schema.get("type") == "string" and not schema.keys() & _LIMITS
            return {**changed, "pattern": _SAFE} if is_free else changed
        case list():
            return [_safe(each) for each in schema]
    return schema


def _refused(tool: Tool, what: str) -> UsageError:
    said = f"{tool.name}: this model's format for arguments can't enforce {what}."
    return UsageError(said, "Leave it out of the schema, or ask for the tool without strict.")
