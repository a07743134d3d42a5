"""Reply bodies of `/v1/chat/completions`, and what completions share with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from core.answer_parts import ReasoningPart, TextPart, ToolCall
from core.events import RequestDone, TokenEvent
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a reply, or the chunks of its stream."""

    id: str
    model: str
    created: int  # seconds since the epoch

    def whole(self, choices: Sequence[AnswerChoice]) -> dict[str, Any]:
        return {
            **self._head("chat.completion"),
            "choices": [self._whole(choice) for choice in choices],
            "usage": usage(choices, len(choices)),
        }

    def beginning(self, choice: AnswerChoice) -> dict[str, Any]:
        return self._chunk([self._delta(choice.index, {"role": "assistant", "content": ""}, None, None)])

    def piece(self, choice: AnswerChoice, said: Said) -> dict[str, Any] | None:
        """The chunk for a part of the answer or its end, after `choice.take(said)`. A token has no chunk of its own;
        its logprob comes with the next part.
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
    """Logprobs of the tokens that have one."""
    tokens = [token for token in tokens if token.logprob is not None]
    if not tokens:
        return None
    entries = [
        {
            "token": token.text,
            "logprob": token.logprob,
            "bytes": list(token.text.encode()),
            "top_logprobs": [
                {"token": name, "logprob": value, "bytes": list(name.encode())}
                for name, (_, value) in zip(token.names, token.top, strict=False)
            ],
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
    """The finish reason in OpenAI's words; an answer that was broken off counts as "stop"."""
    if choice.done is None:
        return None
    if choice.done.finish_reason == "length":
        return "length"
    return "tool_calls" if choice.calls else "stop"


def usage(choices: Sequence[AnswerChoice], n: int) -> dict[str, Any]:
    """Token counts; `n` choices share each prompt, which counts once. One choice may have lent its prompt to the
    others, so only the smallest `reused_tokens` was cached before.
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
        "completion_tokens_details": {"reasoning_tokens": sum(choice.reasoning_tokens for choice in choices)},
    }
