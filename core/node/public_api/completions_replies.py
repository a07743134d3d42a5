"""Reply bodies of `/v1/completions`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec

from core.answer_parts import TextPart
from core.events import RequestDone, TokenEvent
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.chat_replies import finish, usage


class TextChoice(AnswerChoice):
    """One answer of either completions API so far."""

    echoed: str = ""  # the prompt's text, shown before the answer
    is_answered: bool = True  # False: only the prompt was asked for, but a model writes at least one token

    def take(self, said: Said) -> None:
        if not self.is_answered and isinstance(said, RequestDone):
            said = msgspec.structs.replace(said, finish_reason="length", tokens=0)
        if self.is_answered or not isinstance(said, TokenEvent | TextPart):
            super().take(said)


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
        if not isinstance(said, TextPart | RequestDone) or (isinstance(said, TextPart) and not choice.is_answered):
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
    """Logprobs of the tokens that have one. The first token of a prompt has logprob 0.0: OpenAI's own client takes no
    null there.
    """
    tokens = [token for token in tokens if token.logprob is not None]
    prompt = choice.prompt
    if not tokens and not prompt:
        return None
    texts = [each.names[0] if each.names else "" for each in prompt]
    start = max(0, len(choice.echoed) - sum(map(len, texts)))
    if prompt:  # its first token has no logprob
        texts.insert(0, choice.echoed[:start])
        start = 0
    elif tokens:
        start += sum(len(token.text) for token in choice.tokens[: tokens[0].index])
    texts += [token.text for token in tokens]
    first = 1 if prompt else 0
    tops = [zip(each.names[1:], each.top, strict=False) for each in prompt]
    tops += [zip(each.names, each.top, strict=False) for each in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [*[0.0] * first, *(each.logprob for each in prompt), *(each.logprob for each in tokens)],
        "top_logprobs": [{}] * first + [{name: value for name, (_, value) in top} for top in tops],
        "text_offset": [*accumulate(map(len, texts[:-1]), initial=start)],
    }
