"""Parts of an answer besides plain text: reasoning and tool calls."""

from __future__ import annotations

from typing import Annotated

import msgspec

ToolName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the model may call."""

    name: ToolName
    description: str = ""
    parameters: str = "{}"  # JSON schema of the arguments, as text
    strict: bool = False  # calls must follow the schema


class CallRules(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on an answer's tool calls: which tools it may call, must call, and how many."""

    tools: tuple[Tool, ...] = ()
    must_call: tuple[ToolName, ...] = ()
    one_call: bool = False  # at most one call
    max_tokens: int = 4096  # of the whole answer

    @property
    def are_enforced(self) -> bool:
        return bool(self.must_call) or any(tool.strict for tool in self.tools)


class TextPart(msgspec.Struct, frozen=True, tag="TextPart"):
    """A piece of the answer's text."""

    text: str


class ReasoningPart(msgspec.Struct, frozen=True, tag="ReasoningPart"):
    """A piece of the reasoning before the answer."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, tag="ToolCall"):
    """One complete tool call."""

    id: str  # unique within its answer
    name: ToolName
    arguments: str  # JSON object, as text


AnswerPart = TextPart | ReasoningPart | ToolCall
