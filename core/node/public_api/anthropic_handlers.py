"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

import secrets
from typing import Any, ClassVar, Final

import msgspec
from aiohttp import web

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, ToolCall
from core.errors import MaclusterError
from core.node.answers.answer_stream import Said
from core.node.base.local_server import json_reply
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_errors import UnknownModel, anthropic_error
from core.node.public_api.http_bodies import WATCH, off_loop, read_body, typed_event
from core.node.public_api.model_list import Models
from core.node.public_api.send_reply import send_reply

Event = dict[str, Any]
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
        wanted = await off_loop(request, asked.request)
        return json_reply({"input_tokens": await self._answers.count(wanted, model)})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await read_body(request, Messages)
        model = self._models.find(asked.model)
        encoder = MessageEncoder(MessageReply(id=f"msg_{secrets.token_hex(12)}", model=asked.model))
        wanted = await off_loop(request, asked.request)
        events = self._answers.events([wanted], model, request[WATCH])
        return await send_reply(request, encoder, events, streams=asked.stream)


class MessageReply(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of the body and of all events."""

    id: str
    model: str

    def whole(self, choice: AnswerChoice) -> dict[str, Any]:
        blocks = [_block(part) for part in choice.blocks()]
        return {**self._message(blocks), **_end(choice), "usage": usage(choice)}

    def beginning(self, choice: AnswerChoice) -> Event:
        message = {**self._message([]), "stop_reason": None, "stop_sequence": None, "usage": usage(choice)}
        return {"type": "message_start", "message": message}

    def _message(self, content: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content}


class MessageEncoder:
    """The `ReplyEncoder` of one message."""

    has_comments: ClassVar = False

    def __init__(self, reply: MessageReply) -> None:
        self._reply, self._choice, self._blocks = reply, AnswerChoice(0), BlockEvents()

    def take(self, _: int, said: Said) -> list[bytes]:
        self._choice.take(said)
        return [typed_event(each) for each in self._blocks.take(said)]

    def beginning(self) -> list[bytes]:
        return [typed_event(self._reply.beginning(self._choice))]

    def still_there(self) -> bytes:
        return _PING

    def failed(self, error: MaclusterError) -> bytes:
        return typed_event(anthropic_error(error))

    def ending(self) -> list[bytes]:
        return [typed_event(each) for each in self._blocks.end(self._choice)]

    def whole(self) -> dict[str, Any]:
        return self._reply.whole(self._choice)


class BlockEvents:
    """The events after the first: content blocks that begin, grow and end."""

    def __init__(self) -> None:
        self._index = -1
        self._kind: type[AnswerPart] | None = None

    def take(self, said: Said) -> list[Event]:
        match said:
            case TextPart(text):
                return [*self._begin(said), self._delta({"type": "text_delta", "text": text})]
            case ReasoningPart(text):
                return [*self._begin(said), self._delta({"type": "thinking_delta", "thinking": text})]
            case ToolCall(arguments=arguments):
                return [*self._begin(said), self._delta({"type": "input_json_delta", "partial_json": arguments})]
        return []

    def end(self, choice: AnswerChoice) -> list[Event]:
        return [
            *self._stop(),
            {"type": "message_delta", "delta": _end(choice), "usage": usage(choice)},
            {"type": "message_stop"},
        ]

    def _begin(self, part: AnswerPart) -> list[Event]:
        """Begin a block, unless `part` continues the open one; every call has its own."""
        if self._kind is type(part) and not isinstance(part, ToolCall):
            return []
        stopped = self._stop()
        self._index, self._kind = self._index + 1, type(part)
        match part:
            case TextPart():
                block = _block(TextPart(""))
            case ReasoningPart():
                block = {**_block(ReasoningPart("")), "signature": ""}
            case ToolCall():
                block = {**_block(part), "input": {}}
        return [*stopped, {"type": "content_block_start", "index": self._index, "content_block": block}]

    def _stop(self) -> list[Event]:
        if self._kind is None:
            return []
        signed = [self._delta({"type": "signature_delta", "signature": _SIGNATURE})]
        return [
            *(signed if self._kind is ReasoningPart else []),
            {"type": "content_block_stop", "index": self._index},
        ]

    def _delta(self, delta: dict[str, Any]) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


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
