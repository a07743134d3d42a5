"""Keeps control tokens out of the text of users and tools: there, `<|im_start|>` is text, not a new message.

With what transformers has for it; its `apply_chat_template` itself would render the template outside of our limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import jinja2
from msgspec.structs import replace
from transformers.utils.chat_template_utils import mark_control_tokens

from core.answer_parts import Tool
from core.requests.answers import Message


def pattern_of(tokenizer: Any, template: str) -> re.Pattern[str]:
    """Matches the control tokens of transformers' `tokenizer` and this template that it can also write as text."""
    try:
        words = tokenizer._get_control_tokens(template)
    except (jinja2.TemplateError, RecursionError):  # rendering tells what is wrong with the template
        words = tokenizer._get_control_tokens("")
    plain = tokenizer(list(words), add_special_tokens=False, split_special_tokens=True)["input_ids"] if words else ()
    ids = tokenizer.convert_tokens_to_ids(list(words))
    writable = [word for word, token, written in zip(words, ids, plain, strict=True) if token not in written]
    return re.compile("|".join(map(re.escape, sorted(writable, key=len, reverse=True))) or "(?!)")


def with_marks(
    messages: Sequence[Message], tools: Sequence[Tool], pattern: re.Pattern[str]
) -> tuple[list[Message], list[Tool]]:
    """The conversation with marks around the control tokens in all text but the assistant's, and in arguments of calls;
    transformers' `encode_marked_chat` encodes the marked ones as text.
    """
    return [_message(message, pattern) for message in messages], [_tool(tool, pattern) for tool in tools]


def _message(message: Message, pattern: re.Pattern[str]) -> Message:
    calls = tuple(replace(call, arguments=_json(call.arguments, pattern)) for call in message.tool_calls)
    content = message.content if message.role == "assistant" else mark_control_tokens(message.content, pattern)
    return replace(message, content=content, tool_calls=calls)


def _tool(tool: Tool, pattern: re.Pattern[str]) -> Tool:
    description = mark_control_tokens(tool.description, pattern)
    return replace(tool, description=description, parameters=_json(tool.parameters, pattern))


def _json(text: str, pattern: re.Pattern[str]) -> str:
    value = json.loads(text)
    marked = mark_control_tokens(value, pattern)
    return text if marked == value else json.dumps(marked, ensure_ascii=False)
