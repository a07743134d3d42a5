"""What an answer is made of, beside plain text: what the model thinks before it, and the tools that it calls."""

from __future__ import annotations

from typing import Annotated

import msgspec

ToolName = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Tool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model may call; `parameters` is the schema of its arguments: a JSON object, as text. Of a `strict` one
    no call has others.
    """

    name: ToolName
    description: str = ""
    parameters: str = "{}"
    strict: bool = False


class CallRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools an answer may call, which it must, and whether `one_call` at most."""

    tools: tuple[Tool, ...] = ()
    must_call: tuple[ToolName, ...] = ()
    one_call: bool = False

    @property
    def are_enforced(self) -> bool:
        """Whether not every call is as good as any other."""
        return bool(self.must_call) or any(tool.strict for tool in self.tools)


class TextPart(msgspec.Struct, frozen=True, tag=True):
    """More of the answer itself."""

    text: str


class ReasoningPart(msgspec.Struct, frozen=True, tag=True):
    """More of what the model thinks before it answers."""

    text: str


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One call, whole. `arguments`: a JSON object, as text; `id` is unlike those of the other calls of its answer."""

    id: str
    name: ToolName
    arguments: str


AnswerPart = TextPart | ReasoningPart | ToolCall
