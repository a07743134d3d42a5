"""Grammars of answers with tool calls, in the form that the model's family writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from core.answer_parts import Tool
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.call_forms import EXAMPLES, pieces
from core.models.text.marks import Mark, json_rule, mark_all, quoted
from core.models.text.tagged_calls import Tags, tagged, terms

FREE: Final = "WORDS?"

# PLAIN is text that doesn't begin like a call without an opening
TERMS: Final = ("WORDS: /(.|\\n)+/", "BLANK: /\\n{1,2}/", "PLAIN: /[^{\\s](.|\\n)*/")


class Form(NamedTuple):
    """A family's form of calls: `opening` before each, `between` two, then the rule `call`, made of `terms`."""

    opening: str
    call: Callable[[Tool, Mark], str]
    between: str
    terms: Callable[[Mark], tuple[str, ...]] = lambda _: ()


def _by_example(example: str, between: str = '"\\n"') -> Form:
    """The form of calls like the example, each with its opening; without an opening, there is only one."""
    opening = re.match(r"<[^<>]*>|\[TOOL_CALLS\]|", example)
    rest = tuple(pieces(example.removeprefix(opening[0]))) if opening else ()

    def call(tool: Tool, mark: Mark) -> str:
        name = quoted(json.dumps(tool.name, ensure_ascii=False)[1:-1])
        own = {"NAME": name, "ARGUMENTS": arguments_of(tool), "CALLID": "/[a-zA-Z0-9]{9}/"}
        return " ".join(own.get(piece) or mark_all(piece, mark) for piece in rest)

    return Form(opening[0] if opening else "", call, between)


def _kimi_k2(tool: Tool, mark: Mark) -> str:
    begin, named = mark("<|tool_call_begin|>"), quoted(f"functions.{tool.name}:")
    behind = f"{mark('<|tool_call_end|>')} {mark('<|tool_calls_section_end|>')}"
    return f"{begin} {named} NUMBER {mark('<|tool_call_argument_begin|>')} {arguments_of(tool)} {behind}"


_GLM: Final = Tags(
    head="NAME",
    key="<arg_key>KEY</arg_key><arg_value>",
    end="</arg_value>",
    behind="",
    tail="</tool_call>",
    all_json=True,
    null=False,
)
_QWEN: Final = Tags(
    head="\n<function=NAME>\n",
    key="<parameter=KEY>\n",
    end="</parameter>",
    behind="\n",
    tail="</function>\n</tool_call>",
)
_MINIMAX: Final = Tags(
    head='\n<invoke name="NAME">\n',
    key='<parameter name="KEY">',
    end="</parameter>",
    behind="\n",
    tail="</invoke>\n</minimax:tool_call>",
)
_GLM_FORM: Final = Form("<tool_call>", tagged(_GLM), '"\\n"', terms(_GLM))

FORMS: Final = {
    **{name: _by_example(*example) for name, example in EXAMPLES.items()},
    "glm47": _GLM_FORM,
    "kimi_k2": Form("<|tool_calls_section_begin|>", _kimi_k2, "", lambda _: ("NUMBER: /[0-9]{1,2}/",)),
    "laguna": _GLM_FORM,
    "minimax_m2": Form("<minimax:tool_call>", tagged(_MINIMAX), '"\\n"', terms(_MINIMAX)),
    "qwen3_coder": Form("<tool_call>", tagged(_QWEN), '"\\n"', terms(_QWEN)),
}


def grammar_form(name: str) -> Form:
    """The form of that name. Raises UsageError for an unsupported one."""
    if name not in FORMS:
        what = f"Tool calls can't be enforced in this model's format ({name})."
        raise UsageError(what, "Leave tool_choice and strict out, or load another model.")
    return FORMS[name]


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


def call_grammar(form: Form, tools: Sequence[Tool], mark: Mark, *, one_call: bool, otherwise: str = "") -> Grammar:
    """Grammar of an answer that calls one of `tools`, or several unless `one_call`.

    `otherwise`: rule of an answer without calls; if it is FREE, text may also precede the first call. Raises UsageError
    for a schema that the family's form can't express.
    """
    opening, named = mark(form.opening) if form.opening else "", [f"tool_{number}" for number in range(len(tools))]
    first = f"BLANK? {opening}"
    if otherwise == FREE and form.opening:
        first = "opened" if opening.startswith('"') else f"WORDS? {opening}"
    elif otherwise == FREE:
        otherwise = "PLAIN?"
    again = "" if one_call or not form.opening else f" ({form.between} {opening} any)*"
    lines = [
        f"start: {first} any{again}" + (f" | {otherwise}" if otherwise else ""),
        f"any: {' | '.join(named)}",
        *(f"{rule}: {form.call(tool, mark)}" for rule, tool in zip(named, tools, strict=True)),
        *([f"opened[lazy]: /(.|\\n)*/ {opening}"] if first == "opened" else []),
        *TERMS,
        *form.terms(mark),
    ]
    return Grammar(kind="lark", source="\n".join(lines))


def arguments_of(tool: Tool) -> str:
    """Rule of a tool's arguments as a JSON object."""
    return json_rule({**json.loads(tool.parameters), "type": "object"}, strict=tool.strict)
