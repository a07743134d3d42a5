"""Answers in the real forms of families are read by their meaning, whatever the borders of their tokens."""

from __future__ import annotations

import json

import pytest

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, Tool, ToolCall
from core.models.text.answer_reader import AnswerReader
from tests.support.families import Family, Harmony

TOOLS = (
    Tool(name="write", parameters='{"type": "object", "properties": {"text": {"type": "string"}}}'),
    Tool(name="grep", parameters='{"type": "object", "properties": {"re": {"type": "string"}}}'),
)
CALL = '{"name": "write", "arguments": {"text": "a"}}'
TAG, END = "<tool_call>", "</tool_call>"
SECTION, BEGIN, SEP, OVER, LAST = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
FENCED = f'{BEGIN}function{SEP}write\n```json\n{{"text": "a"}}\n```{OVER}'
UNFENCED = f'{BEGIN}write{SEP}{{"text": "a"}}{OVER}'
NAMED = '[TOOL_CALLS]write[CALL_ID]abcdefghi[ARGS]{"text": "a"}'
_ARGUMENT = '<｜DSML｜parameter name="text" string="true">a</｜DSML｜parameter>'
INVOKED = f'<｜DSML｜invoke name="write">\n{_ARGUMENT}\n</｜DSML｜invoke>'


def reader_of(family: str) -> AnswerReader | Harmony:
    return Harmony(TOOLS) if family == "harmony" else Family(family).reader(TOOLS)


def told(family: str, text: str, *, is_whole: bool = True) -> list[tuple[str, object]]:
    """The parts of an answer, the same for pieces of any size: calls as name and arguments, neighbours joined."""
    seen = []
    for size in (1, 2, 7, len(text)):
        reader = reader_of(family)
        parts: list[AnswerPart] = [
            part for at in range(0, len(text), size) for part in reader.read(text[at : at + size])
        ]
        whole: list[tuple[str, object]] = []
        for part in parts + reader.end(is_whole):
            match part:
                case ToolCall(name=name, arguments=arguments):
                    whole.append((name, json.loads(arguments)))
                case TextPart(text=said) | ReasoningPart(text=said):
                    kind = "text" if isinstance(part, TextPart) else "thought"
                    before = str(whole.pop()[1]) if whole and whole[-1][0] == kind else ""
                    whole.append((kind, before + said))
        seen.append(whole)
    assert all(each == seen[0] for each in seen), "however it comes"
    return seen[0]


def write(text: str) -> tuple[str, object]:
    return ("write", {"text": text})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{TAG}\n{CALL}\n{END}", [write("a")]),
        (f'{TAG}\n{{"name": "write", "arguments": {{"text": "x {END} y"}}}}\n{END}', [write(f"x {END} y")]),
        (f'{TAG}\n{{"name": "write", "arguments": {{"text": "{TAG} x"}}}}\n{END}', [write(f"{TAG} x")]),
        (f'{TAG}\n{{"name": "write", "arguments": {{"text": "a\nb"}}}}\n{END}', [write("a\nb")]),
        (f'{TAG}\n{{"name": "grep", "arguments": {{"re": "\\d+\\."}}}}\n{END}', [("grep", {"re": "\\d+\\."})]),
        (f'{TAG}\n{{"name": "write", "arguments": {{"text": "a, ]",}}}}\n{END}', [write("a, ]")]),
        (f'{TAG}\n{{"name": "write", "arguments": "{{\\"text\\": \\"a\\"}}"}}\n{END}', [write("a")]),
        (f"{TAG}\n{CALL}\n{CALL}\n{END}", [write("a"), write("a")]),
        (f"{TAG}\n[{CALL}, {CALL}]\n{END}", [write("a"), write("a")]),
        (f'{TAG}{{"type": "function", "function": {CALL}}}{END}', [write("a")]),
        (f"I look. {TAG}{CALL}{END} Done.", [("text", "I look."), write("a"), ("text", "Done.")]),
        (f"{TAG}\n{CALL}", [write("a")]),
        (f'{TAG}\n{{"name": "grep"}}\n{END}', [("grep", {})]),
        (
            f'{TAG}{{"name": "nope", "arguments": {{}}}}{END}',
            [("text", f'{TAG}{{"name": "nope", "arguments": {{}}}}{END}')],
        ),
        (f"{TAG}{{broken{END}\n{TAG}{CALL}{END}", [("text", f"{TAG}{{broken{END}"), write("a")]),
        (f'{TAG}{{"name": "broken{END}\n{TAG}{CALL}{END}', [("text", f'{TAG}{{"name": "broken{END}'), write("a")]),
        (f"Use {TAG} for calls.", [("text", f"Use {TAG} for calls.")]),
        ("Use `<think>` in templates.", [("text", "Use `<think>` in templates.")]),
        ("<think>\na\n</think>\nb<think>c</think>d", [("thought", "a"), ("text", "b<think>c</think>d")]),
        (f"<think>Hm, {TAG}?</think>\n{TAG}{CALL}{END}", [("thought", f"Hm, {TAG}?"), write("a")]),
        (f"<think>Hm\n{TAG}\n{CALL}\n{END}", [("thought", "Hm"), write("a")]),
        (f"```json\n{CALL}\n```", [("text", f"```json\n{CALL}\n```")]),
    ],
)
def test_tags_around_json_are_read(text: str, parts: list[tuple[str, object]]) -> None:
    assert told("json_tools", text) == parts


@pytest.mark.parametrize(
    ("family", "text", "calls"),
    [
        ("llama", '{"name": "write", "parameters": {"text": "a"}}', 1),
        ("llama", '\n{ "type": "function", "name": "write", "parameters": {"text": "a"}}', 1),
        ("llama", '<|python_tag|>{"name": "write", "parameters": {"text": "a"}}', 1),
        ("llama", '{"name": "write", "parameters": {"text": "a"}}; {"name": "write", "arguments": {"text": "a"}}', 2),
        ("deepseek", f"{SECTION}{FENCED}{LAST}", 1),
        ("deepseek", f"{SECTION}{FENCED}\n{FENCED}{LAST}", 2),
        ("deepseek", f"{SECTION}{UNFENCED}{LAST}", 1),
        ("deepseek_31", f"{SECTION}{UNFENCED}{UNFENCED}{LAST}", 2),
        ("deepseek_31", f"{SECTION}{UNFENCED}", 1),
        ("dsml", f"<｜DSML｜function_calls>\n{INVOKED}\n</｜DSML｜function_calls>", 1),
        ("mistral", '[TOOL_CALLS][{"name": "write", "arguments": {"text": "a"}, "id": "abcdefghi"}]', 1),
        ("mistral", '[TOOL_CALLS]write[ARGS]{"text": "a"}', 1),
        ("mistral_ids", NAMED, 1),
        ("mistral_ids", NAMED + NAMED, 2),
        ("phi", '<|tool_call|>[{"name": "write", "arguments": {"text": "a"}}]<|/tool_call|>', 1),
        ("phi", '<|tool_call|>[{"name": "write", "arguments": {"text": "a"}}]', 1),
        ("nemotron", f"<TOOLCALL>[{CALL}, {CALL}]</TOOLCALL>", 2),
        ("qwen3_coder", f"{TAG}\n<function=write>\n<parameter=text>\na\n</parameter>\n</function>\n{END}", 1),
        ("harmony", ' to=functions.write<|channel|>commentary json<|message|>{"text": "a"}<|call|>', 1),
        ("harmony", '<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"text": "a"}', 1),
    ],
)  # fmt: skip
def test_calls_are_read_as_each_family_writes_them(family: str, text: str, calls: int) -> None:
    assert told(family, text) == [write("a")] * calls
    renamed = text.replace("write", "other")
    assert {kind for kind, _ in told(family, renamed)} == {"text"}, "what was not offered is no call"
    assert "".join(str(said) for _, said in told(family, renamed)).count("other") == calls


def test_minimax_m3_writes_objects_and_lists_as_tags() -> None:
    inner = "<text>5 < 6 & |</text>|<at>|<x>1|</x>|<on>true|</on>|</at>|<tags>|<item>5|</item>|</tags>"
    text = f'|<tool_call>\n|<invoke name="write">|{inner}|</invoke>\n|</tool_call>'.replace("|", "]<]minimax[>[")
    kinds = {"text": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}
    tool = Tool(name="write", parameters=json.dumps({"type": "object", "properties": kinds}))
    (call,) = Family("minimax_m3").reader((tool,)).read(text)
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == {"text": "5 < 6 & ", "at": {"x": 1, "on": True}, "tags": ["5"]}


@pytest.mark.parametrize("family", ["llama", "harmony", "mistral", "deepseek"])
@pytest.mark.parametrize("text", ["Hello", '{"a": 1}', '{"names": ["write"]}', "{", "[1]", "\n", "to be", "Note: < 3"])
def test_an_answer_without_calls_is_text(family: str, text: str) -> None:
    assert told(family, text) == [("text", text)]
    assert told(family, text, is_whole=False) == [("text", text)]


def test_a_call_that_was_cut_off_is_text() -> None:
    for family, text in [
        ("llama", '{"name": "write", "parameters": {"text": "a"}}'),
        ("mistral", '[TOOL_CALLS]write[ARGS]{"text": "a"}'),
    ]:
        assert told(family, text, is_whole=False) == [("text", text)]
