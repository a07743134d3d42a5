"""Splits a model's answer into text, reasoning and tool calls, as the model's family writes them."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Iterator, Mapping, Sequence
from math import copysign, isinf
from sys import float_info
from typing import Any, Final

from core.answer_parts import AnswerPart, ReasoningPart, TextPart, Tool, ToolCall
from core.models.text.call_forms import CallForm, Found, is_closed, template_of
from core.models.text.template_values import spec_of

_ID_LETTERS: Final = string.ascii_letters + string.digits
_ID_LENGTH: Final = 9  # required in a history by Mistral's templates
_KEYS: Final = ("name", "type", "function", "parameters", "arguments", "id")  # of a call without an opening
Kind = type[TextPart] | type[ReasoningPart]
_FIRST_KEY: Final = re.compile(r'\{\s*(?:"(\w*)("?))?')
_KINDS: Final[dict[str, Kind]] = {"normal": TextPart, "reasoning": ReasoningPart}
# marks around the text of Cohere's answers
_FRAMES: Final = ("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>")
# by state: the marks that end it, with the next state
Edges = Mapping[str, Mapping[str, str]]


class AnswerReader:
    """Reads answers whose reasoning and calls stand between marks. It begins in the state `begins`.

    White space between parts is dropped. A call counts if it can be read and its tool is one of `tools`; else it is
    text. Its end is the first closing mark before which it can be read. Tags for reasoning count only before the first
    words.
    """

    def __init__(self, edges: Edges, form: CallForm, begins: str, tools: Sequence[Tool]) -> None:
        self._edges, self._form, self._state = edges, form, begins
        self._tools = [spec_of(tool) for tool in tools]
        self._words = Words(is_fresh=begins == "reasoning")
        self._rest = self._opening = ""
        self._back = begins  # state before the call
        self._tried = 0  # characters of a call that don't read as one
        self._has_said = False

    def read(self, text: str) -> list[AnswerPart]:
        """The parts that this text completes."""
        self._rest += text
        return list(self._parts(None))

    def end(self, is_whole: bool) -> list[AnswerPart]:
        """The held-back rest. A call cut off by the end of an answer that isn't `is_whole` counts as text."""
        parts = list(self._parts(is_whole))
        if self._state in _KINDS:
            parts += self._say(self._rest)
        return parts + (self._words.end() if self._state == "normal" else [])

    def _parts(self, is_whole: bool | None) -> Iterator[AnswerPart]:
        """Read on; `is_whole` is None before the end of the answer."""
        while True:
            if self._state == "call":
                calls = self._calls(is_whole)
                if calls is None:
                    return
                yield from calls or self._said_opening()
            elif self._form.is_bare and self._tools and not self._has_said and self._state == "normal":
                match _begins_call(self._rest):
                    case None if is_whole is None:
                        return
                    case True:
                        self._open("")
                        continue
            text, mark, self._rest = split_at(self._rest, tuple(self._edges.get(self._state, ())))
            yield from self._say(text)
            if not mark:
                return
            yield from self._cross(mark)

    def _cross(self, mark: str) -> Iterator[AnswerPart]:
        state = self._edges[self._state][mark]
        if state == "call":
            self._open(mark)
        elif state == "reasoning" and self._has_said and mark[1:2].isalpha():
            yield from self._say(mark)
        else:
            if "reasoning" in (state, self._state):
                self._words.begin()
            self._state = state

    def _open(self, mark: str) -> None:
        self._opening, self._back, self._state, self._tried = mark, self._state, "call", 0

    def _calls(self, is_whole: bool | None) -> list[AnswerPart] | None:
        """The calls at the beginning of the rest; empty if it is no call, None if that isn't known yet."""
        form, rest = self._form, self._rest
        while form.closing and (at := rest.find(form.closing, self._tried)) >= 0:
            self._tried = at + len(form.closing)
            if form.is_json and not is_closed(rest[:at]):
                continue
            if (calls := self._parsed(rest[:at], rest[self._tried :])) or form.is_json:
                return calls
        begin = rest[:64].lstrip()
        if form.is_json and begin and begin[0] not in "{[":
            return []
        if is_whole is None:
            return None
        return self._parsed(rest, "") if is_whole else []

    def _said_opening(self) -> Iterator[AnswerPart]:
        if self._state == "call":
            self._state, self._has_said = self._back, self._has_said or self._back == "normal"
            yield from self._say(self._opening)

    def _parsed(self, written: str, rest: str) -> list[AnswerPart]:
        """The calls in `written`; if there are any, reading goes on with `rest`."""
        try:
            calls = offered_calls(self._form.parse(written, self._tools), self._tools)
        except Exception:  # the parsers raise many kinds of errors
            return []
        if calls:
            self._state, self._rest = "normal", rest
            self._words.begin()
        return [*calls]

    def _say(self, text: str) -> list[AnswerPart]:
        self._has_said = self._has_said or (self._state == "normal" and bool(text.strip()))
        return self._words.say(_KINDS[self._state], text) if self._state in _KINDS else []


class Words:
    """Drops white space around parts: at the beginning of each, and at its end until more words come."""

    def __init__(self, *, is_fresh: bool) -> None:
        self._is_fresh, self._blank = is_fresh, ""

    def begin(self) -> None:
        self._is_fresh, self._blank = True, ""

    def say(self, kind: Kind, said: str) -> list[AnswerPart]:
        text = self._blank + (said.lstrip() if self._is_fresh else said)
        shown = text.rstrip()
        self._blank = text[len(shown) :]
        self._is_fresh = self._is_fresh and not shown
        return [kind(shown)] if shown else []

    def end(self) -> list[AnswerPart]:
        return [TextPart(self._blank)] if self._blank and not self._is_fresh else []


def split_at(text: str, marks: Sequence[str]) -> tuple[str, str, str]:
    """Text before the first of `marks`, that mark, the rest. Without one: text, "", an end that may begin a mark."""
    found = min(((at, -len(mark), mark) for mark in marks if (at := text.find(mark)) >= 0), default=None)
    if found:
        at, _, mark = found
        return text[:at], mark, text[at + len(mark) :]
    sizes = range(min(max(map(len, marks), default=1) - 1, len(text)), 0, -1)
    held = next((size for size in sizes if any(mark.startswith(text[-size:]) for mark in marks)), 0)
    return text[: len(text) - held], "", text[len(text) - held :]


def edges_of(wrapper: Any, form: CallForm, has_tools: bool) -> Edges:
    """The marks of a family's answers; `wrapper` is mlx-lm's."""
    edges: dict[str, dict[str, str]] = {"normal": {}, "reasoning": {}}
    moves = wrapper.response_transitions
    if wrapper.has_thinking:
        edges["normal"][wrapper.think_start] = "reasoning"
        edges["reasoning"][wrapper.think_end] = "normal"
    if has_tools and not any(form.opening in dict(each) for each in moves.values()):
        edges["normal"][form.opening] = edges["reasoning"][form.opening] = "call"
    frames = [mark for mark in _FRAMES if mark in template_of(wrapper)]
    edges["normal"] |= dict.fromkeys([*frames, *wrapper.structural_markers], "normal")
    for state, each in moves.items():
        known = {mark: "call" if then == "tool" else then for mark, then in each if then != "tool" or has_tools}
        edges[state] = edges.get(state, {}) | known
    return edges


def offered_calls(found: Sequence[Found], tools: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """The calls. Raises ValueError or other errors for one that is malformed or names none of `tools`."""
    names = {tool["function"]["name"] for tool in tools}
    calls = [_call(each) for each in found]
    if not all(call.name in names for call in calls):
        raise ValueError("no such tool")
    return calls


def _begins_call(text: str) -> bool | None:
    """Whether an answer begins like a call in JSON; None if that isn't known yet."""
    if not (text := text.lstrip()):
        return None
    if not (found := _FIRST_KEY.match(text)):
        return False
    key, end = found.groups()
    if end:
        return key in _KEYS
    if found.end() < len(text):
        return False
    return None if key is None or any(each.startswith(key) for each in _KEYS) else False


def _call(found: Found) -> ToolCall:
    """Convert a parser's result. Raises ValueError or other errors for malformed results."""
    arguments = found["arguments"] if found.keys() - {"id", "name", "type"} else {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments, strict=False)
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
