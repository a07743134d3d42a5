"""Responses: the request as our messages, the events of an answer, and the stored reply."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, ToolCall
from core.errors import UsageError
from core.events import RequestDone, TokenEvent
from core.node.answers.answer_stream import Said
from core.node.public_api.responses_handlers import MAX_RESPONSES, StoredResponses
from core.node.public_api.responses_replies import ItemEvents, ResponseEncoder, items_of
from core.node.public_api.responses_request import Item, ResponseBody, messages_of
from core.requests.answers import ChatRequest, Message

CALL = ToolCall(id="call_1", name="look_up", arguments='{"word": "ring"}')
PATCH = ToolCall(id="call_2", name="apply_patch", arguments='{"input": "*** Begin"}')
TOOLS = [
    {"type": "function", "name": "look_up", "parameters": {"type": "object"}, "strict": True},
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
    },
    {"type": "web_search"},
    {"type": "namespace", "name": "more", "tools": []},
]


def asked(**fields: Any) -> ResponseBody:
    return msgspec.json.decode(msgspec.json.encode({"input": "hello", **fields}), type=ResponseBody)


def request(**fields: Any) -> ChatRequest:
    body = asked(**fields)
    return body.request(body.messages())


def test_what_was_thought_said_and_called_in_one_go_is_one_message() -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
        {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": CALL.arguments},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a step"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "done"}]},
        {"role": "assistant", "content": "It is."},
        {"role": "assistant", "content": "Is it?"},
    ]
    patch = ToolCall(id="call_2", name="apply_patch", arguments='{"input":"*** Begin"}')
    said = request(instructions="You help.", input=items, max_output_tokens=7, reasoning={"effort": "low"}, tools=TOOLS)
    assert said.messages == (
        Message(role="system", content="You help."),
        Message(role="system", content="Be brief."),
        Message(role="user", content="What?"),
        Message(role="assistant", content="Wait.", reasoning="Hm.", tool_calls=(CALL, patch)),
        Message(role="tool", content="a step", tool_call_id="call_1"),
        Message(role="tool", content="done", tool_call_id="call_2"),
        Message(role="assistant", content="It is."),
        Message(role="assistant", content="Is it?"),
    )
    assert [(tool.name, tool.description) for tool in said.tools] == [("look_up", ""), ("apply_patch", "\nstart: x")]
    assert (said.max_tokens, said.keep, said.template_options) == (7, False, {"reasoning_effort": "low"})
    assert request(tools=TOOLS, tool_choice="none").tools == ()
    assert (said.one_call, request(parallel_tool_calls=False).one_call) == (False, True)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"background": True}, "background is not supported"),
        ({"conversation": {"id": "c"}}, "conversation is not supported"),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": 1}}},
            "the schema must be a JSON object",
        ),
        ({"tool_choice": "required"}, 'tool_choice is "required"'),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "type 'input_image' is not supported",
        ),
        ({"prompt": {"id": "p"}}, "prompt is not supported"),
        ({"input": []}, "input is empty"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_its_name(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        request(**fields)
    assert said in refused.value.what


def test_items_of_other_servers_become_placeholders() -> None:
    said = request(input=[{"type": "web_search_call", "id": "ws_1"}, {"role": "user", "content": "And?"}]).messages
    assert [m.content for m in said] == ["[web search call left out: this model reads text]", "And?"]


def test_one_call_at_a_time_goes_along() -> None:
    assert [request(parallel_tool_calls=each).one_call for each in (None, True, False)] == [False, False, True]


def test_the_events_of_an_answer_come_to_its_items() -> None:
    items = ItemEvents(asked(tools=TOOLS).custom)
    parts: list[AnswerPart] = [
        ReasoningPart("H"),
        ReasoningPart("m."),
        TextPart("Wait"),
        TextPart("."),
        CALL,
        PATCH,
        TextPart("So."),
    ]
    events = [event for part in parts for event in items.take(part)] + list(items.close())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (added, done) == ([0, 1, 2, 3, 4], items.output)
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call", "custom_tool_call", "message"]
    texts = [item["content"][0]["text"] for item in done if "content" in item]
    assert (texts, done[2]["arguments"], done[3]["input"]) == (["Hm.", "Wait.", "So."], CALL.arguments, "*** Begin")
    for item in done:
        own = [event for event in events if event.get("item_id") == item["id"]]
        deltas = "".join(event["delta"] for event in own if event["type"].endswith(".delta"))
        assert deltas == item.get("arguments", item.get("input")) or deltas == item["content"][0]["text"]


@pytest.mark.slow
def test_a_response_is_as_the_openai_package_publishes_it() -> None:
    # the import takes a second, in each process that collects the tests
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter

    stored: list[dict[str, Any]] = []
    encoder = ResponseEncoder("tiny", asked(temperature=0, tools=TOOLS[:2]), lambda body, _: stored.append(body))
    thought = TokenEvent(request_id="r", index=0, token=1, text="Hm.")
    word = TokenEvent(request_id="r", index=1, token=2, text="So")
    done = RequestDone(request_id="r", finish_reason="length", prompt_tokens=5, tokens=7)
    said: list[Said] = [thought, ReasoningPart("Hm."), word, TextPart("So"), done]
    for each in said:
        encoder.take(0, each)
    lines = [*encoder.beginning(), *encoder.ending()]
    for line in lines:
        TypeAdapter(ResponseStreamEvent).validate_json(line.partition(b"data: ")[2])
    body = msgspec.json.decode(msgspec.json.encode(stored[0]))
    Response.model_validate(body)
    assert (body["status"], body["output"][1]["status"]) == ("incomplete", "incomplete")
    assert body["usage"]["output_tokens_details"] == {"reasoning_tokens": 1}
    # the Open Responses suite wants these, too
    assert [body[name] for name in ("temperature", "top_p", "top_logprobs", "presence_penalty")] == [0, 1, 0, 0]
    names = {"completed_at", "max_tool_calls", "service_tier", "safety_identifier", "prompt_cache_key"}
    assert names <= body.keys()
    assert [tool["strict"] for tool in body["tools"] if tool["type"] == "function"] == [True]


def test_a_conversation_is_listed_as_items() -> None:
    said = [Message(role="user", content="Hi"), Message(role="assistant", content="", tool_calls=(CALL,))]
    said += [Message(role="tool", content="a step", tool_call_id="call_1"), Message(role="assistant", content="So.")]
    items = [item for number, message in enumerate(said) for item in items_of(message, number)]
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert messages_of(msgspec.convert(items, tuple[Item, ...])) == said


def test_the_newest_are_kept_each_for_its_own_key() -> None:
    kept = StoredResponses()
    for number in range(MAX_RESPONSES + 1):
        kept.keep("laptop", {"id": f"resp_{number}"}, (Message(role="user", content="hello"),))
    assert (kept.find("laptop", "resp_0"), kept.find("agent", "resp_1")) == (None, None)
    found = kept.find("laptop", "resp_1")
    assert found
    assert found.messages[0].content == "hello"
    assert [kept.forget("laptop", "resp_1"), kept.forget("laptop", "resp_1")] == [True, False]
    for number in range(5):
        kept.keep("laptop", {"id": f"large_{number}", "text": "x" * (15 << 20)}, ())
    kept.keep("laptop", {"id": "huge", "text": "x" * (17 << 20)}, ())
    found_now = [name for name in ("large_0", "large_1", "large_4", "huge") if kept.find("laptop", name)]
    assert found_now == ["large_1", "large_4"]
