"""Requests of OpenAI's clients, converted to ours, and the replies. Nothing here waits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from core.answer_parts import ReasoningPart, TextPart, Tool, ToolCall
from core.constraint import Constraint
from core.errors import BadModel, Busy, ContextExceeded, DoesNotFit, NotLoaded, NotPaired, TrustError, UsageError
from core.events import FinishReason, RequestDone, TokenEvent
from core.models.text.chat_template import MAX_TEXT_BYTES, render
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.api_errors import openai_error, status
from core.node.public_api.chat_replies import ChatReply, usage
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.request_fields import request_body
from core.numbers import MOST
from core.requests.answers import ChatRequest, Message
from core.sampling_options import Sampling

HELLO = {"messages": [{"role": "user", "content": "hello"}]}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}, "strict": True}}
CALLED = {"id": "a1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "hop"}'}}
TORN = {"id": "a1", "type": "function", "function": {"name": "look_up", "arguments": "{"}}
CALL = ToolCall(id="a1", name="look_up", arguments='{"word": "hop"}')
REPLY = ChatReply(id="chatcmpl-1", model="tiny", created=7)


def chat(**fields: Any) -> ChatRequest:
    return request_body(json.dumps({**HELLO, **fields}).encode(), ChatCompletion).request()


def test_a_conversation_is_asked_for_as_it_stands_and_nothing_of_it_is_kept() -> None:
    turns = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "is it?"}]},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "unknown": 3, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "a1", "content": [{"type": "text", "text": "a step"}]},
        {"role": "assistant", "content": "So.", "reasoning": "well", "tool_calls": None},
    ]
    said = chat(messages=turns, stop="END", max_completion_tokens=9, unknown_field={"a": 1})
    assert said == ChatRequest(
        messages=(
            Message(role="system", content="Be brief."),
            Message(role="user", content="Who is it?"),
            Message(role="assistant", content="", reasoning="hm", tool_calls=(CALL,)),
            Message(role="tool", content="a step", tool_call_id="a1"),
            Message(role="assistant", content="So.", reasoning="well"),
        ),
        stop=("END",),
        max_tokens=9,
        model_sampling=("temperature", "top_p", "top_k", "min_p", "repetition_penalty"),
        keep=False,
    )
    assert chat().max_tokens == MOST
    assert (chat(min_tokens=3).min_tokens, chat(min_tokens=None).min_tokens) == (3, 0)


def test_how_tokens_are_chosen_goes_all_the_way() -> None:
    asked = {
        "temperature": 0.5,
        "top_p": 1,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0,
        "repetition_penalty": 1.5,
        "logit_bias": {"7": -2},
        "logprobs": True,
        "top_logprobs": 2,
    }
    assert chat(**asked).sampling == Sampling(
        temperature=0.5,
        top_k=4,
        min_p=0.1,
        seed=3,
        presence_penalty=0.5,
        repetition_penalty=1.5,
        logit_bias={7: -2.0},
        logprobs=2,
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools: type 'web_search' is not supported"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice has an unknown form"),
        ({"tools": [TOOL], "tool_choice": {"type": "function"}}, "tool_choice has an unknown form"),
        ({"tools": [TOOL], "tool_choice": {"function": {"name": "f"}}}, "tool_choice names 'f'"),
        ({"tool_choice": "required"}, 'tool_choice is "required"'),
        ({"functions": [{}]}, "functions is not supported"),
        ({"response_format": {"type": "xml"}}, "response_format: type 'xml' is not supported"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": []}}}, "schema must be a JSON object"),
        ({"messages": [{"role": "function", "content": "3"}]}, "role 'function' is not supported"),
        ({"guided_json": {"type": "object"}}, "guided_json is not supported"),
        ({"format": "json"}, "format is not supported"),
        ({"max_tokens": 0}, "max_tokens must be a whole number, at least 1"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}]},
            "schema of 'f' must be a JSON object",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "type 'image_url' is not supported"),
        ({"temperature": 9}, "temperature must be at most 5"),
        ({"logit_bias": {"x": 1}}, "token ids (whole numbers)"),
        ({"stop": ["x"] * 17}, "at most 16"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        chat(**fields)
    assert said in refused.value.what


def test_history_degrades_and_only_the_newest_turn_is_refused() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    before = [
        {"role": "user", "content": [{"type": "text", "text": "See "}, image]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "tool_calls": [TORN]},
        {"role": "tool", "tool_call_id": "a1", "content": [image]},
    ]
    said = chat(messages=[*before, {"role": "user", "content": "And?"}]).messages
    assert [message.content for message in said] == [
        "See [image left out: this model reads text]",
        "No.",
        "[image left out: this model reads text]",
        "And?",
    ]
    assert json.loads(said[1].tool_calls[0].arguments) == {"input": "{"}
    with pytest.raises(UsageError, match="type 'image_url' is not supported"):
        chat(messages=[*before, {"role": "user", "content": [image]}])


def test_a_schema_that_is_no_text_is_refused_in_words() -> None:
    said = json.dumps({**HELLO, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": "@"}}}]})
    with pytest.raises(UsageError, match="schema of 'f' must be a JSON object"):
        msgspec.json.decode(said.encode().replace(b"@", b"\xff"), type=ChatCompletion).request()


def test_tools_and_what_the_template_is_to_know_go_along_unless_none_may_be_called() -> None:
    asked = chat(tools=[TOOL], tool_choice="auto", reasoning_effort="low", chat_template_kwargs={"deep": True})
    assert asked.tools == (Tool(name="look_up", parameters='{"type": "object"}', strict=True),)
    assert asked.template_options == {"deep": True, "reasoning_effort": "low"}
    assert chat(reasoning_effort="none").template_options == {"enable_thinking": False}
    assert chat(tools=[TOOL], tool_choice="none").tools == ()
    assert (asked.one_call, chat(tools=[TOOL], parallel_tool_calls=False).one_call) == (False, True)
    assert chat(tools=None, functions=None) == chat()


def test_the_shape_of_an_answer_and_the_calls_that_it_must_have_go_along() -> None:
    named = {"type": "function", "function": {"name": "look_up"}}
    assert chat(tools=[TOOL], tool_choice="required").must_call == ("look_up",)
    must = chat(tools=[TOOL], tool_choice=named, parallel_tool_calls=True)
    assert (must.must_call, must.one_call, must.tools) == (("look_up",), True, chat(tools=[TOOL]).tools)
    assert chat(response_format={"type": "text"}).constraint is None
    shape = {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {"type": "null"}}}
    assert chat(response_format=shape).constraint == Constraint(kind="json_schema", source='{"type": "null"}')
    assert chat(response_format={"type": "json_object"}).constraint == Constraint(
        kind="json_schema", source='{"type": "object"}'
    )


def test_tools_that_are_allowed_are_the_only_ones() -> None:
    other = {"type": "function", "function": {"name": "other"}}
    both = [TOOL, other]
    for allowed in (
        {"allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "look_up"}}]}},
        {"mode": "required", "tools": [{"type": "function", "name": "look_up"}]},
    ):
        asked = chat(tools=both, tool_choice={"type": "allowed_tools", **allowed})
        assert (asked.tools, asked.must_call) == (chat(tools=[TOOL]).tools, ("look_up",))
    assert chat(tools=both, tool_choice={"type": "required"}) == chat(tools=both, tool_choice="required")
    with pytest.raises(UsageError, match="tool_choice"):
        chat(tools=both, tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [3]})


def token(index: int, text: str) -> TokenEvent:
    return TokenEvent(request_id="r", index=index, token=index, text=text, logprob=-0.5)


def ended(reason: FinishReason = "length", **figures: Any) -> RequestDone:
    return RequestDone(request_id="r", finish_reason=reason, prompt_tokens=5, **figures)


def chunks(said: list[Said]) -> tuple[AnswerChoice, list[dict[str, Any]]]:
    """The choice and the chunks of a stream with these parts."""
    choice = AnswerChoice(0)
    pieces = [REPLY.beginning(choice)]
    for each in said:
        choice.take(each)
        if piece := REPLY.piece(choice, each):
            pieces.append(piece)
    return choice, [piece["choices"][0] for piece in pieces]


def test_a_stream_says_what_the_whole_body_says() -> None:
    choice, deltas = chunks([token(0, "a"), token(1, "b"), TextPart("ab"), ended(tokens=2, reused_tokens=4)])
    (whole,) = REPLY.whole([choice])["choices"]
    assert (whole["message"]["content"], whole["finish_reason"]) == ("ab", "length")
    assert "".join(delta["delta"].get("content", "") for delta in deltas) == "ab"
    assert [delta["finish_reason"] for delta in deltas] == [None, None, "length"]
    told = [each["token"] for delta in deltas if delta["logprobs"] for each in delta["logprobs"]["content"]]
    assert told == ["a", "b"] == [each["token"] for each in whole["logprobs"]["content"]]
    assert deltas[0]["delta"]["role"] == "assistant"
    other = AnswerChoice(1)
    other.take(ended(tokens=3, reused_tokens=3))
    assert usage([choice, other], 2) == {
        "prompt_tokens": 5,
        "completion_tokens": 5,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 3},  # the other one may have it from this one
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_reasoning_is_told_in_both_fields_and_every_call_with_its_number() -> None:
    more = ToolCall(id="a2", name="look_up", arguments="{}")
    choice, (_, thought, *called, end) = chunks([ReasoningPart("hm"), CALL, more, ended("stop", tokens=9)])
    assert thought["delta"] == {"reasoning_content": "hm", "reasoning": "hm"}
    assert [delta["delta"]["tool_calls"] for delta in called] == [
        [{"index": 0, **CALLED}],
        [{"index": 1, "id": "a2", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}],
    ]
    (whole,) = REPLY.whole([choice])["choices"]
    assert (end["finish_reason"], whole["finish_reason"]) == ("tool_calls",) * 2
    message = whole["message"]
    assert (message["content"], message["reasoning_content"], message["reasoning"]) == (None, "hm", "hm")
    assert [call["id"] for call in message["tool_calls"]] == ["a1", "a2"]


def test_tokens_of_reasoning_are_counted_up_to_its_end() -> None:
    tagged: list[Said] = [token(0, "<think>"), token(1, "h"), ReasoningPart("h"), token(2, "m"), ReasoningPart("m")]
    choice, _ = chunks([*tagged, token(3, "</think>"), token(4, "So"), TextPart("So"), token(5, "."), ended(tokens=6)])
    assert usage([choice, choice], 2)["completion_tokens_details"] == {"reasoning_tokens": 6}
    torn, _ = chunks([*tagged[:3], token(2, "<"), ended(tokens=3)])
    assert torn.reasoning_tokens == 2


@pytest.mark.parametrize(
    ("error", "number", "code"),
    [
        (UsageError("no"), 400, None),
        (ContextExceeded("long"), 400, "context_length_exceeded"),
        (Busy("full"), 429, "rate_limit_exceeded"),
        (NotLoaded("none"), 503, None),
        (NotPaired("mini"), 503, None),
        (BadModel("torn"), 400, None),
        (DoesNotFit("It needs 3.1 GB more."), 400, None),
        (TrustError("torn"), 500, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_says_whether_it_is_worth_asking_again(error: Any, number: int, code: str | None) -> None:
    assert (status(error), openai_error(error)["error"]["code"]) == (number, code)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 9}, "temperature"),
        ({"messages": []}, "messages"),
        ({"n": "two"}, "n"),
        ({"tools": [TOOL], "tool_choice": "always"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
    ],
)
def test_an_error_names_the_field_as_the_api_writes_it(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UsageError) as refused:
        chat(**fields)
    assert openai_error(refused.value)["error"]["param"] == param


def test_a_prompt_of_too_many_bytes_is_told_as_one_of_too_many_tokens() -> None:
    with pytest.raises(ContextExceeded) as refused:
        render("{{ text }}", {"text": "a" * (MAX_TEXT_BYTES + 1)})
    told = openai_error(refused.value)["error"]
    assert (told["code"], told["param"]) == ("context_length_exceeded", None)
    assert told["message"].startswith(f"prompt is too long: {MAX_TEXT_BYTES + 1} bytes > {MAX_TEXT_BYTES} maximum.")
