"""The family's reader finds every call that a grammar enforces."""

from __future__ import annotations

import json
import random
from functools import cache

import jsonschema
import pytest
from llguidance import LLTokenizer

from core.answer_parts import Tool, ToolCall
from core.constraint import Grammar
from core.errors import UsageError
from core.models.text.call_grammar import FREE, TAGGED, call_grammar, shape_of
from core.models.text.grammar import matcher_of, tokenizer_of
from tests.support.families import TEMPLATES, Family
from tests.support.search import SEARCH

WORD = {"type": "string", "enum": ["höp", "ring"]}
SCHEMA = {"properties": {"word": WORD}, "required": ["word"], "additionalProperties": False}
TOOLS = [Tool(name="look_up", parameters=json.dumps(SCHEMA), strict=True), Tool(name="say-it")]
# a call of each of them
CALLS = {
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look_up\n```json\n"
        '{"word": "höp"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>say-it\n```json\n"
        '{"any": "höp"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek_31": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>"
        '{"word": "höp"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>say-it<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "llama": (
        '{"name": "look_up", "parameters": {"word": "höp"}}',
        '{"name": "say-it", "parameters": {"any": "höp"}}',
    ),
    "mistral_list": (
        '[TOOL_CALLS][{"name": "look_up", "arguments": {"word": "höp"}}]',
        '[TOOL_CALLS][{"name": "say-it", "arguments": {"any": "höp"}}]',
    ),
    "mistral_ids": (
        '[TOOL_CALLS]look_up[CALL_ID]abcdefghi[ARGS]{"word": "höp"}',
        '[TOOL_CALLS]say-it[CALL_ID]a23456789[ARGS]{"any": "höp"}',
    ),
    "apertus": (
        '<|tools_prefix|>[{"look_up": {"word": "höp"}}]<|tools_suffix|>',
        '<|tools_prefix|>[{"say-it": {}}]<|tools_suffix|>',
    ),
    "cohere": (
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "look_up", "parameters": {"word": "höp"}}\n]'
        "<|END_ACTION|>",
        '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "say-it", "parameters": {}}\n]<|END_ACTION|>',
    ),
    "dsml": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="look_up">\n'
        '<｜DSML｜parameter name="word" string="true">höp</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="say-it">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    ),
    "gemma4": (
        '<|tool_call>call:look_up{word:<|"|>höp<|"|>}<tool_call|>',
        "<|tool_call>call:say-it{}<tool_call|>",
    ),
    "gigachat": (
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "look_up", "arguments": {"word": "höp"}}',
        '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "say-it", "arguments": {}}',
    ),
    "gigachat_31": (
        '<|function_call|>{"name": "look_up", "arguments": {"word": "höp"}}',
        '<|function_call|>{"name": "say-it", "arguments": {"any": "höp"}}',
    ),
    "pythonic": (
        '<|tool_call_start|>[look_up(word="höp")]<|tool_call_end|>',
        "<|tool_call_start|>[say_it()]<|tool_call_end|>",
    ),
    "seed": (
        "<seed:tool_call>\n<function=look_up>\n<parameter=word>höp</parameter>\n</function>\n</seed:tool_call>",
        "<seed:tool_call>\n<function=say-it>\n</function>\n</seed:tool_call>",
    ),
    "apriel": (
        '<tool_calls>[{"name": "look_up", "arguments": {"word": "höp"}}]</tool_calls>',
        '<tool_calls>[{"name": "say-it", "arguments": {}}]</tool_calls>',
    ),
    "nemotron": (
        '<TOOLCALL>[{"name": "look_up", "arguments": {"word": "höp"}}]</TOOLCALL>',
        '<TOOLCALL>[{"name": "say-it", "arguments": {}}]</TOOLCALL>',
    ),
    "phi": (
        '<|tool_call|>[{"name": "look_up", "arguments": {"word": "höp"}}]<|/tool_call|>',
        '<|tool_call|>[{"name": "say-it", "arguments": {}}]<|/tool_call|>',
    ),
    "glm47": (
        "<tool_call>look_up<arg_key>word</arg_key><arg_value>höp</arg_value></tool_call>",
        "<tool_call>say-it</tool_call>",
    ),
    "json_tools": (
        '<tool_call>\n{"name": "look_up", "arguments": {"word": "höp"}}\n</tool_call>',
        '<tool_call>\n{"name": "say-it", "arguments": {"any": "höp"}}\n</tool_call>',
    ),
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>"
        '{"word": "höp"}<|tool_call_end|><|tool_calls_section_end|>',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.say-it:1<|tool_call_argument_begin|>"
        "{}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "minimax_m3": (
        ']<]minimax[>[<tool_call>\n{"name": "look_up", "arguments": {"word": "höp"}}\n]<]minimax[>[</tool_call>',
        ']<]minimax[>[<tool_call>\n{"name": "say-it", "arguments": {}}\n]<]minimax[>[</tool_call>',
    ),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="look_up">\n<parameter name="word">höp</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        '<minimax:tool_call>\n<invoke name="say-it">\n</invoke>\n</minimax:tool_call>',
    ),
    "mistral": ('[TOOL_CALLS]look_up[ARGS]{"word": "höp"}', '[TOOL_CALLS]say-it[ARGS]{"any": "höp"}'),
    "qwen3_coder": (
        "<tool_call>\n<function=look_up>\n<parameter=word>\nhöp</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=say-it>\n</function>\n</tool_call>",
    ),
}
CALLS["laguna"] = CALLS["glm47"]
CALLS["dsml_4"] = (
    CALLS["dsml"][0].replace("function_calls", "tool_calls"),
    CALLS["dsml"][1].replace("function_calls", "tool_calls"),
)
# their answers hold one call, and more stand without anything between them
SINGLE, CLOSE = ("llama", "gigachat", "gigachat_31"), ("mistral", "mistral_list", "mistral_ids", "kimi_k2", "gemma4")
MARKS = {"[TOOL_CALLS]": 257, "[ARGS]": 258}


def tokens_of(text: str) -> list[int]:
    tokens: list[int] = []
    while text:
        mark = next((mark for mark in MARKS if text.startswith(mark)), text[0])
        tokens += [MARKS[mark]] if mark in MARKS else mark.encode()
        text = text[len(mark) :]
    return tokens


def tools_of(family: str) -> list[Tool]:
    """Both tools; Python takes no hyphen in a name."""
    return [TOOLS[0], Tool(name="say_it")] if family == "pythonic" else TOOLS


def mark(text: str) -> str:
    return f"<[{MARKS[text]}]>" if text in MARKS else json.dumps(text)


@cache
def tokenizer(*special: int) -> LLTokenizer:
    """Bytes, an end, and these."""
    return tokenizer_of([bytes([byte]) for byte in range(256)] + [b""] * (1 + len(special)), frozenset(special), (256,))


def holds(grammar: Grammar, text: str) -> bool:
    matcher = matcher_of(grammar, tokenizer(*MARKS.values()))
    return matcher.try_consume_tokens(tokens_of(text)) == len(tokens_of(text)) and matcher.is_accepting()


@pytest.mark.parametrize("family", CALLS)
def test_what_must_be_called_is_called_in_the_grammar_form_the_family(family: str) -> None:
    call, other = CALLS[family]
    reader = Family(family).reader(tuple(tools_of(family)))
    (read,) = [*reader.read(call), *reader.end(True)]
    assert isinstance(read, ToolCall)
    assert (read.name, json.loads(read.arguments)) == ("look_up", {"word": "höp"})
    one = call_grammar(Family(family).form, tools_of(family), mark, one_call=True)
    several = call_grammar(Family(family).form, tools_of(family), mark, one_call=False)
    between = "" if family in CLOSE else "\n"
    for grammar in (one, several):
        assert holds(grammar, call)
        assert holds(grammar, "\n\n" + other)
        for wrong in ("", "Well.", call.replace("höp", "x"), call[:-1]):
            assert not holds(grammar, wrong)
    assert (holds(one, call + between + other), holds(several, call + between + other)) == (False, family not in SINGLE)


@pytest.mark.parametrize("family", CALLS)
def test_words_are_free_where_nothing_must_be_called_but_strict_calls_are_not(family: str) -> None:
    grammar = call_grammar(Family(family).form, tools_of(family), mark, one_call=False, otherwise=FREE)
    call, _ = CALLS[family]
    for text in ("", "Well <then", call, f"Well.\n{call}"):
        assert holds(grammar, text)
    before = "" if family == "llama" else "Well.\n"  # it calls at once or not at all
    assert not holds(grammar, f"{before}{call.replace('höp', 'x')}")


VALUES = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "anything"},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "few": {"type": "integer", "minimum": 3, "maximum": 40},
        "on": {"type": "boolean"},
        "way": WORD,
        "list": {"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 2},
        "point": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "additionalProperties": False},
    },
    "required": ["text", "few", "list"],
    "additionalProperties": False,
    "$defs": {"x": {"type": "number", "minimum": 0, "maximum": 9}},
}
CLOSERS = ("</｜DSML｜parameter>", '<|"|>', "</parameter>", "</arg_value>", '"', "]", "}", "\n")


def babble(grammar: Grammar, dice: random.Random) -> str:
    """Random text of the grammar, of a model that prefers marks to words."""
    matcher, text = matcher_of(grammar, tokenizer()), b""
    while not (matcher.is_accepting() and dice.random() < 0.5):
        fitting = [c for c in CLOSERS if matcher.validate_tokens(list(c.encode())) == len(c)]
        marks = [
            *CLOSERS,
            "null",
            "</tool_call>",
            "</function>",
            "</invoke>",
            '<|"|>',
            "<tool_call>",
            "<arg_key>",
            "<parameter=on>",
            "<",
            "日",
        ]
        may = [m for m in marks if matcher.validate_tokens(list(m.encode())) == len(m.encode())]
        bits = matcher.compute_logit_bias()
        letters = [bytes([byte]) for byte in range(256) if bits[byte]]
        if fitting and dice.random() < 0.3:
            said = dice.choice(fitting).encode()
        elif may and dice.random() < 0.5:
            said = dice.choice(may).encode()
        elif letters:
            said = dice.choice(letters)
        else:
            break
        assert matcher.consume_tokens(list(said))
        text += said
        assert len(text) < 20_000
    return text.decode()


@pytest.mark.search
@pytest.mark.parametrize("family", CALLS)
def test_whatever_is_written_in_a_call_is_read_as_its_schema_says(family: str) -> None:
    dice, tool = random.Random(family), Tool(name="look_up", parameters=json.dumps(VALUES), strict=True)
    grammar = call_grammar(Family(family).form, [tool], json.dumps, one_call=True)
    for _ in range(4 * SEARCH):
        text = babble(grammar, dice)
        reader = Family(family).reader((tool,))
        parts = [*reader.read(text), *reader.end(True)]
        assert [type(part) for part in parts] == [ToolCall], text
        assert isinstance(parts[0], ToolCall)
        jsonschema.validate(json.loads(parts[0].arguments), VALUES)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "x"}}}, "pattern of a"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "a without one type"),
        ({"properties": {"a b": {"type": "string"}}}, "name 'a b'"),
        ({"properties": {}, "required": ["b"]}, "required b"),
        ({"properties": {}, "minProperties": 1}, "minProperties"),
    ],
)
def test_what_no_parser_would_read_back_is_refused_where_it_is_strict(said: object, named: str) -> None:
    form, tool = Family("qwen3_coder").form, Tool(name="t", parameters=json.dumps(said), strict=True)
    with pytest.raises(UsageError, match=named):
        call_grammar(form, [tool], json.dumps, one_call=True)


def test_a_tag_that_is_a_token_of_its_own_ends_a_text() -> None:
    marks = {"<arg_value>": 257, "</arg_value>": 258}
    tool = Tool(name="t", parameters='{"properties": {"a": {"type": "string"}}}')
    form = Family("glm47").form
    grammar = call_grammar(form, [tool], lambda m: f"<[{marks[m]}]>" if m in marks else json.dumps(m), one_call=True)
    for text in (b"", b"x", b"a </b> c\n"):
        tokens = [*b"<tool_call>t<arg_key>a</arg_key>", 257, *text, 258, *b"</tool_call>"]
        matcher = matcher_of(grammar, tokenizer(*marks.values()))
        assert matcher.try_consume_tokens(tokens) == len(tokens), text
        assert matcher.is_accepting()


def test_an_answer_calls_or_has_its_shape() -> None:
    shape = shape_of(Grammar(kind="json_schema", source='{"type": "null"}'))
    grammar = call_grammar(Family("json_tools").form, TOOLS, mark, one_call=True, otherwise=shape)
    assert [holds(grammar, text) for text in ("null", CALLS["json_tools"][0], "Well.")] == [True, True, False]


def test_a_family_that_writes_otherwise_is_refused_by_its_name() -> None:
    for family, words in (("function_gemma", r"\(function_gemma\)"), ("pythonic", "can't enforce its name")):
        with pytest.raises(UsageError, match=words):
            call_grammar(Family(family).form, TOOLS, mark, one_call=True)
    with pytest.raises(UsageError, match="JSON schema only"):
        shape_of(Grammar(kind="regex", source="a"))


def test_every_form_has_its_calls_here() -> None:
    assert {*TAGGED, *TEMPLATES} <= {*CALLS}
