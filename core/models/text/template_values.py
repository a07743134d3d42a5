"""Conversation and tools in transformers' form, for chat templates and parsers of tool calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from core.answer_parts import Tool
from core.errors import UsageError
from core.requests.answers import Message


def spec_of(tool: Tool) -> dict[str, Any]:
    parameters = _object(tool.parameters, f"The schema of the tool {tool.name!r}")
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def said_before(messages: Sequence[Message], *, parsed: bool) -> list[dict[str, Any]]:
    """Messages of a conversation; arguments of calls as objects if `parsed`, else as text. Tool results get their
    tool's name, because some templates need it.
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
                    "arguments": _object(call.arguments, "The arguments of a tool call") if parsed else call.arguments,
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id:
        turn["tool_call_id"] = message.tool_call_id
        if name := names.get(message.tool_call_id):
            turn["name"] = name
    return turn


def _object(written: str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(written)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{what} must be a JSON object.")
    return found


def one_call_each(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns with one call per message, each before its result."""
    told: list[dict[str, Any]] = []
    for turn in turns:
        calls, at = turn.get("tool_calls") or [None], len(told)
        if turn["role"] == "tool":
            ids = [[call["id"] for call in each.get("tool_calls", ())] for each in told]
            at = next((n for n in range(len(told), 0, -1) if turn.get("tool_call_id") in ids[n - 1]), at)
        told.insert(at, turn if len(calls) < 2 else {**turn, "tool_calls": calls[:1]})
        told += [{"role": turn["role"], "content": "", "tool_calls": [call]} for call in calls[1:]]
    return told
