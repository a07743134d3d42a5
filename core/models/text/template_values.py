"""Conversation and tools in transformers' form, for chat templates and parsers of tool calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from core.answer_parts import Tool
from core.errors import UsageError
from core.models.text.call_forms import JSON_TAGS, CallForm
from core.requests.answers import Message

# for chat templates without a field for tools
_WORDS = """You can call these tools, each with arguments that follow its JSON schema:

{tools}

To call one, write exactly this, with its name and a JSON object of arguments, and nothing after it:

{example}

Then you are given the result."""


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


def with_tools(messages: Sequence[Message], tools: Sequence[Tool], form: CallForm) -> list[Message]:
    """The conversation with the tools in its system message."""
    system = messages[0].content if messages[0].role == "system" else ""
    listed = "\n".join(json.dumps(spec_of(tool)["function"], ensure_ascii=False) for tool in tools)
    told = _WORDS.format(tools=listed, example=_written(form, "NAME", "ARGUMENTS"))
    first = Message(role="system", content="\n\n".join(filter(None, (system, told))))
    return [first, *messages[bool(system) or messages[0].role == "system" :]]


def without_calls(messages: Sequence[Message], form: CallForm) -> list[Message]:
    """The conversation with calls written as text, and results as words of the user."""
    told: list[Message] = []
    for message in messages:
        if message.role == "tool":
            message = Message(role="user", content=f"<tool_response>\n{message.content}\n</tool_response>")
            if told and told[-1].role == "user":
                message = Message(role="user", content=f"{told.pop().content}\n{message.content}")
        elif message.tool_calls:
            calls = [_written(form, call.name, call.arguments) for call in message.tool_calls]
            text = "\n".join(filter(None, (message.content, *calls)))
            message = Message(role="assistant", content=text, reasoning=message.reasoning)
        elif message.role == "user" and told and told[-1].role == "user" and "<tool_response>" in told[-1].content:
            message = Message(role="user", content=f"{told.pop().content}\n{message.content}")
        told.append(message)
    return told


def _written(form: CallForm, name: str, arguments: str) -> str:
    form = form if form.body else JSON_TAGS
    example = f"{'' if form.is_bare else form.opening}{form.body}{form.closing}"
    return example.replace("NAME", name).replace("ARGUMENTS", arguments).replace("CALLID", "callid000")
