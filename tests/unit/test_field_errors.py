"""No path of a field is shown to a person."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.errors import UsageError
from core.field_errors import decoded, plain
from core.requests.answers import ChatRequest, Message
from core.requests.body import Body
from core.requests.plans import LoadRequest
from tui.client import check

HI = '"messages": [{"role": "user", "content": "hi"}]'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("{}", "messages is missing"),
        (f'{{{HI}, "max_tokens": 0}}', "max tokens must be a whole number, at least 1"),
        (f'{{{HI}, "max_tokens": "all"}}', "max tokens must be a whole number, not text"),
        (f'{{{HI}, "sampling": {{"top_p": 3}}}}', "top p must be at most 1"),
        (f'{{{HI}, "sampling": {{"temperature": -1}}}}', "temperature must be at least 0"),
        ('{"messages": [{"role": "cat", "content": "hi"}]}', "role cannot be 'cat'"),
        ('{"messages": [{"role": "user", "content": 5}]}', "content must be text, not a whole number"),
        ('{"messages": []}', "messages must be a list of at least 1 entries"),
        ("[]", "it must be an object, not a list"),
        ("{", "it is malformed"),
    ],
)
def test_what_is_wrong_is_said_by_the_name_of_the_field(body: str, said: str) -> None:
    with pytest.raises(msgspec.MsgspecError) as raised:
        msgspec.json.decode(body, type=ChatRequest)
    assert plain(raised.value) == said


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "The body is empty"),
        (b" \n", "The body is empty"),
        (rb'{"a": "\ud83d\ude00 \ud83d"}', r"half of a surrogate pair: \ud83d at byte 20"),
        (rb'{"a": "\ud83d\ude00", "b": "\uDE00 and more of it"}', r"half of a surrogate pair: \uDE00 at byte 28"),
        (rb'{"a": "\u00e9"', "The JSON ends too early"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": 1,}', "JSON is malformed: trailing comma in object"),
        (b'{"a": 1e999}', "It is out of range"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bytes_that_are_not_json_are_told_for_what_they_are(body: bytes, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        decoded(body, Any)
    assert said in refused.value.what


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (LoadRequest(model="m", context=0), "context"),
        (LoadRequest(model="m", rows=0), "rows"),
        (ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=-5), "max tokens"),
    ],
)
def test_an_option_beyond_its_limits_is_told_without_a_path(request_: Body, name: str) -> None:
    with pytest.raises(UsageError) as raised:
        check(request_)
    assert name in raised.value.what
    assert not set("$`") & set(raised.value.what)
