"""A real model over two Macs calls a tool and answers with its result: the part of `make real` that `.ci/run` runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.answer_parts import Tool, ToolCall
from core.events import RequestDone, TokenEvent
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from tests.real.reference import greedy
from tests.real.served import served

ASKED = "How is the weather in Paris?"
RESULT = "light rain"
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["London", "Paris"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOKENS = 10

pytestmark = pytest.mark.real


async def test_a_real_model_calls_a_tool_and_answers_with_its_result(model: Path) -> None:
    tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
    messages: list[Any] = [{"role": "user", "content": ASKED}]
    async with served(model, (8, 8)) as cluster:
        head = cluster.demo.head
        assert head.now.plan
        assert len(head.now.plan.stages) == 2
        said = await cluster.chat(
            messages, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=40, temperature=0
        )
        (call,) = said["tool_calls"]
        arguments = call["function"]["arguments"]
        assert (call["function"]["name"], list(json.loads(arguments))) == ("weather", ["city"])
        messages += [said, {"role": "tool", "tool_call_id": call["id"], "content": RESULT}]
        await cluster.chat(messages, tools=tools, max_tokens=TOKENS, temperature=0)
        await head.until(lambda w: sum(isinstance(e, RequestDone) for e in w.seen) == 2, 60, "The end")
        done = [event for event in head.seen if isinstance(event, RequestDone)][-1]
        tokens = [e.token for e in head.seen if isinstance(e, TokenEvent) and e.request_id == done.request_id]
    assert done.reused_tokens > 100, "the first prompt is in memory"
    called = ToolCall(id=call["id"], name="weather", arguments=arguments)
    history = (
        Message(role="user", content=ASKED),
        Message(role="assistant", content="", tool_calls=(called,)),
        Message(role="tool", content=RESULT, tool_call_id=call["id"]),
    )
    tool = Tool(name="weather", description="", parameters=json.dumps(CITY))
    assert tokens == greedy(model, Tokens.load(model).encode(history, False, [tool]), len(tokens))
    assert len(set(tokens)) > len(tokens) / 2
