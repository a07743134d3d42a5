"""Requests of an agent in a session, recorded from its client.

A file has each text once: `parts` are the values in the bodies, and a body refers to them by number. Bodies of one
round were sent at the same time; each round came when the round before it was fully answered. Texts of a client that
are not free are replaced by other words of the same length, equal where the originals were equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from core.models.text.tokenizer import Tokens
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.responses_request import ResponseBody
from core.requests.answers import ChatRequest

FOLDER: Final = Path(__file__).parent
SHARED: Final = ("system", "messages", "input", "tools")


class Prompt(NamedTuple):
    """Token ids of one body, and the longest answer it allows."""

    tokens: list[int]
    max_tokens: int


class _Session(msgspec.Struct):
    client: str
    parts: list[Any]
    rounds: list[list[dict[str, Any]]]


def rounds_of(path: Path, tokenizer: Tokens) -> list[list[Prompt]]:
    """The prompts of a session, as the API would tokenize them."""
    return [[_prompt(request, tokenizer) for request in requests] for requests in requests_of(path)]


def requests_of(path: Path) -> list[list[ChatRequest]]:
    """The requests of a session, as the API reads them."""
    session = msgspec.json.decode(path.read_bytes(), type=_Session)
    return [[_request(_whole(body, session.parts)) for body in bodies] for bodies in session.rounds]


def folded(client: str, rounds: list[list[dict[str, Any]]]) -> bytes:
    """The file of a session, from its bodies."""
    parts: list[Any] = []

    def number(value: Any) -> int:
        if value not in parts:
            parts.append(value)
        return parts.index(value)

    def fold(body: dict[str, Any]) -> dict[str, Any]:
        return {
            name: [number(each) for each in value] if name in SHARED and isinstance(value, list) else value
            for name, value in body.items()
        }

    session = {"client": client, "rounds": [[fold(body) for body in bodies] for bodies in rounds], "parts": parts}
    return json.dumps(session, ensure_ascii=False, indent=1).encode() + b"\n"


def _whole(body: dict[str, Any], parts: list[Any]) -> dict[str, Any]:
    return {
        name: [parts[number] for number in value] if name in SHARED and isinstance(value, list) else value
        for name, value in body.items()
    }


def _request(body: dict[str, Any]) -> ChatRequest:
    sent = msgspec.json.encode(body)
    if "input" in body:
        asked = msgspec.json.decode(sent, type=ResponseBody)
        return asked.request(asked.messages())
    form: type[Messages | ChatCompletion] = Messages if "system" in body else ChatCompletion
    return msgspec.json.decode(sent, type=form).request()


def _prompt(asked: ChatRequest, tokenizer: Tokens) -> Prompt:
    tokens = tokenizer.encode(asked.messages, asked.raw, asked.tools, asked.template_options)
    return Prompt(tokens, asked.max_tokens)
