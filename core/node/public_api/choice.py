"""One answer as far as it has come, for the bodies of every API."""

from __future__ import annotations

import msgspec

from core.answer_parts import ReasoningPart, TextPart, ToolCall
from core.events import RequestDone, TokenEvent
from core.node.answers.told import Said


class Choice(msgspec.Struct):
    """Its tokens, what they mean, and how it ended. `untold`: tokens of which no chunk has told yet."""

    index: int
    tokens: list[TokenEvent] = []
    text: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = []
    done: RequestDone | None = None
    untold: list[TokenEvent] = []

    def take(self, said: Said) -> None:
        """The next of what is told."""
        match said:
            case TokenEvent():
                self.tokens.append(said)
                self.untold.append(said)
            case TextPart(text):
                self.text += text
            case ReasoningPart(text):
                self.reasoning += text
            case ToolCall():
                self.calls.append(said)
            case RequestDone():
                self.done = said
