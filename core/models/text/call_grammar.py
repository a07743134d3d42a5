"""Grammars of answers with tool calls, in the form that mlx-lm's parser of the model's family reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from core.answer_parts import Tool
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.marks import Mark, json_rule, quoted
from core.models.text.tagged_calls import Tags, tagged, terms

FREE: Final = "WORDS?"

_TERMS: Final = ("WORDS: /(.|\\n)+/", "BLANK: /\\n{1,2}/")


class Form(NamedTuple):
    """A family's form of calls: `opening` before each, `between` two, then the rule `call`, made of `terms`."""

    opening: str
    call: Callable[[Tool, Mark], str]
    between: str
    terms: Callable[[Mark], tuple[str, ...]] = lambda _: ()


def _json_tools(tool: Tool, mark: Mark) -> str:
    opening = f'\n{{"name": {quoted(tool.name)}, "arguments": '
    return f"{quoted(opening)} {_arguments(tool)} {quoted('}' + chr(10))} {mark('</tool_call>')}"


def _mistral(tool: Tool, mark: Mark) -> str:
    return f"{quoted(tool.name)} {mark('[ARGS]')} {_arguments(tool)}"


def _kimi_k2(tool: Tool, mark: Mark) -> str:
    begin, named = mark("<|tool_call_begin|>"), quoted(f"functions.{tool.name}:")
    behind = f"{mark('<|tool_call_end|>')} {mark('<|tool_calls_section_end|>')}"
    return f"{begin} {named} NUMBER {mark('<|tool_call_argument_begin|>')} {_arguments(tool)} {behind}"


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
    "glm47": _GLM_FORM,
    "json_tools": Form("<tool_call>", _json_tools, '"\\n"'),
    "kimi_k2": Form("<|tool_calls_section_begin|>", _kimi_k2, "", lambda _: ("NUMBER: /[0-9]{1,2}/",)),
    "laguna": _GLM_FORM,
    "minimax_m2": Form("<minimax:tool_call>", tagged(_MINIMAX), '"\\n"', terms(_MINIMAX)),
    "mistral": Form("[TOOL_CALLS]", _mistral, ""),
    "qwen3_coder": Form("<tool_call>", tagged(_QWEN), '"\\n"', terms(_QWEN)),
}


def form_of(parser: str) -> Form:
    """Form read by this parser of mlx-lm. Raises UsageError for an unsupported one."""
    if parser not in FORMS:
        what = f"Tool calls can't be enforced in this model's format ({parser or 'it has none'})."
        raise UsageError(what, "Leave tool_choice and strict out, or load another model.")
    return FORMS[parser]


def shape_of(grammar: Grammar) -> str:
    """Rule of an answer without calls. Raises UsageError."""
    if grammar.kind != "json_schema":
        raise UsageError("With tools, an answer can be constrained by a JSON schema only.", "Leave out the tools.")
    return json_rule(json.loads(grammar.source), strict=True)


def call_grammar(form: Form, tools: Sequence[Tool], mark: Mark, *, one_call: bool, otherwise: str = "") -> Grammar:
    """Grammar of an answer that calls one of `tools`, or several unless `one_call`.

    `otherwise`: rule of an answer without calls; if it is FREE, text may also precede the first call. Raises UsageError
    for a schema that the family's form can't express.
    """
    opening, named = mark(form.opening), [f"tool_{number}" for number in range(len(tools))]
    first = f"BLANK? {opening}"
    if otherwise == FREE:
        first = "opened" if opening.startswith('"') else f"WORDS? {opening}"
    again = "" if one_call else f" ({form.between} {opening} any)*"
    lines = [
        f"start: {first} any{again}" + (f" | {otherwise}" if otherwise else ""),
        f"any: {' | '.join(named)}",
        *(f"{rule}: {form.call(tool, mark)}" for rule, tool in zip(named, tools, strict=True)),
        *([f"opened[lazy]: /(.|\\n)*/ {opening}"] if first == "opened" else []),
        *_TERMS,
        *form.terms(mark),
    ]
    return Grammar(kind="lark", source="\n".join(lines))


def _arguments(tool: Tool) -> str:
    return json_rule({**json.loads(tool.parameters), "type": "object"}, strict=tool.strict)
