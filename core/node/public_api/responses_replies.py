"""Reply bodies and stream events of `/v1/responses`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, ClassVar, Final, Literal

import msgspec

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, ToolCall
from core.errors import MaclusterError
from core.events import RequestDone
from core.node.answers.answer_stream import Said
from core.node.public_api.answer_so_far import AnswerChoice
from core.node.public_api.http_bodies import typed_event
from core.node.public_api.request_fields import TextFormat
from core.node.public_api.responses_request import ResponseBody
from core.requests.answers import Message

_Status = Literal["in_progress", "completed", "incomplete", "failed"]
_Event = dict[str, Any]
# what this API does not offer, as OpenAI's clients want it named
_FIXED: Final = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "top_logprobs": 0, "service_tier": "default"}
_TOOL: Final = {"description": None, "parameters": None, "strict": False}


class ResponseEncoder:
    """The `ReplyEncoder` of one response."""

    has_comments: ClassVar = False

    def __init__(
        self, model: str, asked: ResponseBody, store: Callable[[dict[str, Any], Message], None] | None
    ) -> None:
        self._model, self._asked, self._store = model, asked, store  # called with the whole body and the answer
        self._id, self._created = f"resp_{secrets.token_hex(24)}", int(time.time())
        self._choice, self._items = AnswerChoice(0), ItemEvents(asked.custom)

    def take(self, _: int, said: Said) -> list[bytes]:
        self._choice.take(said)
        return [typed_event(each) for each in self._items.take(said)]

    def beginning(self) -> list[bytes]:
        return [self._so_far("response.created"), self.still_there()]

    def still_there(self) -> bytes:
        return self._so_far("response.in_progress")

    def failed(self, error: MaclusterError) -> bytes:
        return typed_event(self._items.event("response.failed", response=self._body("failed", error)))

    def ending(self) -> list[bytes]:
        lines = [typed_event(each) for each in self._items.close(self._status)]
        body = self.whole()
        return [*lines, typed_event(self._items.event(f"response.{body['status']}", response=body))]

    def whole(self) -> dict[str, Any]:
        list(self._items.close(self._status))
        body = self._body(self._status)
        said, calls = self._choice, tuple(self._choice.calls)
        if self._store:
            self._store(body, Message(role="assistant", content=said.text, reasoning=said.reasoning, tool_calls=calls))
        return body

    @property
    def _status(self) -> _Status:
        assert self._choice.done
        return "incomplete" if self._choice.done.finish_reason == "length" else "completed"

    def _so_far(self, name: str) -> bytes:
        return typed_event(self._items.event(name, response=self._body("in_progress")))

    def _body(self, status: _Status, error: MaclusterError | None = None) -> dict[str, Any]:
        asked, choice = self._asked, self._choice
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": False,
            "error": error and {"code": "server_error", "message": str(error)},
            "incomplete_details": cut,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "max_tool_calls": None,
            "metadata": asked.metadata or {},
            "model": self._model,
            "output": list(self._items.output),
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
            "store": asked.store is not False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": (asked.text.format or TextFormat()).as_json},
            "tool_choice": asked.tool_choice or "auto",
            "tools": _repeated(asked),
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            **_FIXED,
            "prompt_cache_key": asked.prompt_cache_key,
            "safety_identifier": asked.safety_identifier,
            "truncation": "disabled",
            "usage": _usage(choice.done, choice.reasoning_tokens) if choice.done else None,
        }


def _repeated(asked: ResponseBody) -> list[dict[str, Any]]:
    """The tools as they were written, functions with all of their fields."""
    if not (known := asked.known_tools()):
        return []
    written = msgspec.json.decode(asked.tools, type=list[dict[str, msgspec.Raw]])
    return [_TOOL | tool if is_.type == "function" else tool for is_, tool in zip(known, written, strict=True)]


class ItemEvents:
    """Turns the parts of one answer into the events of a stream."""

    def __init__(self, custom: frozenset[str]) -> None:
        self._custom = custom  # names of the tools that take text
        self._numbers = count()
        self._open: _Item | None = None
        self.output: list[dict[str, Any]] = []  # finished items

    def event(self, kind: str, **fields: Any) -> _Event:
        return {"type": kind, "sequence_number": next(self._numbers), **fields}

    def take(self, said: Said) -> Iterator[_Event]:
        match said:
            case TextPart() | ReasoningPart():
                if self._open is None or self._open.kind is not type(said):
                    yield from self.close()
                    yield from self._begin(_Item(type(said)))
                assert self._open
                self._open.text += said.text
                yield self._of_part(f"{self._open.name}.delta", delta=said.text)
            case ToolCall():
                yield from self.close()
                yield from self._call(said)

    def close(self, status: _Status = "completed") -> Iterator[_Event]:
        item, self._open = self._open, None
        if item is None:
            return
        at = {"item_id": item.id, "output_index": len(self.output), "content_index": 0}
        yield self.event(f"response.{item.name}.done", text=item.text, **at, **item.logprobs)
        yield self.event("response.content_part.done", part=item.part(), **at)
        yield from self._whole(item.body(status))

    def _begin(self, item: _Item) -> Iterator[_Event]:
        self._open = item
        yield self.event("response.output_item.added", output_index=len(self.output), item=item.empty())
        part = {**item.part(), "text": ""}
        yield self._of_part("content_part.added", part=part)

    def _of_part(self, name: str, **fields: Any) -> _Event:
        assert self._open
        at = {"item_id": self._open.id, "output_index": len(self.output), "content_index": 0}
        more = self._open.logprobs if "delta" in fields else {}
        return self.event(f"response.{name}", **at, **fields, **more)

    def _call(self, call: ToolCall) -> Iterator[_Event]:
        item, field = _call_item(call, call.name in self._custom)
        name = "custom_tool_call_input" if field == "input" else "function_call_arguments"
        at = {"item_id": item["id"], "output_index": len(self.output)}
        begun = {**item, field: ""} | ({"status": "in_progress"} if "status" in item else {})
        yield self.event("response.output_item.added", output_index=len(self.output), item=begun)
        yield self.event(f"response.{name}.delta", delta=item[field], **at)
        named = {} if field == "input" else {"name": call.name}
        yield self.event(f"response.{name}.done", **{field: item[field]}, **at, **named)
        yield from self._whole(item)

    def _whole(self, item: dict[str, Any]) -> Iterator[_Event]:
        yield self.event("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)


class _Item:
    """A message or reasoning item while it grows."""

    def __init__(self, kind: type[AnswerPart]) -> None:
        self.kind = kind
        self.text = ""
        self.id = ("msg_" if kind is TextPart else "rs_") + secrets.token_hex(12)
        self.name = "output_text" if kind is TextPart else "reasoning_text"
        self.logprobs: dict[str, Any] = {"logprobs": []} if kind is TextPart else {}

    def part(self) -> dict[str, Any]:
        if self.kind is TextPart:
            return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}
        return {"type": "reasoning_text", "text": self.text}

    def empty(self) -> dict[str, Any]:
        return {**self.body("in_progress"), "content": []}

    def body(self, status: str) -> dict[str, Any]:
        common = {"id": self.id, "status": status, "content": [self.part()]}
        if self.kind is TextPart:
            return {**common, "type": "message", "role": "assistant"}
        return {**common, "type": "reasoning", "summary": []}


def _call_item(call: ToolCall, is_custom: bool) -> tuple[dict[str, Any], str]:
    if not is_custom:
        item = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", "status": "completed"}
        return {**item, "call_id": call.id, "name": call.name, "arguments": call.arguments}, "arguments"
    given = msgspec.json.decode(call.arguments)
    text = given["input"] if isinstance(given.get("input"), str) else call.arguments
    item = {"id": f"ctc_{secrets.token_hex(12)}", "type": "custom_tool_call"}
    return {**item, "call_id": call.id, "name": call.name, "input": text}, "input"


def _usage(done: RequestDone, reasoning_tokens: int) -> dict[str, Any]:
    return {
        "input_tokens": done.prompt_tokens,
        "input_tokens_details": {"cached_tokens": done.reused_tokens, "cache_write_tokens": 0},
        "output_tokens": done.tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": done.prompt_tokens + done.tokens,
    }


def items_of(message: Message, number: int) -> list[_Event]:
    """Message `number` of a conversation as items of an input."""
    name, text = f"msg_{number}", message.content
    if message.role == "tool":
        result = {"type": "function_call_output", "call_id": message.tool_call_id, "output": text}
        return [{"id": name, "status": "completed", **result}]
    kind = {"type": "output_text", "annotations": []} if message.role == "assistant" else {"type": "input_text"}
    said = {"type": "message", "role": message.role, "content": [{**kind, "text": text}]}
    calls = [_call_item(call, is_custom=False)[0] for call in message.tool_calls]
    return [*([{"id": name, "status": "completed", **said}] if text or not calls else []), *calls]
