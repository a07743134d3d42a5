"""Fields that a request leaves out, in whatever way, mean the same in all four APIs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from core.constraint import Constraint
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.completions_request import TextCompletion
from core.node.public_api.request_fields import request_body
from core.node.public_api.responses_request import ResponseBody
from core.numbers import MOST
from core.requests.answers import ChatRequest

SAID: Final = [{"role": "user", "content": "hello"}]
FUNCTION: Final = {"name": "look_up", "description": None, "parameters": None, "strict": None}
TOOLS: Final = [{"type": "function", "function": FUNCTION}, {"type": "function", "function": {"name": "other"}}]
FLAT: Final = [{"type": "function", **FUNCTION}, {"type": "function", "name": "other"}]
OWN: Final = [{"name": "look_up", "description": None, "input_schema": None, "type": None, "strict": None}]


class Api(NamedTuple):
    """How one API is asked."""

    kind: type[msgspec.Struct]
    least: dict[str, Any]  # the body without any optional field
    request: Callable[[Any], ChatRequest]
    omitted: int = MOST  # tokens without a limit

    def __call__(self, **fields: Any) -> ChatRequest:
        return self.request(request_body(json.dumps({**self.least, **fields}).encode(), self.kind))


CHAT = Api(ChatCompletion, {"messages": SAID}, lambda body: body.request())
TEXT = Api(TextCompletion, {"prompt": "hello"}, lambda body: body.requests(body.prompts())[0], 16)
RESPONSE = Api(ResponseBody, {"input": "hello"}, lambda body: body.request(body.messages()))
MESSAGE = Api(Messages, {"model": "tiny", "messages": SAID}, lambda body: body.request())


@pytest.mark.parametrize("api", [CHAT, TEXT, RESPONSE, MESSAGE], ids=lambda api: api.kind.__name__)
def test_null_is_left_out_and_a_limit_of_minus_one_is_none(api: Api) -> None:
    names = [field.name for field in msgspec.structs.fields(api.kind)]
    optional = [name for name in names if name not in api.least]
    assert api(**dict.fromkeys(optional), guided_json=None) == api()
    assert api().max_tokens == api.omitted
    for limit in [name for name in names if name.startswith("max_") and name.endswith("tokens")]:
        assert (api(**{limit: -1}).max_tokens, api(**{limit: 7}).max_tokens) == (MOST, 7)
    values: dict[str, tuple[Any, ...]] = {"top_k": (-1,), "seed": (-1,), "top_p": (1,), "stop": ("", [""], [])}
    values["stop_sequences"] = ([""], [])
    for fields in [{name: value} for name in values if name in names for value in values[name]]:
        asked = api(**fields)
        assert (asked.sampling, asked.stop) == (api().sampling, ()), fields
        assert set(asked.model_sampling) == set(api().model_sampling) - fields.keys()


@pytest.mark.parametrize(
    ("api", "fields", "same"),
    [
        (CHAT, {"stream_options": {"include_usage": None}}, {}),
        (CHAT, {"response_format": {"type": "text", "json_schema": None}}, {}),
        (CHAT, {"messages": [{"tool_calls": None, "reasoning": None, "tool_call_id": None, **SAID[0]}]}, {}),
        (CHAT, {"tools": TOOLS[:1]}, {"tools": [{"type": "function", "function": {"name": "look_up"}}]}),
        (RESPONSE, {"text": {"format": None}, "reasoning": {"effort": None}}, {}),
        (RESPONSE, {"tools": FLAT[:1]}, {"tools": [{"type": "function", "name": "look_up"}]}),
        (MESSAGE, {"output_config": {"format": None, "effort": None}}, {}),
        (MESSAGE, {"tools": OWN}, {"tools": [{"name": "look_up"}]}),
        (MESSAGE, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": None}}, {}),
        *(
            (api, {"tools": tools, "tool_choice": {"type": "allowed_tools", **allowed}}, {"tools": tools[:1]} | more)
            for api, tools in ((CHAT, TOOLS), (RESPONSE, FLAT))
            for mode, more in (("auto", {}), ("required", {"tool_choice": "required"}))
            for choice in ({"mode": mode, "tools": [{"type": "function", "name": "look_up"}]},)
            for allowed in (choice, {"allowed_tools": choice})
        ),
    ],
)
def test_what_is_null_inside_and_tools_that_are_not_allowed_are_left_out(
    api: Api, fields: dict[str, Any], same: dict[str, Any]
) -> None:
    assert api(**fields) == api(**same)


def test_a_schema_that_is_null_allows_anything() -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": None, "strict": None}}
    assert CHAT(response_format=shape).constraint == Constraint(kind="json_schema", source="{}")
