"""What OpenAI's clients are answered: whole bodies, the chunks of a stream, and errors; nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from core.errors import (
    Busy,
    ContextExceeded,
    MaclusterError,
    NodeError,
    NotPaired,
    Problem,
    UsageError,
    error_from,
)
from core.events import FinishReason, RequestDone, TokenEvent

Kind = Literal["chat", "text"]
RETRY_S: Final = 1
_FINISHED: Final[dict[FinishReason, str]] = {"stop": "stop", "length": "length"}


class Choice(msgspec.Struct):
    """One answer so far: the tokens that came, and how it ended."""

    index: int
    tokens: list[TokenEvent] = []
    done: RequestDone | None = None

    @property
    def text(self) -> str:
        """All that it says."""
        return "".join(token.text for token in self.tokens) + (self.done.text if self.done else "")


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What all bodies and chunks of one reply have in common; `created` in seconds since the epoch."""

    id: str
    model: str
    created: int
    kind: Kind

    def whole(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """The body of a reply that does not stream."""
        name = "chat.completion" if self.kind == "chat" else "text_completion"
        return {**self._head(name), "choices": [self._whole(choice) for choice in choices], "usage": usage(choices)}

    def beginning(self, index: int) -> dict[str, Any]:
        """The first chunk of a choice: who speaks."""
        return self._chunk([self._delta(index, {"role": "assistant", "content": ""}, None, None)])

    def piece(self, index: int, event: TokenEvent | RequestDone, *, logprobs: bool) -> dict[str, Any]:
        """A chunk: the text of a token, or the end of a choice."""
        if isinstance(event, TokenEvent):
            told = self._logprobs([event]) if logprobs else None
            return self._chunk([self._delta(index, {"content": event.text}, told, None)])
        return self._chunk([self._delta(index, {"content": event.text}, None, finish(event))])

    def ending(self, choices: Sequence[Choice]) -> dict[str, Any]:
        """The chunk with the usage."""
        return {**self._chunk([]), "usage": usage(choices)}

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk" if self.kind == "chat" else "text_completion"), "choices": choices}

    def _delta(self, index: int, delta: dict[str, Any], logprobs: Any, reason: str | None) -> dict[str, Any]:
        said = {"delta": delta} if self.kind == "chat" else {"text": delta["content"]}
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": reason}

    def _whole(self, choice: Choice) -> dict[str, Any]:
        assert choice.done
        asked = any(token.logprob is not None for token in choice.tokens)
        logprobs = self._logprobs(choice.tokens) if asked else None
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        said = {"message": message} if self.kind == "chat" else {"text": choice.text}
        return {"index": choice.index, **said, "logprobs": logprobs, "finish_reason": finish(choice.done)}

    def _logprobs(self, tokens: Sequence[TokenEvent]) -> dict[str, Any]:
        """Tokens are known by their text and its bytes; the other likely ones by their ids, for nobody turned them into
        text.
        """
        if self.kind == "text":
            return {
                "tokens": [token.text for token in tokens],
                "token_logprobs": [token.logprob for token in tokens],
                "top_logprobs": [{f"token_id:{one}": value for one, value in token.top} for token in tokens],
                "text_offset": [],
            }
        entries = [
            {
                "token": token.text,
                "logprob": token.logprob,
                "bytes": list(token.text.encode()),
                "top_logprobs": [
                    {"token": f"token_id:{one}", "logprob": value, "bytes": None} for one, value in token.top
                ],
            }
            for token in tokens
        ]
        return {"content": entries, "refusal": None}


def finish(done: RequestDone) -> str:
    """Why an answer ended, in OpenAI's words; one that was broken off has no better one than "stop"."""
    return _FINISHED.get(done.finish_reason, "stop")


def usage(choices: Sequence[Choice]) -> dict[str, Any]:
    """Tokens of the prompt, which all choices share, and of the answers."""
    ends = [choice.done for choice in choices if choice.done]
    prompt = ends[0].prompt_tokens if ends else 0
    written = sum(done.tokens for done in ends)
    reused = max((done.reused_tokens for done in ends), default=0)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": reused},
    }


def error_body(problem: Problem) -> dict[str, Any]:
    """As OpenAI's clients read it."""
    error = error_from(problem)
    kind = "invalid_request_error" if isinstance(error, UsageError) else "server_error"
    code = None
    if isinstance(error, ContextExceeded):
        code = "context_length_exceeded"
    elif isinstance(error, Busy):
        kind = code = "rate_limit_exceeded"
    return {"error": {"message": str(error), "type": kind, "param": None, "code": code}}


def status(error: MaclusterError) -> int:
    """The HTTP status that says whether it is worth asking again."""
    match error:
        case UsageError():
            return 400
        case Busy():
            return 429
        case NodeError() | NotPaired():
            return 503
        case _:
            return 500
