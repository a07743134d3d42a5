"""Grammars of answers with tool calls, in the form that the model's family writes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from core.answer_parts import Tool
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.call_forms import CallForm
from core.models.text.marks import Mark, json_rule, mark_all, quoted
from core.models.text.tagged_calls import Tags, tagged, terms

FREE: Final = "WORDS?"

# PLAIN is text that doesn't begin like a call without an opening
TERMS: Final = ("WORDS: /(.|\\n)+/", "BLANK: /\\n{1,2}/", "PLAIN: /[^{\\s](.|\\n)*/")


_GLM: Final = Tags(
    head="NAME",
    key="<arg_key>KEY</arg_key><arg_value>",
    end="</arg_value>",
    all_json=True,
)
_QWEN: Final = Tags(
    head="\n<function=NAME>\n",
    key="<parameter=KEY>\n",
    end="</parameter>",
    behind="\n",
    tail="</function>\n",
)
_MINIMAX: Final = Tags(
    head='\n<invoke name="NAME">\n',
    key='<parameter name="KEY">',
    end="</parameter>",
    behind="\n",
    tail="</invoke>\n",
)
_DSML: Final = Tags(
    head='\n<｜DSML｜invoke name="NAME">\n',
    key='<｜DSML｜parameter name="KEY" string="IS_TEXT">',
    end="</｜DSML｜parameter>",
    behind="\n",
    tail="</｜DSML｜invoke>\n",
    all_json=True,
)
_GEMMA: Final = Tags(
    head="call:NAME{",
    key="KEY:",
    end='<|"|>',
    tail="}",
    all_json=True,
    comma=",",
    is_quoted=True,
)
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
