"""Grammars of answers with tool calls, in the form that the model's family writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any, Final, NamedTuple

from core.answer_parts import Tool
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.call_forms import CallForm
from core.models.text.grammar import STYLE, enforceable

# a family's marker as a rule: its own token, or text
Mark = Callable[[str], str]

FREE: Final = "WORDS?"
# PLAIN is text that doesn't begin like a call without an opening
TERMS: Final = ("WORDS: /(.|\\n)+/", "BLANK: /\\n{1,2}/", "PLAIN: /[^{\\s](.|\\n)*/")

_TAGS: Final = re.compile(r"(<[^<>]*>|\[[A-Z_]+\])")
_LENIENT: Final = {"lenient": True, "coerce_one_of": True}
_NAME: Final = re.compile(r'[^\s<>"]+')
_JSON: Final = ("integer", "number", "boolean", "array", "object")
_SAID: Final = {"title", "description", "default", "examples", "$schema", "$defs", "definitions", "$comment"}
_TOP: Final = _SAID | {"type", "properties", "required", "additionalProperties"}
_NUMBER: Final = _SAID | {"type"}
_SAFE: Final = "^([^<]|<[^/|])*<?$"  # no tag in a JSON string
_LIMITS: Final = {"pattern", "format", "enum", "const"}

# short enough that no parser changes the number
_TERMS: Final = ("INTEGER: /-?(0|[1-9][0-9]{0,14})/", "NUMBER: /-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,12})?/")


class Tags(NamedTuple):
    """A family's tags: `head` with the tool's NAME, `key` with the argument's KEY and IS_TEXT for true or false.

    `all_json`: everything but strings is read as JSON, even without a type in the schema; else only values of the
    types, and the text null is None. `is_quoted`: `end` also begins a string, and other values have none. `is_python`:
    strings are JSON too, and names are identifiers.
    """

    head: str
    key: str
    end: str
    behind: str = ""
    tail: str = ""
    all_json: bool = False
    comma: str = ""  # between two arguments
    is_quoted: bool = False
    is_python: bool = False
    closing: str = ""  # of the form, after the tail


def quoted(text: str) -> str:
    """Lark string for exactly that text."""
    return json.dumps(text, ensure_ascii=False)


def json_rule(schema: Mapping[str, Any], *, strict: bool) -> str:
    """Rule of a schema; unless `strict`, parts that can't be enforced are ignored."""
    return f"%json {json.dumps({**enforceable(schema), 'x-guidance': {**STYLE, **({} if strict else _LENIENT)}})}"


def mark_all(text: str, mark: Mark) -> str:
    """`text` as a rule whose tags may be tokens."""
    rules: list[str] = []
    for piece in filter(None, _TAGS.split(text)):
        rule = mark(piece)
        if rule.startswith('"') and rules and rules[-1].startswith('"'):
            rule = quoted(json.loads(rules.pop()) + piece)
        rules.append(rule)
    return " ".join(rules)


def tagged(tags: Tags, tool: Tool, mark: Mark) -> str:
    """Rule of a tool's call, after its opening."""
    head, tail = mark_all(tags.head.replace("NAME", tool.name), mark), mark_all(tags.tail + tags.closing, mark)
    found = [(_argument(tags, mark, name, value), must) for name, value, must in _arguments(tool, tags)]
    return " ".join(filter(None, (head, _joined(found, tags.comma), tail)))


def _joined(found: Sequence[tuple[str, bool]], comma: str) -> str:
    """Rule of arguments, each with whether it is required; those come first if there is a comma between arguments."""
    if not comma:
        return " ".join(rule if must else f"({rule})?" for rule, must in found)
    first = f" {quoted(comma)} ".join(rule for rule, must in found if must)
    more = [rule for rule, must in found if not must]
    if first:
        return " ".join([first, *(f"({quoted(comma)} {rule})?" for rule in more)])
    rows = [" ".join([rule, *(f"({quoted(comma)} {each})?" for each in more[at:])]) for at, rule in enumerate(more, 1)]
    return f"({' | '.join(rows)})?" if rows else ""


def terms(tags: Tags, mark: Mark) -> tuple[str, ...]:
    """The terminals used by these rules."""
    end, *last = (re.escape(tag).replace("/", "\\/") for tag in (tags.end, *_TAGS.findall(tags.tail + tags.closing)))
    none = f" & ~/(.|\\n)*({'|'.join(last)})(.|\\n)*/"  # a parser may stop at these earlier ends
    none += f" & ~/\\n?null\\n?({end})?/i" if not tags.all_json else ""
    if _is_text(tags, mark):
        return (*_TERMS, f"TEXT: /(.|\\n)*{end}/ & ~/(.|\\n)*{end}(.|\\n)+/{none}")
    return (*_TERMS, f"TEXT: /(.|\\n)+/ & ~/(.|\\n)*{end}(.|\\n)*/{none}")


def _is_text(tags: Tags, mark: Mark) -> bool:
    return mark(tags.end).startswith('"')


def _argument(tags: Tags, mark: Mark, name: str, value: str) -> str:
    is_text = value == "TEXT" or value.startswith("(")
    key, end = tags.key.replace("KEY", name).replace("IS_TEXT", json.dumps(is_text)), tags.end
    if tags.is_quoted:
        key, end = (key + end, end) if is_text else (key, "")
    key, end = mark_all(key, mark), mark_all(end, mark)
    if value == "TEXT":
        value, end = ("TEXT", "") if _is_text(tags, mark) else ("TEXT?", end)
    return " ".join(part for part in (key, value, end, tags.behind and quoted(tags.behind)) if part)


def _arguments(tool: Tool, tags: Tags) -> Iterator[tuple[str, str, bool]]:
    """Name, rule and whether it is required, of each argument. Raises UsageError."""
    if not _is_name(tool.name, tags):
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
        if not _is_name(name, tags):
            raise _refused(tool, f"the name {name!r}")
        one = said if isinstance(said, dict) else {}
        yield name, _value(tool, name, one, shared, tags), name in required


def _is_name(name: str, tags: Tags) -> bool:
    if not tags.is_python:
        return _NAME.fullmatch(name) is not None
    return all(part.isidentifier() and not iskeyword(part) for part in name.split("."))


def _value(tool: Tool, name: str, schema: Mapping[str, Any], shared: Mapping[str, Any], tags: Tags) -> str:
    kind = schema.get("type")
    if tags.is_python:
        return json_rule({**_safe(schema), **_safe(shared)}, strict=tool.strict)
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


_GLM: Final = Tags(head="NAME", key="<arg_key>KEY</arg_key><arg_value>", end="</arg_value>", all_json=True)
_QWEN: Final = Tags(
    head="\n<function=NAME>\n", key="<parameter=KEY>\n", end="</parameter>", behind="\n", tail="</function>\n"
)
_MINIMAX: Final = Tags(
    head='\n<invoke name="NAME">\n', key='<parameter name="KEY">', end="</parameter>", behind="\n", tail="</invoke>\n"
)
_DSML: Final = Tags(
    head='\n<｜DSML｜invoke name="NAME">\n',
    key='<｜DSML｜parameter name="KEY" string="IS_TEXT">',
    end="</｜DSML｜parameter>",
    behind="\n",
    tail="</｜DSML｜invoke>\n",
    all_json=True,
)
_GEMMA: Final = Tags(head="call:NAME{", key="KEY:", end='<|"|>', tail="}", all_json=True, comma=",", is_quoted=True)
# forms whose arguments stand between tags
TAGGED: Final = {
    "dsml": _DSML,
    "gemma4": _GEMMA,
    "glm47": _GLM,
    "laguna": _GLM,
    "minimax_m2": _MINIMAX,
    "pythonic": Tags("[NAME(", "KEY=", "", tail=")]", comma=", ", is_python=True),
    "qwen3_coder": _QWEN,
    "seed": _QWEN._replace(key="<parameter=KEY>"),
}


def _call(form: CallForm, tool: Tool, mark: Mark) -> str:
    """Rule of a call in JSON, after its opening."""
    own = {
        "NAME": quoted(json.dumps(tool.name, ensure_ascii=False)[1:-1]),
        "ARGUMENTS": arguments_of(tool),
        "CALLID": "/[a-zA-Z0-9]{9}/",
        "INDEX": "/[0-9]{1,2}/",
    }
    pieces = filter(None, re.split(f"({'|'.join(own)})", form.body + form.closing))
    return " ".join(own.get(piece) or mark_all(piece, mark) for piece in pieces)


def inlined(grammar: Grammar) -> str:
    """A grammar as a rule of another one."""
    if grammar.kind == "json_schema":
        return json_rule(json.loads(grammar.source), strict=True)
    pattern = re.sub(r"(?<!\\)/", r"\/", grammar.source).replace("\n", "\\n")
    source = f"start: /{pattern}/" if grammar.kind == "regex" else grammar.source
    return f"%lark {{\n{source}\n}}"


def shape_of(grammar: Grammar) -> str:
    """Rule of an answer without calls. Raises UsageError."""
    if grammar.kind != "json_schema":
        raise UsageError("With tools, an answer can be constrained by a JSON schema only.", "Leave out the tools.")
    return inlined(grammar)


def call_grammar(form: CallForm, tools: Sequence[Tool], mark: Mark, *, one_call: bool, otherwise: str = "") -> Grammar:
    """Grammar of an answer that calls one of `tools`, or several unless `one_call`.

    `otherwise`: rule of an answer without calls; if it is FREE, text may also precede the first call. Raises UsageError
    for a form that can't be enforced, or a schema that it can't express.
    """
    if not form.body and form.name not in TAGGED:
        what = f"Tool calls can't be enforced in this model's format ({form.name})."
        raise UsageError(what, "Leave tool_choice and strict out, or load another model.")
    tags = TAGGED[form.name]._replace(closing=form.closing) if not form.body else None
    opening, named = mark_all(form.opening, mark), [f"tool_{number}" for number in range(len(tools))]
    first = f"BLANK? {opening}"
    if form.is_bare:
        first, otherwise = "BLANK?", "PLAIN?" if otherwise == FREE else otherwise
    elif otherwise == FREE:
        first = "opened" if opening.startswith('"') else f"WORDS? {opening}"
    between = quoted(form.between) if form.between else ""
    again = "" if one_call or form.is_single else f" ({between} {opening} any)*"
    calls = [tagged(tags, tool, mark) if tags else _call(form, tool, mark) for tool in tools]
    lines = [
        f"start: {first} any{again}" + (f" | {otherwise}" if otherwise else ""),
        f"any: {' | '.join(named)}",
        *(f"{rule}: {call}" for rule, call in zip(named, calls, strict=True)),
        *([f"opened[lazy]: /(.|\\n)*/ {opening}"] if first == "opened" else []),
        *TERMS,
        *(terms(tags, mark) if tags else ()),
    ]
    return Grammar(kind="lark", source="\n".join(lines))


def arguments_of(tool: Tool) -> str:
    """Rule of a tool's arguments as a JSON object."""
    return json_rule({**json.loads(tool.parameters), "type": "object"}, strict=tool.strict)
