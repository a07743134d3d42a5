"""Requests of Anthropic's `/v1/messages`.

Unknown fields are ignored, since agents send many. A field that cannot be honoured is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from core.answer_parts import Tool, ToolName
from core.errors import UsageError
from core.node.public_api import request_fields
from core.requests.answers import ChatRequest, Message, TemplateOptions

# Claude Code starts its system prompt with this header, whose value changes: no cached prefix would ever match
CHANGING: Final = "x-anthropic-billing-header"


class DocumentSource(msgspec.Struct, frozen=True):
    """Content of a document; only text is supported."""

    type: str = ""
    data: str = ""


class ContentBlock(msgspec.Struct, frozen=True):
    """A part of a message; its `type` says which fields count."""

    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str | tuple[ContentBlock, ...] | None = None
    title: str | None = None  # of a document or a search result
    source: DocumentSource | str | None = None  # of a document; a search result has its address


class ConversationTurn(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: str
    content: str | tuple[ContentBlock, ...]


class ClientTool(msgspec.Struct, frozen=True):
    """A tool that the client runs."""

    name: ToolName
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"null")  # JSON schema of the arguments
    type: str | None = None
    strict: bool | None = None


class OutputConfig(msgspec.Struct, frozen=True):
    """The shape of the answer, and the reasoning effort."""

    format: request_fields.TextFormat | None = None
    effort: str | None = None


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/messages` and of `POST /v1/messages/count_tokens`."""

    model: str
    messages: Annotated[tuple[ConversationTurn, ...], msgspec.Meta(min_length=1)]
    max_tokens: request_fields.Count | None = None
    system: str | tuple[ContentBlock, ...] | None = None
    stop_sequences: tuple[str, ...] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool = False
    tools: tuple[ClientTool, ...] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig = OutputConfig()
    mcp_servers: tuple[Any, ...] | None = None

    def request(self) -> ChatRequest:
        """The request for the cluster. Raises UsageError."""
        if self.mcp_servers:
            raise UsageError("mcp_servers is not supported.", "Leave it out.")
        form, choice = self.output_config.format, self.tool_choice or {"type": "auto"}
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}
        one_call = choice.get("disable_parallel_tool_use") is True
        return request_fields.request_of(
            self._all_messages(),
            sampling,
            max_tokens=self.max_tokens,
            stop=self.stop_sequences or (),
            shape=request_fields.shape_of(form.type, form.schema, "output_config") if form else None,
            **request_fields.tool_rules(map(_tool, self.tools or ()), choice, one_call=one_call),
            template_options=self._template_options(),
        )

    def _all_messages(self) -> list[Message]:
        begins = request_fields.newest(turn.role for turn in self.messages)
        turns = enumerate(self.messages)
        said = _joined(message for at, turn in turns for message in _messages(turn, is_new=at >= begins))
        if not said or said[-1].role == "assistant":
            raise UsageError("messages: the last message must not be the assistant's.", "End with a user message.")
        system = _system(self.system)
        return [Message(role="system", content=system), *said] if system else said

    def _template_options(self) -> TemplateOptions:
        chosen: TemplateOptions = {}
        if self.thinking:
            chosen["enable_thinking"] = self.thinking.get("type") != "disabled"
        if self.output_config.effort in ("low", "medium", "high"):
            chosen["reasoning_effort"] = self.output_config.effort
        return chosen


def _system(content: str | tuple[ContentBlock, ...] | None) -> str:
    texts = [content] if isinstance(content, str) else [_text(block) for block in content or ()]
    return "\n\n".join(text for text in texts if text and not text.lstrip().startswith(CHANGING))


def _messages(turn: ConversationTurn, *, is_new: bool) -> Iterator[Message]:
    blocks = (ContentBlock(type="text", text=turn.content),) if isinstance(turn.content, str) else turn.content
    match turn.role:
        case "assistant":
            yield _answer(blocks)
        case "user":
            yield from _user(blocks, is_new=is_new)
        case "system":
            if text := _system(blocks):
                yield Message(role="system", content=text)
        case _:
            raise UsageError(f"messages: role {turn.role!r} is not supported.", "Use user, assistant or system.")


def _joined(messages: Iterable[Message]) -> list[Message]:
    """Join neighbouring user messages, since some chat templates want roles to alternate."""
    said: list[Message] = []
    for role, group in groupby(messages, lambda message: message.role):
        if role == "user":
            said.append(Message(role="user", content="\n".join(message.content for message in group)))
        else:
            said += group
    return said


def _user(blocks: tuple[ContentBlock, ...], *, is_new: bool) -> Iterator[Message]:
    texts: list[str] = []
    for block in blocks:
        if block.type != "tool_result":
            texts.append(_text(block, is_new=is_new))
            continue
        if texts:
            yield Message(role="user", content="\n".join(texts))
            texts = []
        yield Message(role="tool", content=_result(block.content), tool_call_id=block.tool_use_id)
    if texts or not blocks:
        yield Message(role="user", content="\n".join(texts))


def _answer(blocks: tuple[ContentBlock, ...]) -> Message:
    texts, thoughts, calls = [], [], []
    for block in blocks:
        match block.type:
            case "thinking":
                thoughts.append(block.thinking)
            case "redacted_thinking":
                pass  # encrypted by its author
            case "tool_use":
                calls.append(request_fields.call_of(block.id, block.name, block.input))
            case _:
                texts.append(_text(block))
    return Message(role="assistant", content="\n".join(texts), reasoning="\n".join(thoughts), tool_calls=tuple(calls))


def _result(content: str | tuple[ContentBlock, ...] | None) -> str:
    return content if isinstance(content, str) else "\n".join(map(_text, content or ()))


def _text(block: ContentBlock, *, is_new: bool = False) -> str:
    match block:
        case ContentBlock(type="text", text=text):
            return text
        case ContentBlock(type="search_result", title=title, content=content):
            return f"{title}\n{_result(content)}"
        case ContentBlock(type="document", title=title, source=DocumentSource(type="text", data=text)):
            return f"{title}\n{text}" if title else text
        case _:
            return request_fields.left_out(block.type, "messages", is_new=is_new)


def _tool(tool: ClientTool) -> Tool:
    if tool.type not in (None, "custom"):
        known = _known_tools().get(re.sub(r"_\d{8}$", "", tool.type))
        if known is None:
            raise UsageError(f"tools: type {tool.type!r} is not supported.", "Use client tools with an input_schema.")
        tool = msgspec.structs.replace(known, name=tool.name, strict=tool.strict)
    return request_fields.tool_of(tool.name, tool.description, tool.input_schema, tool.strict)


@cache
def _known_tools() -> dict[str, ClientTool]:
    """Tools that clients send without a schema, since Claude knows it by training, by their types without a date."""
    return msgspec.json.decode(Path(__file__).with_name("client_tools.json").read_bytes(), type=dict[str, ClientTool])
