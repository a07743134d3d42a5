"""The output of a model is read by its meaning, whatever the borders of its tokens, and nothing of it is lost."""

from __future__ import annotations

import json
from pkgutil import iter_modules

import mlx_lm.tool_parsers
import pytest

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, Tool, ToolCall
from core.models.text.template_values import said_before
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from tests.support.families import FAMILIES, Family, written
from tests.support.scripted import make_scripted

TOOL = Tool(name="look_up", description="A word.", parameters='{"type": "object"}')
CALL = '<tool_call>{"name": "look_up", "arguments": {"word": "höp"}}</tool_call>'
ASKED = [Message(role="user", content="hello")]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens.load(make_scripted(tmp_path_factory.mktemp("scripted")))


def told(
    tokens: Tokens,
    text: str,
    *,
    size: int = 3,
    tools: tuple[Tool, ...] = (TOOL,),
    begin: str = "",
    is_whole: bool = True,
) -> list[AnswerPart]:
    """The parts of `text`, read in pieces of `size` characters; neighbours of one kind are joined."""
    reader = tokens.reader(tokens.encode([Message(role="user", content=begin)], raw=True), tools)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    parts = [part for piece in pieces for part in reader.read(piece)] + reader.end(is_whole)
    whole: list[AnswerPart] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, TextPart) and isinstance(last, TextPart):
            whole[-1] = TextPart(last.text + part.text)
        elif isinstance(part, ReasoningPart) and isinstance(last, ReasoningPart):
            whole[-1] = ReasoningPart(last.text + part.text)
        else:
            whole.append(part)
    return whole


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_reasoning_words_and_several_calls_come_apart(tokens: Tokens, size: int) -> None:
    text = f"<think>\nHm, a\nhop. \n</think>\n\nLet me\nsee.\n{CALL}\n{CALL}\n"
    thought, words, *calls = told(tokens, text, size=size)
    assert (thought, words) == (ReasoningPart("Hm, a\nhop."), TextPart("Let me\nsee."))
    assert all(isinstance(call, ToolCall) for call in calls)
    assert [(call.name, call.arguments) for call in calls if isinstance(call, ToolCall)] == [
        ("look_up", '{"word": "höp"}')
    ] * 2
    assert len({call.id for call in calls if isinstance(call, ToolCall)}) == 2


def test_a_prompt_that_ends_in_reasoning_is_answered_with_it(tokens: Tokens) -> None:
    text = "\nhm</think>so"
    assert told(tokens, text, size=2, begin="<|turn|>assistant\n<think>\n") == [ReasoningPart("hm"), TextPart("so")]
    assert told(tokens, text, size=2, begin="what does <think> mean?") == [TextPart(text)]


@pytest.mark.parametrize(
    "text",
    [
        'See: <tool_call>{"name": "look_up", "argum</tool_call> \n and more',
        '<tool_call>["look_up"]</tool_call>',
        '<tool_call>{"name": "look_up", "arguments": 3}</tool_call>',
        '<tool_call>{"name": "look_up", "parameters": {"word": "hop"}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "look_up", "arguments": {"word": NaN}}</tool_call>',
        '<tool_call>{"name": "look_up", "arguments": {"word": "\\ud800"}}</tool_call>',
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
        "\n\nsome <tool_cal",
        " both ends \n",
    ],
    ids=range(10),
)
@pytest.mark.promise("T11")
def test_what_does_not_parse_is_given_back_as_it_was_written(tokens: Tokens, text: str) -> None:
    assert told(tokens, text, size=7) == [TextPart(text)]


def test_every_parser_of_mlx_lm_is_known_here() -> None:
    parsers = {info.name for info in iter_modules(mlx_lm.tool_parsers.__path__)}
    assert parsers == {*FAMILIES, "laguna"}, "laguna is glm47's"


@pytest.mark.parametrize("parser", FAMILIES)
def test_the_calls_of_every_family_are_told_and_none_is_passed_over(parser: str) -> None:
    def read(*calls: str) -> tuple[list[ToolCall], str]:
        reader = Family(parser).reader((TOOL,))
        parts = [part for letter in written(parser, *calls) for part in reader.read(letter)] + reader.end(True)
        words = "".join(part.text for part in parts if isinstance(part, TextPart))
        return [part for part in parts if isinstance(part, ToolCall)], words

    call = FAMILIES[parser].call
    calls, words = read(call, call)
    assert [(each.name, json.loads(each.arguments)) for each in calls] == [("look_up", {"word": "hop"})] * 2
    assert words == "So:"
    torn = call[: len(call) // 2]
    calls, words = read(call, torn)
    assert torn in words or len(calls) == 2, "it is told in one way or the other"


def test_without_tools_and_where_the_answer_is_cut_off_there_are_no_calls(tokens: Tokens) -> None:
    assert told(tokens, CALL, size=5, tools=()) == [TextPart(CALL)]
    cut = CALL.removesuffix("</tool_call>")
    assert told(tokens, cut, size=5, is_whole=False) == [TextPart(cut)]
    (call,) = told(tokens, cut, size=5)
    assert isinstance(call, ToolCall), "the model ended its answer behind the call, without the mark"


def test_a_history_with_reasoning_calls_and_results_goes_through_the_template(tokens: Tokens) -> None:
    call = ToolCall(id="a1", name="look_up", arguments='{"word":"höp"}')
    said = [
        *ASKED,
        Message(role="assistant", content="Well.", reasoning="hm", tool_calls=(call,)),
        Message(role="tool", content="a step", tool_call_id="a1"),
    ]
    called, result = said_before(said, parsed=False)[1:]
    assert called["tool_calls"][0]["function"] == {"name": "look_up", "arguments": call.arguments}
    assert result == {"role": "tool", "content": "a step", "tool_call_id": "a1", "name": "look_up"}
    prompt = tokens._wrapper.decode(tokens.encode(said, False, [TOOL]))
    assert '"function": {"name": "look_up", "description": "A word.", "parameters": {"type": "object"}}' in prompt
    assert f"assistant\n<think>hm</think>Well.{CALL}<|end|>" in prompt
    assert prompt.endswith("<|turn|>tool\na step<|end|>\n<|turn|>assistant\n<|script:result|>")


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("word", ["</tool_call>", "a</tool_call>b<tool_call>c</tool_call>d", "<tool_call>", "\\"])
def test_a_marker_in_a_text_of_a_call_that_is_enforced_ends_it_not(tokens: Tokens, word: str, size: int) -> None:
    first = CALL.replace("höp", json.dumps(word)[1:-1])
    calls = told(tokens, f"{first}\n{CALL}", size=size)
    assert [json.loads(call.arguments)["word"] for call in calls if isinstance(call, ToolCall)] == [word, "höp"]
    assert len(calls) == 2
    cut = first.removesuffix("}}</tool_call>")
    assert told(tokens, cut, size=size, is_whole=False) == [TextPart(cut)]


def test_behind_what_is_thought_a_shaped_answer_is_text_and_the_calls_that_it_may_have(tokens: Tokens) -> None:
    document = '{"a": "<think>x</think><tool_call>y</tool_call>"}'
    thought = f"<think>Hm <tool_call></think>{document}"
    assert told(tokens, thought, tools=()) == [ReasoningPart("Hm <tool_call>"), TextPart(document)]
    thinking, call = told(tokens, f"<think>Hm <tool_call></think>\n{CALL}")
    assert (thinking, type(call)) == (ReasoningPart("Hm <tool_call>"), ToolCall)
    assert isinstance(told(tokens, CALL.replace('"höp"', "1e999"))[0], ToolCall)
