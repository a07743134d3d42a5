"""Harmony, the form of gpt-oss: an answer is a row of messages, each with a channel, and calls are messages to a tool.

<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello
<|channel|>commentary to=functions.look_up <|constrain|>json<|message|>{"word": "hop"}<|call|>
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, Tool
from core.constraint import Grammar
from core.models.text.answer_reader import Kind, Words, offered_calls, split_at
from core.models.text.call_forms import template_of
from core.models.text.call_grammar import FREE, TERMS, arguments_of, inlined
from core.models.text.marks import Mark, quoted
from core.models.text.template_values import spec_of

CALL_END: Final = "<|call|>"
_MESSAGE: Final = "<|message|>"
_ENDS: Final = ("<|start|>", "<|channel|>", "<|end|>", CALL_END, "<|return|>")
_MARKS: Final = (*_ENDS, _MESSAGE, "<|constrain|>")
_HEADER: Final = ("<|start|>", "<|channel|>", "<|constrain|>", _MESSAGE, "<|end|>")
_RECIPIENT: Final = re.compile(r"\bto=(\S+)")
_THOUGHT: Final = {"analysis", "commentary"}


def is_harmony(wrapper: Any, vocabulary: Mapping[str, int]) -> bool:
    """Whether a model has these marks, and its chat template uses them."""
    return {*_MARKS} <= vocabulary.keys() and _MESSAGE in template_of(wrapper)


class HarmonyReader:
    """Reads such an answer: analysis and commentary are reasoning, a message to one of `tools` is a call, the rest is
    text. So is an answer without any marks.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = [spec_of(tool) for tool in tools]
        self._words, self._told = Words(is_fresh=False), set[type[AnswerPart]]()
        self._rest = self._recipient = self._call = ""
        self._header: str | None = ""  # of the message that begins; None inside a message
        self._kind: Kind = TextPart
        self._is_marked = False

    def read(self, text: str) -> list[AnswerPart]:
        self._rest += text
        return list(self._parts())

    def end(self, is_whole: bool) -> list[AnswerPart]:
        parts = [*self._parts(), *self._take(self._rest)]
        if self._header is None:
            parts += self._close(is_whole=is_whole)
        elif not self._is_marked:
            parts += self._words.say(TextPart, self._header)
        return parts + (self._words.end() if self._kind is TextPart else [])

    def _parts(self) -> Iterator[AnswerPart]:
        while True:
            text, mark, self._rest = split_at(self._rest, _MARKS)
            yield from self._take(text)
            if not mark:
                return
            self._is_marked = True
            if mark == _MESSAGE and self._header is not None:
                self._open(self._header)
            elif mark in _ENDS and self._header is None:
                yield from self._close(is_whole=True)
            elif self._header is not None:
                self._header += " "

    def _take(self, text: str) -> list[AnswerPart]:
        if self._header is not None:
            self._header += text
            begin = self._header.lstrip()
            if self._is_marked or begin.startswith("to=") or "to=".startswith(begin):
                return []
            text, self._header = self._header, None
        if self._recipient:
            self._call += text
            return []
        self._told |= {self._kind} if text.strip() else set()
        return self._words.say(self._kind, text)

    def _open(self, header: str) -> None:
        found, words = _RECIPIENT.search(header), set(_RECIPIENT.sub(" ", header).split())
        is_final = "final" in words
        self._header, self._recipient = None, found[1] if found and not is_final else ""
        self._kind = ReasoningPart if _THOUGHT & words and not is_final else TextPart
        self._words.begin("\n\n" if self._kind in self._told else "")

    def _close(self, *, is_whole: bool) -> list[AnswerPart]:
        recipient, written = self._recipient, self._call
        self._header, self._recipient, self._call = "", "", ""
        if not recipient:
            return []
        call = {"name": recipient.removeprefix("functions."), "arguments": written}
        with suppress(ValueError, TypeError, RecursionError):
            if is_whole:
                return [*offered_calls([call], self._tools)]
        return [TextPart(f"to={recipient} {written}")]


def harmony_grammar(asked: Grammar | None, tools: Sequence[Tool], mark: Mark, *, must_call: bool) -> Grammar:
    """Grammar of an answer in harmony's channels: reasoning, then `asked` or text, or a call of one of `tools`."""
    start, channel, constrain, message, end = map(mark, _HEADER)
    last = [f'{channel} "final" (" "? {constrain} "json")? {message} shape'] if not must_call else []
    for tool in tools:
        header = quoted(f"commentary to=functions.{tool.name} ")
        last.append(f'{channel} {header} {constrain} "json" {message} {arguments_of(tool)}')
    lines = [
        f"start: thought* ({' | '.join(last)})",
        f'thought: {channel} ("analysis" | "commentary") {message} WORDS? {end} {start} "assistant"',
        *(["shape: " + (inlined(asked) if asked else FREE)] if not must_call else []),
        *TERMS,
    ]
    return Grammar(kind="lark", source="\n".join(lines))


def harmony_turns(turns: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history as the template of gpt-oss takes it: reasoning as `thinking`, marks out of the text."""
    return [_turn(turn) if turn["role"] == "assistant" else turn for turn in turns]


def _turn(turn: dict[str, Any]) -> dict[str, Any]:
    text, thought = turn["content"] or "", turn.get("reasoning", "")
    if any(mark in text for mark in _MARKS):
        reader = HarmonyReader(())
        parts = reader.read(text) + reader.end(is_whole=True)
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        thought = thought or "".join(part.text for part in parts if isinstance(part, ReasoningPart))
    if turn.get("tool_calls"):  # the template takes either of the two with a call
        text, thought = "", "\n\n".join(filter(None, (thought, text)))
    return {**turn, "content": text, "thinking": thought}
