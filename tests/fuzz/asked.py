"""Requests of other programs: each body becomes a request that fits every pipe, or is refused with a message."""

from __future__ import annotations

import json

import msgspec

from core.errors import UsageError
from core.field_errors import decoded
from core.models.text.template_values import said_before, spec_of
from core.models.text.text_messages import Encode
from core.node.public_api.anthropic_request import Messages
from core.node.public_api.chat_request import ChatCompletion
from core.node.public_api.responses_request import ResponseBody
from core.pipe_messages import pack
from core.requests.answers import ChatRequest
from tests.fuzz.target import Target

_SCHEMA = {"type": "object", "properties": {"word": {"type": "string", "maximum": 1 << 70}}}


def attack(data: bytes) -> None:
    """Decode a body; the first byte chooses the API."""
    body = data[1:]
    try:
        if data.startswith(b"r"):
            response = decoded(body, ResponseBody)
            request = response.request(response.messages())
        elif data.startswith(b"m"):
            request = decoded(body, Messages).request()
        else:
            request = decoded(body, ChatCompletion).request()
    except UsageError:
        return
    msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=ChatRequest)
    pack(Encode(messages=request.messages, raw=False, tools=request.tools, template_options=request.template_options))
    json.dumps([said_before(request.messages, parsed=True), [spec_of(tool) for tool in request.tools]]).encode()


def target() -> Target:
    """A turn of an agent in each form."""
    function = {"name": "look_up", "description": "A word.", "parameters": _SCHEMA}
    call = {"id": "a1", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "hop"}'}}
    chat = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Who?"}]},
            {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a1", "content": "a step"},
        ],
        "tools": [{"type": "function", "function": function}],
        "temperature": 0.5,
        "stop": ["x"],
        "logit_bias": {"7": -2},
        "chat_template_kwargs": {"enable_thinking": True},
    }
    used = {"type": "tool_use", "id": "a1", "name": "look_up", "input": {"word": "hop", "n": 1 << 70}}
    result = {"type": "tool_result", "tool_use_id": "a1", "content": [{"type": "text", "text": "a step"}]}
    messages = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Who?"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, used]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "look_up", "input_schema": _SCHEMA}],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
    }
    response = {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Who?"}]},
            {"type": "function_call", "call_id": "a1", "name": "look_up", "arguments": '{"word": "hop"}'},
            {"type": "function_call_output", "call_id": "a1", "output": "a step"},
            {"type": "custom_tool_call", "call_id": "a2", "name": "patch", "input": "* a"},
        ],
        "tools": [{"type": "function", **function}, {"type": "custom", "name": "patch", "format": {"definition": "x"}}],
        "reasoning": {"effort": "low"},
        "parallel_tool_calls": False,
    }
    seeds = {b"c": chat, b"m": messages, b"r": response}
    return Target("asked", attack, [api + json.dumps(seed).encode() for api, seed in seeds.items()])
