"""Harmony, the form of gpt-oss: an answer is a row of messages, each with a channel, and calls are messages to a tool.

<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello
<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>{"word": "hop"}<|call|>
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from core.answer_parts import Tool
from core.constraint import Grammar
from core.models.text.call_forms import template_of
from core.models.text.call_grammar import FREE, TERMS, Mark, arguments_of, inlined, quoted

CALL_END: Final = "<|call|>"
_MESSAGE: Final = "<|message|>"
_ENDS: Final = ("<|start|>", "<|channel|>", "<|end|>", CALL_END, "<|return|>")
_MARKS: Final = (*_ENDS, _MESSAGE, "<|constrain|>")
_HEADER: Final = ("<|start|>", "<|channel|>", "<|constrain|>", _MESSAGE, "<|end|>")
_RECIPIENT: Final = re.compile(r"\bto=(\S+)")
_THOUGHT: Final = {"analysis", "commentary"}
_THOUGHT_END: Final = "\n</think>\n\n"
_CALLED: Final = "}\n</tool_call>"
_WRITTEN: Final = re.compile(r"\s*<think>\s*(.*?)\s*</think>\s*(.*)", re.DOTALL)
_PIECES: Final = re.compile(f"({'|'.join(map(re.escape, _MARKS))})")
# the states of such an answer, in the form of other families
EDGES: Final = {
    "normal": {"<think>": "reasoning", "<tool_call>": "call"},
    "reasoning": {"</think>": "normal", "<tool_call>": "call"},
}


def harmony_marks(wrapper: Any, vocabulary: Mapping[str, int]) -> dict[int, str]:
    """The marks by token, if a model has them and its chat template uses them."""
    is_used = {*_MARKS} <= vocabulary.keys() and _MESSAGE in template_of(wrapper)
    return {vocabulary[mark]: mark for mark in _MARKS} if is_used else {}


class Stream(Protocol):
    """Decodes tokens to text."""

    def add(self, token: int) -> str:
        """Text completed by `token`."""

    @property
    def held(self) -> str:
        """Text that comes last if no more tokens come."""


class HarmonyStream:
    """Decodes such an answer to the form of other families: analysis and commentary in `<think>`, messages to a tool in
    `<tool_call>`, the rest as it is. So is an answer without `marks` (by token).
    """

    def __init__(self, text: Stream, marks: Mapping[int, str]) -> None:
        self._text, self._marks = text, marks
        self._header: str | None = ""  # of the message that begins; None inside a message
        self._closing = ""  # of what is open
        self._is_marked = False

    def add(self, token: int) -> str:
        """Text completed by `token`, possibly empty."""
        mark = self._marks.get(token)
        if mark is None:
            return self._take(self._text.add(token))
        self._is_marked = True
        if mark == _MESSAGE and self._header is not None:
            return self._begin(self._header)
        if self._header is not None:
            self._header += " "
        elif mark in _ENDS:
            self._header = ""
            return self._close() if self._closing == _CALLED else ""
        return ""

    @property
    def held(self) -> str:
        """Held-back text, and the end of a call."""
        begun = "" if self._is_marked else self._header or ""
        return begun + self._text.held + (_CALLED if self._closing == _CALLED else "")

    def _take(self, text: str) -> str:
        if self._header is None:
            return text
        self._header += text
        begin = self._header.lstrip()
        if self._is_marked or begin.startswith("to=") or "to=".startswith(begin):
            return ""
        text, self._header = self._header, None
        return text

    def _begin(self, header: str) -> str:
        found, words = _RECIPIENT.search(header), set(_RECIPIENT.sub(" ", header).split())
        self._header = None
        if found and "final" not in words:
            name = json.dumps(found[1].removeprefix("functions."), ensure_ascii=False)
            return self._close(_CALLED) + f'<tool_call>\n{{"name": {name}, "arguments": '
        if not _THOUGHT & words or "final" in words:
            return self._close()
        return "\n\n" if self._closing == _THOUGHT_END else self._close(_THOUGHT_END) + "<think>\n"

    def _close(self, then: str = "") -> str:
        closing, self._closing = self._closing, then
        return closing


class _Pieces(NamedTuple):
    """Text in pieces, as the tokens of a stream."""

    pieces: Sequence[str]
    held: str = ""

    def add(self, token: int) -> str:
        return self.pieces[token]


def as_tags(text: str) -> str:
    """An answer with its marks in the form that a `HarmonyStream` gives it."""
    pieces = _PIECES.split(text)
    stream = HarmonyStream(_Pieces(pieces), {at: piece for at, piece in enumerate(pieces) if piece in _MARKS})
    return "".join(map(stream.add, range(len(pieces)))) + stream.held


def harmony_grammar(asked: Grammar | None, tools: Sequence[Tool], mark: Mark, *, must_call_in: int = 0) -> Grammar:
    """Grammar of an answer in harmony's channels: reasoning, then `asked` or text, or a call of one of `tools`.

    A call that must come in an answer of at most `must_call_in` tokens (0: it need not come) does come: each of the two
    thoughts before it may take a quarter of them.
    """
    start, channel, constrain, message, end = map(mark, _HEADER)
    last = [f'{channel} "final" (" "? {constrain} "json")? {message} shape'] if not must_call_in else []
    for tool in tools:
        header = quoted(f"commentary to=functions.{tool.name} ")
        last.append(f'{channel} {header} {constrain} "json" {message} {arguments_of(tool)}')
    lines = [
        f"start: thought{'{0,2}' if must_call_in else '*'} ({' | '.join(last)})",
        f'thought: {channel} ("analysis" | "commentary") {message} words? {end} {start} "assistant"',
        f"words{f'[max_tokens={max(1, must_call_in // 4)}]' if must_call_in else ''}: WORDS",
        *(["shape: " + (inlined(asked) if asked else FREE)] if not must_call_in else []),
        *TERMS,
    ]
    return Grammar(kind="lark", source="\n".join(lines))


def harmony_turns(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history as the template of gpt-oss takes it: reasoning as `thinking`, marks out of the text."""
    return [_turn(turn) if turn["role"] == "assistant" else turn for turn in turns]


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    text, thought = as_tags(turn["content"] or ""), turn.get("reasoning", "")
    if written := _WRITTEN.fullmatch(text):
        thought, text = thought or written[1], written[2]
    if turn.get("tool_calls"):  # the template takes either of the two with a call
        text, thought = "", "\n\n".join(filter(None, (thought, text)))
    return {**turn, "content": text, "thinking": thought}
