"""Requests of `/v1/responses`.

Unknown fields and tools of other types are ignored, since agents send many. Other fields that cannot be honoured are
refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from core.answer_parts import Tool, ToolName
from core.errors import UsageError
from core.field_errors import decoded
from core.node.public_api import request_fields
from core.requests.answers import ChatRequest, Message

_NONE: Final = msgspec.Raw()
_FREE: Final = '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'


class Item(msgspec.Struct, frozen=True):
    """One item of the input, perhaps of an earlier output; its `type` says which fields count."""

    type: str = "message"
    role: str = ""
    content: request_fields.Content = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""
    output: request_fields.Content = None


class ToolFormat(msgspec.Struct, frozen=True):
    """The input format of a custom tool."""

    definition: str = ""  # its grammar


class ResponsesTool(msgspec.Struct, frozen=True):
    """A tool: a "function" with a JSON schema, or a "custom" one, which takes text."""

    type: str
    name: ToolName = "?"
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None
    format: ToolFormat | None = None

    def ours(self) -> Tool | None:
        """The tool as the model sees it; None for a type that clients can't run."""
        match self.type:
            case "function":
                return request_fields.tool_of(self.name, self.description, self.parameters, self.strict)
            case "custom":
                grammar = f"\n{self.format.definition}" if self.format and self.format.definition else ""
                return Tool(name=self.name, description=f"{self.description or ''}{grammar}", parameters=_FREE)
            case _:
                return None


class Reasoning(msgspec.Struct, frozen=True):
    """How much the model should think."""

    effort: str | None = None


class TextOptions(msgspec.Struct, frozen=True):
    """Options of the text output."""

    format: request_fields.TextFormat | None = None


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
    prompt: msgspec.Raw = _NONE
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    max_output_tokens: request_fields.Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    tools: msgspec.Raw = _NONE  # replies repeat them as they are
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions = TextOptions()
    metadata: dict[str, str] | None = None

    def known_tools(self) -> tuple[ResponsesTool, ...]:
        """The tools. Raises UsageError."""
        return () if self.tools == _NONE else decoded(self.tools, tuple[ResponsesTool, ...], as_written=True)

    @property
    def custom(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.known_tools() if tool.type == "custom")

    def messages(self) -> list[Message]:
        if isinstance(self.input, str):
            return [Message(role="user", content=self.input)]
        return messages_of(self.input)

    def request(self, messages: Iterable[Message]) -> ChatRequest:
        """The request after `messages`. Raises UsageError."""
        for name in ("background", "conversation", "prompt", "top_logprobs"):
            if getattr(self, name) not in (None, False, _NONE):
                raise UsageError(f"{name} is not supported.", "Leave it out.")
        system = [Message(role="system", content=self.instructions)] if self.instructions else []
        said, form = [*system, *messages], self.text.format or request_fields.TextFormat()
        if not said:
            raise UsageError("input is empty.", "Send a text or a message.")
        tools = [ours for tool in self.known_tools() if (ours := tool.ours())]
        return request_fields.request_of(
            said,
            {"temperature": self.temperature, "top_p": self.top_p},
            max_tokens=self.max_output_tokens,
            shape=request_fields.shape_of(form.type, form.schema, "text"),
            **request_fields.tool_rules(tools, self.tool_choice, one_call=self.parallel_tool_calls is False),
            template_options=request_fields.effort_of(self.reasoning.effort if self.reasoning else None),
        )


def messages_of(items: Iterable[Item]) -> list[Message]:
    """The items as messages; reasoning, text and calls of one turn become one message. Raises UsageError."""
    items = tuple(items)
    begins = request_fields.newest(item.role if item.type == "message" else "" for item in items)
    return [_one(turn) for turn in _turns(_message(item, is_new=at >= begins) for at, item in enumerate(items))]


def _turns(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Groups of messages that become one: of the assistant, with one text, and reasoning only at the beginning."""
    turn: list[Message] = []
    has_text = False
    for message in messages:
        is_same = turn and turn[-1].role == message.role == "assistant" and not message.reasoning
        if turn and not (is_same and not (has_text and message.content)):
            yield turn
            turn, has_text = [], False
        turn.append(message)
        has_text = has_text or bool(message.content)
    if turn:
        yield turn


def _one(turn: Sequence[Message]) -> Message:
    calls = tuple(call for message in turn for call in message.tool_calls)
    return msgspec.structs.replace(turn[0], content="".join(message.content for message in turn), tool_calls=calls)


def _message(item: Item, *, is_new: bool) -> Message:
    match item.type:
        case "message":
            content = request_fields.text_of(item.content, "input", is_new=is_new)
            return Message(role=request_fields.role_of(item.role, "input", request_fields.ROLES), content=content)
        case "reasoning":
            return Message(role="assistant", content="", reasoning=request_fields.text_of(item.content, "input"))
        case "function_call" | "custom_tool_call" as kind:
            given = msgspec.json.encode({"input": item.input}).decode()
            arguments = given if kind == "custom_tool_call" else item.arguments
            call = request_fields.call_of(item.call_id, item.name, arguments)
            return Message(role="assistant", content="", tool_calls=(call,))
        case "function_call_output" | "custom_tool_call_output":
            return Message(role="tool", content=request_fields.text_of(item.output, "input"), tool_call_id=item.call_id)
        case _:  # a call that other servers run, or its output
            return Message(role="assistant", content=request_fields.left_out(item.type, "input", is_new=False))
