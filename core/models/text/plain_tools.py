"""Tools for chat templates without a field for them: tools, calls and results are written as text."""

from __future__ import annotations

import json
from collections.abc import Sequence

from core.answer_parts import Tool
from core.models.text.call_forms import JSON_TAGS, CallForm
from core.models.text.template_values import spec_of
from core.requests.answers import Message

_WORDS = """You can call these tools, each with arguments that follow its JSON schema:

{tools}

To call one, write exactly this, with its name and a JSON object of arguments, and nothing after it:

{example}

Then you are given the result."""


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
