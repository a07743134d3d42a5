"""Large bodies: the work on them is bounded before it begins, grows with their size, and does not hold the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import UsageError
from core.field_errors import decoded
from core.node.base import large_bodies
from core.node.public_api import anthropic_request, http_bodies, request_fields
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.completions_request import TextCompletion
from core.node.public_api.request_fields import request_body
from core.node.public_api.responses_request import Item, ResponseBody, messages_of
from core.requests.answers import Message
from tests.support.answers import model
from tests.support.api import served_harness

__all__ = ["model"]  # a fixture

TEXTS = 1000
TURN = {"role": "user", "content": "hi"}


def body(**fields: object) -> bytes:
    return msgspec.json.encode({"model": "", "messages": [TURN], "input": "", "prompt": "", **fields})


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ChatCompletion, {"messages": [{"role": "user"}] * TEXTS}),
        (ChatCompletion, {"messages": [{"role": "user", "content": [{"type": "text"}] * TEXTS}]}),
        (ChatCompletion, {"logit_bias": {str(each): 1 for each in range(2 * TEXTS)}}),
        (ChatCompletion, {f"unknown {each}": 1 for each in range(2 * TEXTS)}),
        (ChatCompletion, {"tool_choice": {"a": [[]] * 40 * TEXTS}}),
        (Messages, {"messages": [{"role": "user", "content": ""}] * TEXTS}),
        (ResponseBody, {"input": [{"type": "function_call"}] * TEXTS}),
        (ResponseBody, {"conversation": [[]] * 40 * TEXTS}),
        (TextCompletion, {"prompt": [""] * 2 * TEXTS}),
    ],
)
def test_a_body_of_too_many_values_is_refused_before_any_is_made(
    monkeypatch: pytest.MonkeyPatch, kind: type[msgspec.Struct], fields: dict[str, Any]
) -> None:
    monkeypatch.setattr(request_fields, "MAX_TEXTS", TEXTS)
    monkeypatch.setattr(request_fields, "MAX_FIELD_BYTES", 100 * TEXTS)
    assert request_body(body(), kind)
    made: list[object] = []
    monkeypatch.setattr(request_fields, "decoded", _noting(made))
    with pytest.raises(UsageError, match=r"texts|longer than"):
        request_body(body(**fields), kind)
    assert kind not in made


def _noting(seen: list[object]) -> Callable[..., Any]:
    def note(raw: bytes, kind: type[Any], **options: bool) -> Any:
        seen.append(kind)
        return decoded(raw, kind, **options)

    return note


@pytest.mark.parametrize("prompt", [[[1]] * 200, [1] * 2000])
def test_a_prompt_of_too_many_lists_or_ids_is_refused_as_it_is(
    monkeypatch: pytest.MonkeyPatch, prompt: list[Any]
) -> None:
    monkeypatch.setattr("core.node.public_api.completions_request.MAX_IDS", 1000)
    with pytest.raises(UsageError, match="more than 128 lists or 1000 token ids"):
        request_body(body(prompt=prompt), TextCompletion).prompts()


def test_tools_that_are_none_are_not_made_one_by_one() -> None:
    asked = request_body(body(tools=[0] * TEXTS), ResponseBody)
    assert isinstance(asked.tools, msgspec.Raw)
    with pytest.raises(UsageError, match="must be an object"):
        asked.known_tools()


def test_quotes_in_a_text_are_no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_fields, "MAX_TEXTS", TEXTS)
    code = '\\"' * 2 * TEXTS + '"' * TEXTS
    (turn,) = request_body(body(messages=[TURN | {"content": code}]), ChatCompletion).messages
    assert turn.content == code


def test_many_past_calls_become_one_message_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    replace = msgspec.structs.replace

    def noting(struct: Any, **changes: Any) -> Any:
        copied.append(len(changes.get("tool_calls", ())))
        return replace(struct, **changes)

    monkeypatch.setattr(msgspec.structs, "replace", noting)
    (said,) = messages_of([Item(type="function_call", call_id=str(each), name="go") for each in range(TEXTS)])
    assert len(said.tool_calls) == TEXTS
    assert sum(copied) <= 2 * TEXTS


def test_many_user_turns_become_one_message_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    def noting(**fields: Any) -> Message:
        copied.append(len(fields["content"]))
        return Message(**fields)

    monkeypatch.setattr(anthropic_request, "Message", noting)
    said = request_body(body(messages=[TURN] * TEXTS), Messages).request().messages
    assert [len(message.content) for message in said] == [3 * TEXTS - 1]
    assert sum(copied) <= 6 * TEXTS


async def test_the_work_on_a_large_body_is_done_beside_the_loop(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    build = Messages.request

    def noting_decode(raw: bytes, kind: type[Any]) -> Any:
        threads.append(threading.current_thread().name[:5])
        return request_body(raw, kind)

    def noting_build(asked: Messages) -> Any:
        threads.append(threading.current_thread().name[:5])
        return build(asked)

    monkeypatch.setattr(http_bodies, "request_body", noting_decode)
    monkeypatch.setattr(large_bodies, "LARGE_BODY", 1000)
    monkeypatch.setattr(Messages, "request", noting_build)
    async with served_harness(tmp_path, model) as harness:
        for size in (10, 2000):
            said = await harness.asker.post("/messages/count_tokens", content=body(messages=[TURN], unknown="a" * size))
            assert said.status_code == 200
    assert threads == ["MainT", "MainT", "large", "large"]
