"""Responses as OpenAI's newer clients and Codex ask for them, as requests of ours; nothing here waits.

Unknown fields are ignored, and tools that no client of ours can run are left out, for agents say many. What cannot be
honoured otherwise is refused by the name of its field.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from core.answer_parts import Tool, ToolName
from core.errors import UsageError
from core.node.public_api.request_fields import Count, allowed, call_of, effort_of, request_of, shape_of, tool_of
from core.requests.answers import ChatRequest, Message

_TEXTS: Final = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text"})
_FREE: Final = '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'


class ItemPart(msgspec.Struct, frozen=True):
    """A part of an item; only text can be read."""

    type: str
    text: str = ""


_Content = str | tuple[ItemPart, ...] | None


class Item(msgspec.Struct, frozen=True):
    """One item of the input, also one of an earlier output; which fields count follows from its `type`."""

    type: str = "message"
    role: str = ""
    content: _Content = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: _Content = None


class ToolFormat(msgspec.Struct, frozen=True):
    """In which form a tool wants its input; `definition`: its grammar."""

    definition: str = ""


class ResponsesTool(msgspec.Struct, frozen=True):
    """A tool: a "function" with a JSON schema, or a "custom" one, which takes text."""

    type: str
    name: ToolName = "?"
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None
    format: ToolFormat | None = None

    def ours(self) -> Tool | None:
        """As the model is told of it; None where nobody could run it."""
        match self.type:
            case "function":
                return tool_of(self.name, self.description, self.parameters, self.strict)
            case "custom":
                grammar = f"\n{self.format.definition}" if self.format and self.format.definition else ""
                return Tool(name=self.name, description=f"{self.description or ''}{grammar}", parameters=_FREE)
            case _:
                return None


class Reasoning(msgspec.Struct, frozen=True):
    """How much thought is to go into the answer."""

    effort: str | None = None


class TextFormat(msgspec.Struct, frozen=True):
    """Which shape the answer is to have."""

    type: str = "text"
    name: str = "answer"
    schema: msgspec.Raw = msgspec.Raw(b"{}")

    @property
    def as_json(self) -> dict[str, Any]:
        """As a reply repeats it."""
        shape = {"name": self.name, "schema": self.schema, "strict": True} if self.type == "json_schema" else {}
        return {"type": self.type, **shape}


class TextOptions(msgspec.Struct, frozen=True):
    """The same."""

    format: TextFormat = TextFormat()


class ResponseBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/responses`."""

    input: str | tuple[Item, ...]
    model: str = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool = False
    background: bool | None = None
    conversation: Any = None
    max_output_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    tools: tuple[ResponsesTool, ...] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions = TextOptions()
    metadata: dict[str, str] | None = None

    @property
    def custom(self) -> frozenset[str]:
        """Names of the tools that take text."""
        return frozenset(tool.name for tool in self.tools or () if tool.type == "custom")

    def said(self) -> list[Message]:
        """The input, as messages. Raises UsageError."""
        if isinstance(self.input, str):
            return [Message(role="user", content=self.input)]
        return messages_of(self.input)

    def request(self, said: Iterable[Message]) -> ChatRequest:
        """What the cluster is asked for after all that was said. Raises UsageError."""
        for name in ("background", "conversation", "top_logprobs"):
            if getattr(self, name):
                raise UsageError(f"{name}: this API has none.", "Ask without it.")
        system = [Message(role="system", content=self.instructions)] if self.instructions else []
        return request_of(
            [*system, *said],
            {"temperature": self.temperature, "top_p": self.top_p},
            max_tokens=self.max_output_tokens,
            shape=shape_of(self.text.format.type, self.text.format.schema, "text"),
            **{
                "one_call": self.parallel_tool_calls is False,
                **allowed((ours for tool in self.tools or () if (ours := tool.ours())), self.tool_choice),
            },
            template_options=effort_of(self.reasoning.effort if self.reasoning else None),
        )


def messages_of(items: Iterable[Item]) -> list[Message]:
    """What was thought, said and called in one go is one message of ours. Raises UsageError."""
    said: list[Message] = []
    for item in items:
        message = _message(item)
        before = said[-1] if said and said[-1].role == message.role == "assistant" else None
        if before and not (message.content and before.content) and not message.reasoning:
            said[-1] = msgspec.structs.replace(
                before,
                content=before.content or message.content,
                tool_calls=(*before.tool_calls, *message.tool_calls),
            )
        else:
            said.append(message)
    return said


def _message(item: Item) -> Message:
    match item.type:
        case "message":
            return _turn(item)
        case "reasoning":
            return Message(role="assistant", content="", reasoning=_text(item.content))
        case "function_call":
            return Message(role="assistant", content="", tool_calls=(call_of(item.call_id, item.name, item.arguments),))
        case "custom_tool_call":
            arguments = msgspec.json.encode({"input": item.input}).decode()
            return Message(role="assistant", content="", tool_calls=(call_of(item.call_id, item.name, arguments),))
        case "function_call_output" | "custom_tool_call_output":
            return Message(role="tool", content=_text(item.output), tool_call_id=item.call_id)
        case _:
            raise UsageError(f"input: {item.type} cannot be read by this model.", "Send messages and calls.")


def _turn(item: Item) -> Message:
    match item.role:
        case "user" | "assistant" | "system":
            return Message(role=item.role, content=_text(item.content))
        case "developer":
            return Message(role="system", content=_text(item.content))
        case _:
            raise UsageError(f"input: the role {item.role!r} cannot be answered.", "Use user, assistant or system.")


def _text(content: _Content) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    for part in content:
        if part.type not in _TEXTS:
            raise UsageError(f"input: {part.type} cannot be read by this model.", "Send text.")
    return "".join(part.text for part in content)
