"""Requests of `/v1/completions`."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from core.errors import UsageError
from core.node.public_api.chat_request import CompletionOptions, completion_request
from core.numbers import TokenId
from core.requests.answers import ChatRequest, Message
from core.sampling_options import MAX_LOGPROBS

MAX_PROMPTS: Final = 128
MAX_IDS: Final = 1 << 22
_MAX_TOKENS: Final = 16  # the default of OpenAI's API

_Ids = Annotated[tuple[TokenId, ...], msgspec.Meta(min_length=1)]
Prompt = str | tuple[int, ...]
_FORMS: Final[tuple[Any, ...]] = (tuple[str, ...], _Ids, tuple[_Ids, ...])


class TextCompletion(CompletionOptions, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: msgspec.Raw  # a text, token ids, or a list of either
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOGPROBS)] | None = None

    @property
    def scores_prompt(self) -> bool:
        return self.echo and self.logprobs is not None

    def prompts(self) -> tuple[Prompt, ...]:
        found = _prompts(self.prompt)
        if not 1 <= len(found) <= MAX_PROMPTS:
            raise UsageError(f"prompt must hold 1 to {MAX_PROMPTS} prompts.", "Send several requests.")
        return found

    def requests(self, prompts: tuple[Prompt, ...]) -> list[ChatRequest]:
        for name, is_asked in (("suffix", self.suffix), ("best_of", (self.best_of or 1) > self.n)):
            if is_asked:
                raise UsageError(f"{name} is not supported.", "Leave it out.")
        if self.scores_prompt and self.stream:
            raise UsageError("logprobs with echo can't be streamed.", "Leave out one of the three.")
        return [request for prompt in prompts for request in [self._request(prompt)] * self.n]

    def _request(self, prompt: Prompt) -> ChatRequest:
        text, tokens = (prompt, ()) if isinstance(prompt, str) else ("", prompt)
        messages = (Message(role="user", content=text),)
        # the model writes at least one token
        most = {None: _MAX_TOKENS, 0: 1}.get(self.max_tokens)
        return completion_request(
            self, messages, most, self.logprobs, raw=True, prompt_tokens=tokens, prompt_logprobs=self.scores_prompt
        )


def _prompts(given: msgspec.Raw) -> tuple[Prompt, ...]:
    written = bytes(given)
    try:
        if written[:1] == b'"':
            return (msgspec.json.decode(given, type=str),)
        if b'"' not in written and (written.count(b"[") > MAX_PROMPTS + 1 or written.count(b",") > MAX_IDS):
            raise UsageError(f"prompt has more than {MAX_PROMPTS} lists or {MAX_IDS} token ids.")
        for form in _FORMS:
            try:
                found = msgspec.json.decode(given, type=form)
            except msgspec.ValidationError:
                continue
            return (found,) if form is _Ids else tuple(found)
    except (msgspec.MsgspecError, RecursionError):
        pass
    raise UsageError("prompt must be text, token ids, or a list of either.")
