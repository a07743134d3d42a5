"""What Anthropic's clients are answered: whole bodies, the events of a stream, and errors; nothing here waits."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, ToolCall
from core.errors import Busy, ContextExceeded, MaclusterError, NodeError, NotPaired, UsageError
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.http_bodies import event

Event = dict[str, Any]
_PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_SIGNATURE: Final = "unsigned"  # clients want one, and give back only what has one


class MessageReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a whole body and the events of a stream have in common."""

    id: str
    model: str

    def whole(self, choice: AnswerChoice) -> dict[str, Any]:
        """The body of a reply that does not stream."""
        blocks = [_block(part) for part in choice.blocks()]
        return {**self._message(blocks), **_end(choice), "usage": usage(choice)}

    def beginning(self, choice: AnswerChoice) -> Event:
        """The first event."""
        message = {**self._message([]), "stop_reason": None, "stop_sequence": None, "usage": usage(choice)}
        return {"type": "message_start", "message": message}

    def _message(self, content: list[Any]) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content}


class MessageEncoder:
    """A `ReplyEncoder`; there is one answer."""

    has_comments: ClassVar = False

    def __init__(self, reply: MessageReply) -> None:
        self._reply, self._choice, self._blocks = reply, AnswerChoice(0), BlockEvents()

    def take(self, _: int, said: Said) -> list[bytes]:
        """What came of it."""
        self._choice.take(said)
        return [_line(each) for each in self._blocks.take(said)]

    def beginning(self) -> list[bytes]:
        """The message, which is empty."""
        return [_line(self._reply.beginning(self._choice))]

    def still_there(self) -> bytes:
        """An event that says no more than that."""
        return _PING

    def failed(self, error: MaclusterError) -> bytes:
        """The body that the error has elsewhere."""
        return _line(message_error_of(error))

    def ending(self) -> list[bytes]:
        """The end of the last block, and of the message."""
        return [_line(each) for each in self._blocks.end(self._choice)]

    def whole(self) -> dict[str, Any]:
        """The message."""
        return self._reply.whole(self._choice)


class BlockEvents:
    """The events of a stream behind the first: blocks that begin, grow and end, one after the other."""

    def __init__(self) -> None:
        self._index = -1
        self._kind: type[AnswerPart] | None = None

    def take(self, said: Said) -> list[Event]:
        """What the next part makes of them; nothing else has any."""
        match said:
            case TextPart(text):
                return [*self._begin(said), self._delta({"type": "text_delta", "text": text})]
            case ReasoningPart(text):
                return [*self._begin(said), self._delta({"type": "thinking_delta", "thinking": text})]
            case ToolCall(arguments=arguments):
                return [*self._begin(said), self._delta({"type": "input_json_delta", "partial_json": arguments})]
        return []

    def end(self, choice: AnswerChoice) -> list[Event]:
        """The last ones."""
        return [
            *self._stop(),
            {"type": "message_delta", "delta": _end(choice), "usage": usage(choice)},
            {"type": "message_stop"},
        ]

    def _begin(self, part: AnswerPart) -> list[Event]:
        """Every call is a block of its own; what follows what of another kind is one."""
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


def _line(reported: Event) -> bytes:
    return event(reported, reported["type"])


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
    """Tokens that were read, those that were in memory already, and those that were written."""
    reused = choice.done.reused_tokens if choice.done else 0
    return {
        "input_tokens": choice.prompt_tokens - reused,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reused,
        "output_tokens": choice.done.tokens if choice.done else 0,
    }


def message_error(kind: str, what: str) -> dict[str, Any]:
    """As Anthropic's clients read it."""
    return {"type": "error", "error": {"type": kind, "message": what}}


def message_error_of(error: MaclusterError) -> dict[str, Any]:
    """The same, of an error of ours; by the first words of one their agents know that they have to say less."""
    match error:
        case ContextExceeded():
            return message_error("invalid_request_error", f"prompt is too long: {error}")
        case UsageError():
            return message_error("invalid_request_error", str(error))
        case Busy():
            return message_error("rate_limit_error", str(error))
        case NodeError() | NotPaired():
            return message_error("overloaded_error", str(error))
        case _:
            return message_error("api_error", str(error))
