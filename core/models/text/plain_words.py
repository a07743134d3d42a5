"""Keeps control tokens out of the text of users and tools: there, `<|im_start|>` is text, not a new message.

Before a chat template is rendered, each such text is put between two characters that the conversation doesn't contain.
They are taken out of the prompt, and what stood between them is encoded as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from core.answer_parts import Tool
from core.requests.answers import Message

_FIRST, _LAST = 0xF0000, 0xFFFFD  # a plane for private use
_ANCHOR: Final = "\n"  # some tokenizers put a space before the first word of a text


class PlainWords:
    """Fences for the control tokens in one conversation. `tokenizer`: of transformers; a slow one gets no fences."""

    def __init__(self, tokenizer: Any, messages: Sequence[Message], tools: Sequence[Tool]) -> None:
        added = tokenizer.added_tokens_decoder
        self._tokenizer = tokenizer
        self._control = {token: str(word) for token, word in added.items() if word.special and str(word)}
        longest_first = sorted(self._control.values(), key=len, reverse=True)
        is_fast = hasattr(tokenizer, "backend_tokenizer")
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first and is_fast else None
        said = [*(message.content for message in messages), *(tool.description + tool.parameters for tool in tools)]
        said += [call.arguments for message in messages for call in message.tool_calls]
        free = (n for n in range(_FIRST, _LAST, 2) if not any(chr(n) in text or chr(n + 1) in text for text in said))
        self._open, self._close = map(chr, (first := next(free), first + 1))

    def fenced(self, messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[list[Message], list[Tool]]:
        """The conversation with fences in the text of users, tools and the system, and in arguments of calls."""
        return list(map(self._message, messages)), list(map(self._tool, tools))

    def encode(self, prompt: str) -> list[int]:
        """Token ids of a rendered prompt."""
        text, spans = self._unfenced(prompt)
        if not spans:
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        encoding = self._tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        ids: list[int] = []
        for token, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            is_theirs = token in self._control and any(start < end and begin < stop for begin, end in spans)
            ids += self._plain(text[start:stop], token) if is_theirs else [token]
        return ids

    def _message(self, message: Message) -> Message:
        calls = tuple(replace(call, arguments=self._json(call.arguments)) for call in message.tool_calls)
        content = message.content if message.role == "assistant" else self._text(message.content)
        return replace(message, content=content, tool_calls=calls)

    def _tool(self, tool: Tool) -> Tool:
        return replace(tool, description=self._text(tool.description), parameters=self._json(tool.parameters))

    def _text(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._open + found[0] + self._close, text) if self._pattern else text

    def _json(self, text: str) -> str:
        value = json.loads(text)
        fenced = _strings(value, self._text)
        return text if fenced == value else json.dumps(fenced, ensure_ascii=False)

    def _unfenced(self, prompt: str) -> tuple[str, list[tuple[int, int]]]:
        """The prompt without fences, and where they stood in it."""
        text, begin = "", 0
        spans: list[tuple[int, int]] = []
        for part in re.split(f"([{self._open}{self._close}])", prompt):
            if part == self._open:
                begin = len(text)
            elif part == self._close:
                spans.append((begin, len(text)))
            else:
                text += part
        return text, spans

    def _plain(self, word: str, token: int) -> list[int]:
        """Ids of a control token's text; the token itself if the tokenizer knows no other way to write it."""
        backend = self._tokenizer.backend_tokenizer
        backend.encode_special_tokens = True
        try:
            anchor, both = (backend.encode(text, add_special_tokens=False).ids for text in (_ANCHOR, _ANCHOR + word))
            alone = backend.encode(word, add_special_tokens=False).ids
        finally:
            backend.encode_special_tokens = False
        ids = list(both[len(anchor) :] if both[: len(anchor)] == anchor else alone)
        return [token] if self._control.keys() & {*ids} or not ids else ids


def _strings(value: Any, change: Callable[[str], str]) -> Any:
    """The JSON value with each string in it changed."""
    match value:
        case str():
            return change(value)
        case list():
            return [_strings(each, change) for each in value]
        case dict():
            return {key: _strings(each, change) for key, each in value.items()}
    return value
