"""One answer so far, for the bodies of every API."""

from __future__ import annotations

from itertools import groupby

import msgspec

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, ToolCall
from core.events import PromptLogprobs, RequestDone, TokenEvent, TokenLogprobs
from core.node.answers.answer_stream import Said
from core.requests.answers import RequestAccepted


class AnswerChoice(msgspec.Struct):
    """One answer (a "choice" in OpenAI's API) so far."""

    index: int
    prompt_tokens: int = 0
    prompt: list[TokenLogprobs] = []  # logprobs of the prompt after its first token, if asked for
    tokens: list[TokenEvent] = []
    untold: list[TokenEvent] = []  # tokens whose logprobs are in no chunk yet
    parts: list[AnswerPart] = []
    reasoning_tokens: int = 0
    placed: int = 0  # how many of `tokens` are counted to a part: those before the newest one
    done: RequestDone | None = None

    def take(self, said: Said) -> None:
        match said:
            case RequestAccepted(prompt_tokens=prompt_tokens):
                self.prompt_tokens = prompt_tokens
            case PromptLogprobs(start=start):
                self.prompt = [*self.prompt[: start - 1], *said.tokens]
            case TokenEvent():
                self.tokens.append(said)
                self.untold.append(said)
            case RequestDone():
                self.done = said
            case _:
                self.parts.append(said)
                if isinstance(said, ReasoningPart):
                    self.reasoning_tokens += len(self.tokens) - self.placed
                self.placed = len(self.tokens)

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def reasoning(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, ReasoningPart))

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if isinstance(part, ToolCall)]

    def blocks(self) -> list[AnswerPart]:
        """Its parts, with neighbours of one kind joined."""
        whole: list[AnswerPart] = []
        for kind, found in groupby(self.parts, type):
            parts = list(found)
            if kind is ToolCall:
                whole += parts
            else:
                text = "".join(part.text for part in parts if not isinstance(part, ToolCall))
                whole.append(TextPart(text) if kind is TextPart else ReasoningPart(text))
        return whole
