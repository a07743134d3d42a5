"""Calls that a grammar enforces are those that mlx-lm's parser of the family reads."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from core.answer_parts import Tool
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.call_grammar import FORMS, FREE, call_grammar, form_of, shape_of
from core.models.text.grammar import matcher_of, tokenizer_of

SCHEMA = {"properties": {"word": {"enum": ["höp", "ring"]}}, "required": ["word"], "additionalProperties": False}
TOOLS = [Tool(name="look_up", parameters=json.dumps(SCHEMA), strict=True), Tool(name="say-it")]
CALLS = {
    "json_tools": '<tool_call>\n{"name": "look_up", "arguments": {"word": "höp"}}\n</tool_call>',
    "mistral": '[TOOL_CALLS]look_up[ARGS]{"word": "höp"}',
}
MARKS = {"[TOOL_CALLS]": 257, "[ARGS]": 258}


def tokens_of(text: str) -> list[int]:
    tokens: list[int] = []
    while text:
        mark = next((mark for mark in MARKS if text.startswith(mark)), text[0])
        tokens += [MARKS[mark]] if mark in MARKS else mark.encode()
        text = text[len(mark) :]
    return tokens


def mark(text: str) -> str:
    return f"<[{MARKS[text]}]>" if text in MARKS else json.dumps(text)


def holds(grammar: Grammar, text: str) -> bool:
    tokenizer = tokenizer_of([bytes([byte]) for byte in range(256)] + [b""] * 3, frozenset({257, 258}), (256,))
    matcher = matcher_of(grammar, tokenizer)
    return matcher.try_consume_tokens(tokens_of(text)) == len(tokens_of(text)) and matcher.is_accepting()


@pytest.mark.parametrize("family", FORMS)
def test_what_must_be_called_is_called_in_the_form_of_the_family(family: str) -> None:
    call, parser = CALLS[family], import_module(f"mlx_lm.tool_parsers.{family}")
    written = call.removeprefix(parser.tool_call_start).removesuffix(parser.tool_call_end)
    assert parser.parse_tool_call(written) == {"name": "look_up", "arguments": {"word": "höp"}}
    one = call_grammar(form_of(family), TOOLS, mark, one_call=True)
    several = call_grammar(form_of(family), TOOLS, mark, one_call=False)
    other = call.replace("look_up", "say-it")
    between = "" if family == "mistral" else "\n"
    for grammar in (one, several):
        assert holds(grammar, call)
        assert holds(grammar, "\n\n" + other.replace("word", "any"))
        for wrong in ("", "Well.", call.replace("höp", "x"), call[:-1]):
            assert not holds(grammar, wrong)
    assert (holds(one, call + between + other), holds(several, call + between + other)) == (False, True)


@pytest.mark.parametrize("family", FORMS)
def test_words_are_free_where_nothing_must_be_called_but_strict_calls_are_not(family: str) -> None:
    grammar = call_grammar(form_of(family), TOOLS, mark, one_call=False, beside=FREE)
    call = CALLS[family]
    for text in ("", "Well <then", call, f"Well.\n{call}"):
        assert holds(grammar, text)
    assert not holds(grammar, f"Well.\n{call.replace('höp', 'x')}")


def test_an_answer_calls_or_has_its_shape() -> None:
    shape = shape_of(Grammar(kind="json_schema", source='{"type": "null"}'))
    grammar = call_grammar(form_of("json_tools"), TOOLS, mark, one_call=True, beside=shape)
    assert [holds(grammar, text) for text in ("null", CALLS["json_tools"], "Well.")] == [True, True, False]


def test_a_family_that_writes_otherwise_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match=r"\(pythonic\)"):
        form_of("pythonic")
    with pytest.raises(UsageError, match="JSON schema only"):
        shape_of(Grammar(kind="regex", source="a"))
