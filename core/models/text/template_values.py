"""Conversation and tools in transformers' form, for chat templates and parsers of tool calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from core.answer_parts import Tool
from core.requests.answers import Message


def spec_of(tool: Tool) -> dict[str, Any]:
    parameters = json.loads(tool.parameters)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def said_before(messages: Sequence[Message], *, parsed: bool) -> list[dict[str, Any]]:
    """Messages of a conversation; arguments of calls as objects if `parsed`, else as text.

    Tool results get their tool's name, because some templates need it.
    """
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    return [_turn(message, names, parsed) for message in messages]


def _turn(message: Message, names: dict[str, str], parsed: bool) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        turn |= {"reasoning_content": message.reasoning, "reasoning": message.reasoning}
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.loads(call.arguments) if parsed else call.arguments,
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
        if name := names.get(message.tool_call_id):
            turn["name"] = name
    return turn
