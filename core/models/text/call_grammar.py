"""Grammars of answers that call tools, in the form that mlx-lm's parser of the model's family reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from core.answer_parts import Tool
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.grammar import STYLE

FREE: Final = "WORDS?"

_TERMS: Final = ("WORDS: /(.|\\n)+/", "BLANK: /\\n{1,2}/")
_LENIENT: Final = {"lenient": True, "coerce_one_of": True}

# how a marker of the family is written: as a token of its own, or as text
Mark = Callable[[str], str]


class Form(NamedTuple):
    """How a family writes calls: `opening` stands before each, and `between` two of them. `call` is what follows, of
    the name of a tool and the grammar of its arguments.
    """

    opening: str
    call: Callable[[str, str, Mark], str]
    between: str


def _json_tools(name: str, arguments: str, mark: Mark) -> str:
    opening = f'\n{{"name": {_text(name)}, "arguments": '
    return f"{_text(opening)} {arguments} {_text('}' + chr(10))} {mark('</tool_call>')}"


def _mistral(name: str, arguments: str, mark: Mark) -> str:
    return f"{_text(name)} {mark('[ARGS]')} {arguments}"


FORMS: Final = {
    "json_tools": Form("<tool_call>", _json_tools, '"\\n"'),
    "mistral": Form("[TOOL_CALLS]", _mistral, ""),
}


def form_of(parser: str) -> Form:
    """Of the family that this parser of mlx-lm reads. Raises UsageError where none is known here."""
    if parser not in FORMS:
        what = f"Calls cannot be enforced in the form in which this model writes them ({parser or 'it has none'})."
        raise UsageError(what, "Leave tool_choice and strict out, or load another model.")
    return FORMS[parser]


def arguments_of(tool: Tool) -> Grammar:
    """Of a call: what its schema says or, where the tool is not strict, as much of that as can be enforced."""
    schema = {**json.loads(tool.parameters), "type": "object"}
    return Grammar(kind="lark", source=f"start: {_json(schema, {} if tool.strict else _LENIENT)}")


def shape_of(grammar: Grammar) -> str:
    """A rule for what an answer may be in the place of calls. Raises UsageError."""
    if grammar.kind != "json_schema":
        raise UsageError("Beside tools an answer can have the shape of a JSON schema only.", "Ask without tools.")
    return _json(json.loads(grammar.source), {})


def call_grammar(form: Form, tools: Sequence[Tool], mark: Mark, *, one_call: bool, beside: str = "") -> Grammar:
    """An answer that calls one of `tools`, or several where not `one_call`. `beside`: the rule of what it may be in the
    place of calls; where that is FREE, there may also be words before the first.
    """
    opening, named = mark(form.opening), [f"tool_{number}" for number in range(len(tools))]
    first = f"BLANK? {opening}"
    if beside == FREE:
        first = "opened" if opening.startswith('"') else f"WORDS? {opening}"
    again = "" if one_call else f" ({form.between} {opening} any)*"
    lines = [
        f"start: {first} any{again}" + (f" | {beside}" if beside else ""),
        f"any: {' | '.join(named)}",
        *(
            f"{rule}: {form.call(tool.name, arguments_of(tool).source.removeprefix('start: '), mark)}"
            for rule, tool in zip(named, tools, strict=True)
        ),
        *([f"opened[lazy]: /(.|\\n)*/ {opening}"] if first == "opened" else []),
        *_TERMS,
    ]
    return Grammar(kind="lark", source="\n".join(lines))


def _json(schema: dict[str, Any], options: dict[str, bool]) -> str:
    return f"%json {json.dumps({**schema, 'x-guidance': {**STYLE, **options}})}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
