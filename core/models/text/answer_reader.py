"""Splits a model's answer into text, reasoning and tool calls, with mlx-lm's markers and parsers of its family."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Iterator, Sequence
from math import copysign, isinf
from sys import float_info
from typing import Any, Final

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, Tool, ToolCall
from core.models.text.template_values import spec_of

_ID_LETTERS: Final = string.ascii_letters + string.digits
_SHAPED: Final = "shaped"  # reasoning has ended
_ID_LENGTH: Final = 9  # required in a history by Mistral's templates
# start of each call, by mlx-lm's parser, for parsers that skip calls they don't understand
_OPENERS: Final = {
    "function_gemma": "call:",
    "gemma4": "call:",
    "kimi_k2": "<|tool_call_begin|>",
    "kimi_k3": "<|open|>call",
    "minimax_m2": "<invoke",
    "muse_spark": "<atem:invoke",
    "qwen3_coder": "<function=",
}


class AnswerReader:
    """Parses one answer that begins in the state `begins` of mlx-lm's state machine.

    Drops white space between parts and returns calls that the family's parser can't read as text. In a `shaped` answer
    (with a constraint), reasoning makes no calls; after it, only call markers count, and only if there are tools.
    """

    def __init__(self, wrapper: Any, begins: str, tools: Sequence[Tool], *, shaped: bool = False) -> None:
        # imported only if needed: an answer on the screen is one text
        from mlx_lm.generate import TextStateMachine, make_text_state_machine

        self._wrapper, self._tools = wrapper, [spec_of(tool) for tool in tools]
        self._machine = TextStateMachine
        machine = TextStateMachine(_edges(wrapper, bool(tools))) if shaped else make_text_state_machine(wrapper)
        self._at = machine.make_state(begins)
        self._state = begins
        self._is_fresh = begins == "reasoning"
        self._is_shaped = shaped
        self._blank = self._call = ""
        self._tried = 0  # characters of a call that don't parse as one

    def read(self, text: str) -> list[AnswerPart]:
        """The parts that this text completes."""
        self._at, segments = self._machine.split(self._at, text)
        return [part for state, said in segments for part in self._take(state, said)]

    def end(self, is_whole: bool) -> list[AnswerPart]:
        """The held-back rest. A call cut off by the end of an answer that isn't `is_whole` counts as text."""
        self._at, rest, state = self._machine.flush(self._at)
        parts = list(self._take(state, rest))
        if self._state == "tool" or self._call:
            parts += self._calls_or_text("", self._parsed(self._call) if is_whole else None)
        elif self._state == "normal" and self._blank and not self._is_fresh:
            parts.append(TextPart(self._blank))
        return parts

    def _take(self, state: str, said: str) -> Iterator[AnswerPart]:
        state = "normal" if state == _SHAPED else state
        if state != self._state:
            yield from self._leave(state)
            self._state = state
        if state == "tool":
            self._call += said
        elif self._call:
            self._call += said
            yield from self._ended()
        elif state in ("normal", "reasoning") and (shown := self._trimmed(said)):
            yield TextPart(shown) if state == "normal" else ReasoningPart(shown)

    def _leave(self, state: str) -> Iterator[AnswerPart]:
        if self._state == "tool":
            self._call += self._wrapper.tool_call_end
            yield from self._ended()
        elif self._call:
            self._call += self._wrapper.tool_call_start
        elif "reasoning" in (state, self._state):
            self._is_fresh, self._blank = True, ""

    def _ended(self) -> Iterator[AnswerPart]:
        """The call at an end marker. If a call of a shaped answer doesn't parse yet, the marker is part of a string in
        its arguments.
        """
        end = self._wrapper.tool_call_end
        while end and (at := self._call.find(end, self._tried)) >= 0:
            self._tried = at + len(end)
            calls = self._parsed(self._call[:at])
            if calls is None and self._is_shaped:
                continue
            self._call, rest = self._call[:at], self._call[self._tried :]
            yield from self._calls_or_text(end, calls)
            if shown := self._trimmed(rest):
                yield TextPart(shown)

    def _calls_or_text(self, end: str, calls: list[ToolCall] | None) -> list[AnswerPart]:
        written, self._call, self._tried = self._call, "", 0
        self._is_fresh, blank, self._blank = calls is not None, self._blank, ""
        return [TextPart(f"{blank}{self._wrapper.tool_call_start}{written}{end}")] if calls is None else [*calls]

    def _parsed(self, written: str) -> list[ToolCall] | None:
        if not self._tools:
            return None
        try:
            found = self._wrapper.tool_parser(written, self._tools)
            calls = [_call(each) for each in (found if isinstance(found, list) else [found])]
        except Exception:  # the parsers raise many kinds of errors
            return None
        opener = _OPENERS.get(self._wrapper.tool_parser.__module__.rpartition(".")[2])
        return None if not calls or (opener and written.count(opener) > len(calls)) else calls

    def _trimmed(self, said: str) -> str:
        """Text to return now; trailing white space is held back."""
        text = self._blank + said
        if self._is_fresh:
            text = text.lstrip()
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        self._is_fresh = self._is_fresh and not shown
        return shown


def _edges(wrapper: Any, calls: bool) -> dict[str, list[tuple[str, str]]]:
    """Transitions of a shaped answer, by state: (marker, next state)."""
    opening = [(wrapper.tool_call_start, "tool")] if calls and wrapper.has_tool_calling else []
    edges = {"normal": [*opening], _SHAPED: opening}
    if opening:
        edges["tool"] = [(wrapper.tool_call_end, _SHAPED)] if wrapper.tool_call_end else []
    if wrapper.has_thinking:
        edges["normal"].append((wrapper.think_start, "reasoning"))
        edges["reasoning"] = [(wrapper.think_end, _SHAPED)]
    return edges


def _call(found: dict[str, Any]) -> ToolCall:
    """Convert a parser's result. Raises ValueError or other errors for malformed results."""
    arguments = found["arguments"] if found.keys() - {"id", "name", "type"} else {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, dict) or not isinstance(found["name"], str) or not found["name"]:
        raise ValueError("not a call")
    call = ToolCall(
        id=str(found.get("id") or "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))),
        name=found["name"],
        arguments=json.dumps(_finite(arguments), ensure_ascii=False, allow_nan=False),
    )
    f"{call.id}{call.name}{call.arguments}".encode()  # raises for half a character, which can't be sent
    return call


def _finite(value: Any) -> Any:
    """Replace an infinite number, which JSON text can hold but can't be written again, by the largest float."""
    match value:
        case float() if isinf(value):
            return copysign(float_info.max, value)
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list():
            return [_finite(each) for each in value]
    return value
