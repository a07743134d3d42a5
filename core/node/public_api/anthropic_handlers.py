"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import secrets
from typing import Any, ClassVar, Final

import msgspec
from aiohttp import web

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, ToolCall
from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.base.large_bodies import off_loop
from core.node.base.local_server import json_reply
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_errors import UnknownModel, anthropic_error
from core.node.public_api.http_bodies import SIZE, WATCH, read_body, typed_event
from core.node.public_api.model_list import Models
from core.node.public_api.send_reply import send_reply

_PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_SIGNATURE: Final = "unsigned"  # clients send back only thinking blocks that have a signature


class AnthropicHandlers:
    """`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

    def __init__(self, answers: ApiAnswers, models: Models) -> None:
        self._answers, self._models = answers, models

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/messages", self._answer), web.post("/v1/messages/count_tokens", self._count)]

    async def _count(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        try:
            model = self._models.find(asked.model)
        except UnknownModel:
            model = self._answers.model()
        wanted = await off_loop(request[SIZE], asked.request)
        return json_reply({"input_tokens": await self._answers.count(wanted, model)})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        model = self._models.find(asked.model)
        encoder = MessageEncoder(f"msg_{secrets.token_hex(12)}", asked.model)
        wanted = await off_loop(request[SIZE], asked.request)
        events = self._answers.events([wanted], model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)


class MessageEncoder:
    """The `ReplyEncoder` of one message: content blocks that begin, grow and end."""

    has_comments: ClassVar = False

    def __init__(self, name: str, model: str) -> None:
        self._head = {"id": name, "type": "message", "role": "assistant", "model": model}
        self._choice = AnswerChoice(0)
        self._index = -1
        self._kind: type[AnswerPart] | None = None

    def take(self, _: int, said: Said) -> list[bytes]:
        self._choice.take(said)
        match said:
            case TextPart(text):
                return [*self._begin(said), self._delta({"type": "text_delta", "text": text})]
            case ReasoningPart(text):
                return [*self._begin(said), self._delta({"type": "thinking_delta", "thinking": text})]
            case ToolCall(arguments=arguments):
                return [*self._begin(said), self._delta({"type": "input_json_delta", "partial_json": arguments})]
        return []

    def beginning(self) -> list[bytes]:
        begun: dict[str, Any] = {**self._head, "content": [], "usage": usage(self._choice)}
        begun |= {"stop_reason": None, "stop_sequence": None}
        return [typed_event({"type": "message_start", "message": begun})]

    def still_there(self) -> bytes:
        return _PING

    def failed(self, error: MaclusterError) -> bytes:
        return typed_event(anthropic_error(error))

    def ending(self) -> list[bytes]:
        end = {"type": "message_delta", "delta": _end(self._choice), "usage": usage(self._choice)}
        return [*self._stop(), typed_event(end), typed_event({"type": "message_stop"})]

    def whole(self) -> dict[str, Any]:
        blocks = [_block(part) for part in self._choice.blocks()]
        return {**self._head, "content": blocks, **_end(self._choice), "usage": usage(self._choice)}

    def _begin(self, part: AnswerPart) -> list[bytes]:
        """Begin a block, unless `part` continues the open one; every call has its own."""
        if self._kind is type(part) and not isinstance(part, ToolCall):
            return []
        stopped = self._stop()
        self._index, self._kind = self._index + 1, type(part)
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        block = {field: empty.get(field, value) for field, value in _block(part).items()}
        return [*stopped, typed_event({"type": "content_block_start", "index": self._index, "content_block": block})]

    def _stop(self) -> list[bytes]:
        if self._kind is None:
            return []
        signed = [self._delta({"type": "signature_delta", "signature": _SIGNATURE})]
        stop = typed_event({"type": "content_block_stop", "index": self._index})
        return [*(signed if self._kind is ReasoningPart else []), stop]

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return typed_event({"type": "content_block_delta", "index": self._index, "delta": delta})


def _block(part: AnswerPart) -> dict[str, Any]:
    match part:
        case TextPart(text):
            return {"type": "text", "text": text}
        case ReasoningPart(text):
            return {"type": "thinking", "thinking": text, "signature": _SIGNATURE}
        case ToolCall(id=call_id, name=name, arguments=arguments):
            return {"type": "tool_use", "id": call_id, "name": name, "input": msgspec.Raw(arguments.encode())}


def _end(choice: AnswerChoice) -> dict[str, Any]:
    done, reason = choice.done, "end_turn"
    if done and done.finish_reason == "length":
        reason = "max_tokens"
    elif done and done.stop_text:
        reason = "stop_sequence"
    elif choice.calls:
        reason = "tool_use"
    return {"stop_reason": reason, "stop_sequence": done.stop_text or None if done else None}


def usage(choice: AnswerChoice) -> dict[str, Any]:
    """Token counts; cached prompt tokens count apart from `input_tokens`."""
    reused = choice.done.reused_tokens if choice.done else 0
    return {
        "input_tokens": choice.prompt_tokens - reused,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reused,
        "output_tokens": choice.done.tokens if choice.done else 0,
    }
