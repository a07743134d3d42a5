"""Harmony's channels: gpt-oss's thoughts, text and calls, and its history in the form of its template."""

from __future__ import annotations

import json

import pytest

from core.answer_parts import Tool, ToolCall
from core.constraint import Grammar
from core.models.text.grammar import matcher_of, tokenizer_of
from core.models.text.harmony import as_tags, harmony_grammar, harmony_turns
from core.models.text.template_values import one_call_each, said_before
from core.requests.answers import Message
from tests.unit.models.test_call_forms import told, write

FINAL = "<|channel|>final<|message|>"
HM = ("thought", "User greets.")
THOUGHT = "<|channel|>analysis<|message|>User greets.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"text": "a"}<|call|>'
MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>")


def call_of(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{THOUGHT}{FINAL}Hello\n there!", [HM, ("text", "Hello\n there!")]),
        (f"{THOUGHT}{CALL}", [HM, write("a")]),
        (
            f"{THOUGHT}<|channel|>commentary<|message|>I write.<|end|><|start|>assistant{CALL}",
            [("thought", "User greets.\n\nI write."), write("a")],
        ),
        ('<|channel|>final <|constrain|>json<|message|>{"a": 1}<|return|>', [("text", '{"a": 1}')]),
        (THOUGHT + ' to=functions.write<|channel|>commentary json<|message|>{"text": "a"}', [HM, write("a")]),
        ("<|channel|>commentary to=python<|message|>1 + 1<|call|>", [("text", call_of("python", "1 + 1"))]),
        ("<|channel|>commentary to=functions.write<|message|>{no<|call|>", [("text", call_of("write", "{no"))]),
        ("<|channel|>analysis<|message|>cut off", [("thought", "cut off")]),
        ("Hello without channels", [("text", "Hello without channels")]),
    ],
)  # fmt: skip
def test_channels_are_read(text: str, parts: list[tuple[str, object]]) -> None:
    assert told("harmony", text) == parts


def test_on_a_screen_it_looks_like_the_answer_of_any_other_family() -> None:
    assert as_tags(f"{THOUGHT}{FINAL}Hello") == "<think>\nUser greets.\n</think>\n\nHello"
    called = call_of("write", '{"text": "a"}')
    for end in ("", "<|call|>"):  # the node drops the token that ends an answer
        assert as_tags(CALL.removesuffix("<|call|>") + end) == called


def test_a_call_that_was_cut_off_is_text() -> None:
    cut = CALL.removesuffix("}<|call|>")
    assert told("harmony", cut, is_whole=False) == [("text", call_of("write", '{"text": "a"'))]


def test_a_history_is_given_as_the_template_takes_it() -> None:
    calls = tuple(ToolCall(id=f"c{n}", name="write", arguments="{}") for n in range(2))
    said = [
        Message(role="user", content="Hi"),
        Message(role="assistant", content=f"{THOUGHT}{FINAL}Hello!"),
        Message(role="assistant", content="<think>\nAgain.\n</think>\n\nHello!"),
        Message(role="assistant", content="I write.", reasoning="Hm.", tool_calls=calls),
        Message(role="tool", content="0", tool_call_id="c0"),
        Message(role="tool", content="1", tool_call_id="c1"),
    ]
    _, first, again, *rest = harmony_turns(one_call_each(said_before(said, parsed=True)))
    assert (first["content"], first["thinking"]) == ("Hello!", "User greets.")
    assert (again["content"], again["thinking"]) == ("Hello!", "Again.")
    assert [(turn["content"], turn.get("thinking")) for turn in rest] == [
        ("", "Hm.\n\nI write."),
        ("0", None),
        ("", ""),
        ("1", None),
    ]
    assert [call["id"] for turn in rest for call in turn.get("tool_calls", ())] == ["c0", "c1"]


def holds(grammar: Grammar, text: str) -> bool:
    tokens: list[int] = []
    while text:
        mark = next((mark for mark in MARKS if text.startswith(mark)), text[0])
        tokens += [257 + MARKS.index(mark)] if mark in MARKS else mark.encode()
        text = text[len(mark) :]
    special = frozenset(range(257, 262))
    matcher = matcher_of(grammar, tokenizer_of([bytes([n]) for n in range(256)] + [b""] * 6, special, (256,)))
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def mark(text: str) -> str:
    return f"<[{257 + MARKS.index(text)}]>"


def test_an_answer_is_enforced_behind_its_channels() -> None:
    tool = Tool(name="write", parameters='{"properties": {"text": {"const": "a"}}, "required": ["text"]}', strict=True)
    called = CALL.removesuffix("<|call|>")
    wrong = called.replace('"a"', '"b"')
    must = harmony_grammar(None, [tool], mark, must_call_in=80)
    free = harmony_grammar(None, [tool], mark)
    for grammar in (must, free):
        assert [holds(grammar, text) for text in (called, THOUGHT + called, wrong)] == [True, True, False]
    assert [holds(grammar, f"{THOUGHT}{FINAL}Hello") for grammar in (must, free)] == [False, True]
    assert [holds(must, n * THOUGHT + called) for n in (2, 3)] == [True, False]
    long = THOUGHT.replace("User greets.", "x" * 21) + called
    assert [holds(grammar, long) for grammar in (must, free)] == [False, True], "else the call would never come"
    for kind, source, right in [
        ("json_schema", json.dumps({"type": "null"}), "null"),
        ("regex", "a/b\\nc", "a/b\nc"),
        ("lark", 'start: "x" Y\nY: /y+/', "xyy"),
    ]:
        shape = Grammar(kind=kind, source=source)  # type: ignore[arg-type]
        grammar = harmony_grammar(shape, [], mark)
        constrained = "<|channel|>final <|constrain|>json<|message|>"
        texts = (right, FINAL + right, THOUGHT + FINAL + right, constrained + right, f"{FINAL}z")
        assert [holds(grammar, text) for text in texts] == [False, True, True, True, False]
