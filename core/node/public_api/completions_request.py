"""Completions as OpenAI's clients and harnesses ask for them, as requests of ours; nothing here waits."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from core.errors import UsageError
from core.node.public_api.chat_request import Asked, request_by
from core.numbers import TokenId
from core.requests.answers import ChatRequest, Message
from core.sampling_options import MAX_LOGPROBS

MOST_PROMPTS: Final = 128

_Ids = Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1)]
Prompt = str | tuple[int, ...]
_FORMS: Final[tuple[Any, ...]] = (tuple[str, ...], _Ids, tuple[_Ids, ...])


class TextCompletion(Asked, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`. `prompt`: a text, token ids, or a list of either."""

    prompt: msgspec.Raw
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None

    @property
    def scores_prompt(self) -> bool:
        """Whether it is to be told how likely the tokens of the prompt were."""
        return self.echo and self.logprobs is not None

    def prompts(self) -> tuple[Prompt, ...]:
        """Each of them. Raises UsageError."""
        found = _prompts(self.prompt)
        if not 1 <= len(found) <= MOST_PROMPTS:
            raise UsageError(f"prompt: there can be 1 to {MOST_PROMPTS} of them.", "Ask several times.")
        return found

    def requests(self, prompts: tuple[Prompt, ...]) -> list[ChatRequest]:
        """What the cluster is asked for, for each choice: those of the first prompt first. Raises UsageError."""
        for name, is_asked in (("suffix", self.suffix), ("best_of", (self.best_of or 1) > self.n)):
            if is_asked:
                raise UsageError(f"{name}: this API has none.", "Ask without it.")
        if self.scores_prompt and self.stream:
            raise UsageError("logprobs: with echo they cannot be streamed.", "Ask without one of them.")
        return [request for prompt in prompts for request in [self._request(prompt)] * self.n]

    def _request(self, prompt: Prompt) -> ChatRequest:
        text, tokens = (prompt, ()) if isinstance(prompt, str) else ("", prompt)
        said = (Message(role="user", content=text),)
        return request_by(
            self, said, None, self.logprobs, raw=True, prompt_tokens=tokens, prompt_logprobs=self.scores_prompt
        )


def _prompts(given: msgspec.Raw) -> tuple[Prompt, ...]:
    try:
        if bytes(given)[:1] == b'"':
            return (msgspec.json.decode(given, type=str),)
        for form in _FORMS:
            try:
                found = msgspec.json.decode(given, type=form)
            except msgspec.ValidationError:
                continue
            return (found,) if form is _Ids else tuple(found)
    except (msgspec.MsgspecError, RecursionError):
        pass
    raise UsageError("prompt: it must be text, token ids, or a list of either.")
