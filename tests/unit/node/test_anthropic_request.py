"""Requests of Anthropic's clients, converted to ours, and the replies. Nothing here waits."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from core.answer_parts import ReasoningPart, TextPart, Tool, ToolCall
from core.errors import BadModel, Busy, ContextExceeded, NotLoaded, UsageError
from core.events import FinishReason, RequestDone, TokenEvent
from core.node.answers.answer_stream import Said
from core.node.public_api.anthropic_handlers import MessageEncoder
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.api_errors import anthropic_error
from core.requests.answers import ChatRequest, Message, RequestAccepted
from core.sampling_options import Sampling

HELLO = {"model": "tiny", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
CALL = ToolCall(id="a1", name="look_up", arguments='{"word": "hop", "big": 123456789012345678901234567890}')
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"}


def messages(**fields: Any) -> ChatRequest:
    return msgspec.json.decode(json.dumps({**HELLO, **fields}), type=Messages).request()


def block(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def test_a_conversation_of_an_agent_is_asked_for_turn_by_turn() -> None:
    used = block("tool_use", id="a1", name="look_up", input=json.loads(CALL.arguments), cache_control=None)
    turns = [
        {"role": "user", "content": [block("text", text="Who "), block("text", text="is it?", cache_control={})]},
        {
            "role": "assistant",
            "content": [block("thinking", thinking="hm", signature=""), block("text", text="Well."), used],
        },
        {
            "role": "user",
            "content": [
                block("tool_result", tool_use_id="a1", content=[block("text", text="a step")], is_error=False),
                block("tool_result", tool_use_id="a2"),
                block("text", text="And?"),
            ],
        },
        {"role": "system", "content": "Be quick."},
        {"role": "user", "content": "Go on."},
        {"role": "user", "content": "Please."},
    ]
    system = [
        BILLING,
        block("text", text="You are it.", cache_control={"type": "ephemeral"}),
        block("text", text="Do."),
    ]
    asked = messages(messages=turns, system=system, metadata={"user_id": "u"}, context_management={"edits": []})
    assert asked.messages == (
        Message(role="system", content="You are it.\n\nDo."),
        Message(role="user", content="Who \nis it?"),
        Message(role="assistant", content="Well.", reasoning="hm", tool_calls=(CALL,)),
        Message(role="tool", content="a step", tool_call_id="a1"),
        Message(role="tool", content="", tool_call_id="a2"),
        Message(role="user", content="And?"),
        Message(role="system", content="Be quick."),
        Message(role="user", content="Go on.\nPlease."),
    )
    assert not asked.keep


def test_a_system_prompt_that_changes_with_every_request_alone_is_none() -> None:
    assert messages(system=[BILLING]) == messages(system=BILLING["text"]) == messages()
    assert messages(messages=[{"role": "system", "content": [BILLING]}, *HELLO["messages"]]) == messages()  # type: ignore[misc]


def test_how_it_is_answered_goes_along() -> None:
    tool = {"name": "look_up", "input_schema": {"type": "object"}, "description": "A word.", "eager": True}
    asked = messages(
        tools=[tool],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        temperature=1,
        top_p=1.0,
        top_k=4,
        stop_sequences=["END"],
        thinking={"type": "disabled"},
        output_config={"effort": "low"},
    )
    assert asked == ChatRequest(
        messages=(Message(role="user", content="hello"),),
        sampling=Sampling(temperature=1.0, top_k=4),
        max_tokens=9,
        model_sampling=("min_p", "repetition_penalty"),
        stop=("END",),
        keep=False,
        one_call=True,
        tools=(Tool(name="look_up", description="A word.", parameters='{"type": "object"}'),),
        template_options={"enable_thinking": False, "reasoning_effort": "low"},
    )
    assert messages(tools=[tool], tool_choice={"type": "none"}).tools == ()
    assert messages(thinking={"type": "adaptive"}).template_options == {"enable_thinking": True}


def test_a_message_without_content_is_an_empty_one() -> None:
    before = [*HELLO["messages"], {"role": "assistant", "content": []}]  # type: ignore[misc]
    said = messages(messages=[*before, {"role": "user", "content": []}]).messages
    assert [message.content for message in said] == ["hello", "", ""]


def test_tools_that_the_client_runs_come_with_the_schema_that_claude_knows() -> None:
    kinds = {
        "bash_20250124": "bash",
        "text_editor_20250728": "str_replace_based_edit_tool",
        "memory_20250818": "memory",
    }
    asked = messages(tools=[{"type": kind, "name": name, "max_characters": 9} for kind, name in kinds.items()])
    assert [tool.name for tool in asked.tools] == list(kinds.values())
    schemas = [json.loads(tool.parameters)["properties"] for tool in asked.tools]
    assert ["command" in schema for schema in schemas] == [True] * 3
    assert {"path", "old_str", "insert_line"} <= schemas[1].keys()
    assert schemas[2]["command"]["enum"][-2:] == ["delete", "rename"]


def test_an_image_in_a_tools_result_becomes_a_placeholder() -> None:
    used = block("tool_use", id="a1", name="read", input={"file": "x.png"})
    image = block("image", source={"type": "base64", "media_type": "image/png", "data": ""})
    result = block("tool_result", tool_use_id="a1", content=[image, block("tool_reference", tool_name="look")])
    asked = messages(
        messages=[*HELLO["messages"], {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]  # type: ignore[misc]
    )
    placeholder = "[image left out: this model reads text]\n[tool reference left out: this model reads text]"
    assert asked.messages[-1] == Message(role="tool", content=placeholder, tool_call_id="a1")


def test_texts_of_documents_and_search_results_are_read() -> None:
    found = block("search_result", source="https://a.example", title="Hops", content=[block("text", text="A hop is")])
    document = block("document", title="Rings", source={"type": "text", "media_type": "text/plain", "data": "A ring"})
    bare = block("document", source={"type": "text", "media_type": "text/plain", "data": "So"})
    asked = messages(messages=[{"role": "user", "content": [found, document, bare]}])
    assert asked.messages[-1].content == "Hops\nA hop is\nRings\nA ring\nSo"
    scan = block("document", source={"type": "base64", "media_type": "application/pdf", "data": ""})
    with pytest.raises(UsageError, match="type 'document' is not supported"):
        messages(messages=[{"role": "user", "content": [scan]}])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "type 'web_search_20250305'",
        ),
        ({"tools": [{"type": "computer_20250124", "name": "computer"}]}, "type 'computer_20250124' is not supported"),
        ({"tool_choice": {"type": "any"}}, 'tool_choice is "required"'),
        ({"tool_choice": {"type": "tool", "name": "look_up"}}, "tool_choice names 'look_up'"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice has an unknown form"),
        ({"output_config": {"format": {"type": "grammar"}}}, "output_config: type 'grammar' is not supported"),
        ({"mcp_servers": [{}]}, "mcp_servers is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "type 'image' is not supported"),
        ({"messages": [*HELLO["messages"], {"role": "assistant", "content": "It"}]}, "the last message must not be"),  # type: ignore[misc]
        ({"messages": [{"role": "tool", "content": ""}]}, "role 'tool' is not supported"),
        ({"tools": [{"name": "f", "input_schema": "x"}]}, "the schema of 'f' must be a JSON object"),
        ({"temperature": 9}, "temperature must be at most 5"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        messages(**fields)
    assert said in refused.value.what


def ended(reason: FinishReason = "stop", **figures: Any) -> RequestDone:
    return RequestDone(request_id="r", finish_reason=reason, prompt_tokens=5, tokens=7, **figures)


def told(*said: Said) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole message and the events of a stream with these parts."""
    encoder = MessageEncoder("msg_1", "tiny")
    encoder.take(0, RequestAccepted(request_id="r", prompt_tokens=5))
    lines = encoder.beginning()
    for each in said:
        lines += encoder.take(0, each)
    lines += encoder.ending()
    whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(encoder.whole()))
    return whole, [msgspec.json.decode(line.partition(b"data: ")[2]) for line in lines]


def test_a_stream_is_blocks_that_begin_grow_and_end() -> None:
    again = ToolCall(id="a2", name="look_up", arguments="{}")
    token = TokenEvent(request_id="r", index=0, token=3, text="x")
    said = (ReasoningPart("h"), token, ReasoningPart("m"), TextPart("So"), TextPart("."), CALL, again)
    whole, (start, *events, delta, stop) = told(*said, ended(reused_tokens=3))
    assert (start["type"], start["message"]["usage"]["input_tokens"], stop) == (
        "message_start",
        5,
        {"type": "message_stop"},
    )
    assert [(event["type"].removeprefix("content_block_"), event["index"]) for event in events] == [
        *[("start", 0), ("delta", 0), ("delta", 0), ("delta", 0), ("stop", 0)],
        *[("start", 1), ("delta", 1), ("delta", 1), ("stop", 1)],
        *[("start", 2), ("delta", 2), ("stop", 2)],
        *[("start", 3), ("delta", 3), ("stop", 3)],
    ]
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert (delta["usage"]["input_tokens"], delta["usage"]["cache_read_input_tokens"]) == (2, 3)
    assert [each["type"] for each in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert (whole["content"][0]["thinking"], whole["content"][1]["text"]) == ("hm", "So.")
    assert whole["content"][2]["input"]["word"] == "hop"
    assert (whole["stop_reason"], whole["usage"]) == ("tool_use", delta["usage"])


@pytest.mark.parametrize(
    ("done", "reason"),
    [
        (ended(), "end_turn"),
        (ended("length"), "max_tokens"),
        (ended(stop_text="END"), "stop_sequence"),
        (ended("cancelled"), "end_turn"),
    ],
)
def test_why_an_answer_ended_is_said_in_their_words(done: RequestDone, reason: str) -> None:
    whole, (_, delta, _) = told(done)
    assert delta["delta"] == {"stop_reason": reason, "stop_sequence": done.stop_text or None}
    assert whole["content"] == []


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (
            ContextExceeded("The prompt is too long: 9,003 tokens, the context holds 4,096."),
            "invalid_request_error",
            "prompt is too long: 9003 tokens > 4096 maximum",
        ),
        (UsageError("no"), "invalid_request_error", "no"),
        (Busy("full"), "rate_limit_error", "full"),
        (NotLoaded("none"), "overloaded_error", "none"),
        (BadModel("torn"), "api_error", "torn"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_their_form(error: Any, kind: str, said: str) -> None:
    body = anthropic_error(error)
    assert (body["type"], body["error"]["type"]) == ("error", kind)
    assert body["error"]["message"].startswith(said)
