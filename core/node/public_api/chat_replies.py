"""What OpenAI's clients are answered: whole bodies, the chunks of a stream, and errors; nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from core.answer_parts import ReasoningPart, TextPart, ToolCall
from core.errors import (
    Busy,
    ContextExceeded,
    LinkError,
    MaclusterError,
    ModelError,
    NodeError,
    NotPaired,
    PlanError,
    Problem,
    UsageError,
    WorkerError,
    error_from,
)
from core.events import RequestDone, TokenEvent
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice

RETRY_S: Final = 1


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What all bodies and chunks of one reply have in common; `created` in seconds since the epoch."""

    id: str
    model: str
    created: int

    def whole(self, choices: Sequence[AnswerChoice]) -> dict[str, Any]:
        """The body of a reply that does not stream."""
        return {
            **self._head("chat.completion"),
            "choices": [self._whole(choice) for choice in choices],
            "usage": usage(choices, len(choices)),
        }

    def beginning(self, choice: AnswerChoice) -> dict[str, Any]:
        """The first chunk of a choice: who speaks."""
        return self._chunk([self._delta(choice.index, {"role": "assistant", "content": ""}, None, None)])

    def piece(self, choice: AnswerChoice, said: Said) -> dict[str, Any] | None:
        """A chunk, after `choice` took what was said: a part of the answer, or its end. A token has none of its own:
        how likely it was is told with the next one.
        """
        match said:
            case TextPart(text):
                delta: dict[str, Any] = {"content": text}
            case ReasoningPart(text):
                delta = {"reasoning_content": text, "reasoning": text}
            case ToolCall():
                delta = {"tool_calls": [{"index": len(choice.calls) - 1, **_call(said)}]}
            case RequestDone():
                delta = {}
            case _:
                return None
        untold, choice.untold = choice.untold, []
        return self._chunk([self._delta(choice.index, delta, _logprobs(untold), finish(choice))])

    def ending(self, choices: Sequence[AnswerChoice]) -> dict[str, Any]:
        """The chunk with the usage."""
        return {**self._chunk([]), "usage": usage(choices, len(choices))}

    def _head(self, name: str) -> dict[str, Any]:
        return {"id": self.id, "object": name, "created": self.created, "model": self.model}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": choices}

    def _delta(self, index: int, delta: dict[str, Any], logprobs: Any, reason: str | None) -> dict[str, Any]:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _whole(self, choice: AnswerChoice) -> dict[str, Any]:
        return {
            "index": choice.index,
            "message": _message(choice),
            "logprobs": _logprobs(choice.tokens),
            "finish_reason": finish(choice),
        }


def _logprobs(tokens: Sequence[TokenEvent]) -> dict[str, Any] | None:
    """Of those that tell how likely they were. Tokens are known by their text and its bytes; the other likely ones
    by their ids, for nobody turned them into text.
    """
    tokens = [token for token in tokens if token.logprob is not None]
    if not tokens:
        return None
    entries = [
        {
            "token": token.text,
            "logprob": token.logprob,
            "bytes": list(token.text.encode()),
            "top_logprobs": [{"token": f"token_id:{one}", "logprob": value, "bytes": None} for one, value in token.top],
        }
        for token in tokens
    ]
    return {"content": entries, "refusal": None}


def _message(choice: AnswerChoice) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
    if choice.reasoning:
        said |= {"reasoning_content": choice.reasoning, "reasoning": choice.reasoning}
    if choice.calls:
        said |= {"content": choice.text or None, "tool_calls": [_call(call) for call in choice.calls]}
    return said


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def finish(choice: AnswerChoice) -> str | None:
    """Why an answer ended, in OpenAI's words; one that was broken off has no better one than "stop"."""
    if choice.done is None:
        return None
    if choice.done.finish_reason == "length":
        return "length"
    return "tool_calls" if choice.calls else "stop"


def usage(choices: Sequence[AnswerChoice], n: int) -> dict[str, Any]:
    """Tokens of the prompts, each of which `n` choices share, and of the answers. One choice may have lent the others
    what it had to read: no more was in memory than it found there.
    """
    prompts = [choices[at : at + n] for at in range(0, len(choices), n)]
    prompt = sum(each[0].done.prompt_tokens for each in prompts if each[0].done)
    ends = [choice.done for choice in choices if choice.done]
    written = sum(done.tokens for done in ends)
    reused = sum(min((choice.done.reused_tokens for choice in each if choice.done), default=0) for each in prompts)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": reused},
    }


def error_body(problem: Problem) -> dict[str, Any]:
    """As OpenAI's clients read it; the outer type is for those of Anthropic that were not let in."""
    error = error_from(problem)
    kind = "invalid_request_error" if status(error) == 400 else "server_error"
    code = None
    if isinstance(error, ContextExceeded):
        code = "context_length_exceeded"
    elif isinstance(error, Busy):
        kind = code = "rate_limit_exceeded"
    return {"type": "error", "error": {"message": str(error), "type": kind, "param": None, "code": code}}


def status(error: MaclusterError) -> int:
    """The HTTP status that says whether it is worth asking again."""
    match error:
        case UsageError() | PlanError() | ModelError():  # what is asked for cannot be, however often it is asked
            return 400
        case Busy():
            return 429
        case NodeError() | NotPaired() | LinkError() | WorkerError():
            return 503
        case _:
            return 500
