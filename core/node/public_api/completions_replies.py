"""Reply bodies of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from core.answer_parts import TextPart
from core.events import RequestDone, TokenEvent, TokenLogprobs
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.chat_replies import finish, usage


class TextChoice(AnswerChoice):
    """One answer so far."""

    echoed: str = ""  # the prompt's text, shown before the answer


class CompletionReply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a reply, or the chunks of its stream."""

    id: str
    model: str
    created: int  # seconds since the epoch
    n: int  # choices for each prompt

    def whole(self, choices: Sequence[TextChoice]) -> dict[str, Any]:
        reported = [self._choice(choice, choice.echoed + choice.text, choice.tokens) for choice in choices]
        return {**self._head(reported), "usage": usage(choices, self.n)}

    def beginning(self, choice: TextChoice) -> dict[str, Any] | None:
        return self._head([self._choice(choice, choice.echoed, [])]) if choice.echoed else None

    def piece(self, choice: TextChoice, said: Said) -> dict[str, Any] | None:
        if not isinstance(said, TextPart | RequestDone):
            return None
        untold, choice.untold = choice.untold, []
        return self._head([self._choice(choice, said.text if isinstance(said, TextPart) else "", untold)])

    def ending(self, choices: Sequence[TextChoice]) -> dict[str, Any]:
        return {**self._head([]), "usage": usage(choices, self.n)}

    def _head(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return {**head, "choices": choices}

    def _choice(self, choice: TextChoice, text: str, tokens: Sequence[TokenEvent]) -> dict[str, Any]:
        return {
            "index": choice.index,
            "text": text,
            "logprobs": _logprobs(choice, tokens),
            "finish_reason": finish(choice),
        }


def _logprobs(choice: TextChoice, tokens: Sequence[TokenEvent]) -> dict[str, Any] | None:
    """Logprobs of the tokens that have one; alternatives and prompt tokens are named by id, never decoded. The first
    token of a prompt has logprob 0.0: OpenAI's own client takes no null there.
    """
    tokens = [token for token in tokens if token.logprob is not None]
    if not tokens:
        return None
    start = len(choice.echoed) + sum(len(token.text) for token in choice.tokens[: tokens[0].index])
    offsets = [start + sum(len(each.text) for each in tokens[:at]) for at in range(len(tokens))]
    prompt = choice.prompt
    first = 1 if prompt else 0
    reported: list[TokenLogprobs | TokenEvent] = [*prompt, *tokens]
    return {
        "tokens": [""] * first + [_name(each.token) for each in prompt] + [token.text for token in tokens],
        "token_logprobs": [0.0] * first + [each.logprob for each in reported],
        "top_logprobs": [{}] * first + [{_name(one): value for one, value in each.top} for each in reported],
        "text_offset": [0] * (first + len(prompt)) + offsets,
    }


def _name(token: int) -> str:
    return f"token_id:{token}"
