"""How answers are asked for, as a form: fields of text, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from core.errors import UsageError
from core.requests import ChatOptions, Sampling
from tui.client import check

STOP_BETWEEN: Final = "|"


class Field(NamedTuple):
    """`name` is that of the option; `limits` says in words what can be typed; an empty text is the default."""

    name: str
    label: str
    limits: str
    read: Callable[[str], Any]


def _stops(text: str) -> tuple[str, ...]:
    return tuple(part.replace("\\n", "\n") for part in text.split(STOP_BETWEEN) if part)


FIELDS: Final = (
    Field("temperature", "Temperature", "0 to 5; 0: the likeliest token each time", float),
    Field("top_p", "Top-p", "0 to 1; likeliest that sum to it; 0: off", float),
    Field("top_k", "Top-k", "so many of the likeliest; 0: off", int),
    Field("min_p", "Min-p", "0 to 1; share of the likeliest; 0: off", float),
    Field("repetition_penalty", "Repetition penalty", "to 10; above 1 repeats less; empty: off", float),
    Field("seed", "Seed", "the same tokens each time; empty: chance", int),
    Field("max_tokens", "Max tokens", "the answer ends after so many", int),
    Field("stop", "Stop texts", f"the answer ends before; {STOP_BETWEEN} between two", _stops),
    Field("system", "System prompt", "what the model is told before all else", str),
)

_OF_SAMPLING: Final = frozenset(Sampling.__struct_fields__)


def texts_of(options: ChatOptions) -> dict[str, str]:
    """What stands in each field."""
    return {field.name: _text(_value(options, field.name)) for field in FIELDS}


def options_of(texts: Mapping[str, str], before: ChatOptions) -> tuple[ChatOptions, dict[str, str]]:
    """What was typed, the rest as it was `before`; and for each field that is wrong, why."""
    options, wrong = before, {}
    for field in FIELDS:
        try:
            options = _with(options, field, texts[field.name])
        except ValueError:
            wrong[field.name] = "this is no whole number" if field.read is int else "this is no number"
        except UsageError as error:
            wrong[field.name] = _reason(error)
    return options, wrong


def _with(options: ChatOptions, field: Field, text: str) -> ChatOptions:
    """Raises ValueError for what cannot be read, UsageError for what is beyond the limits."""
    home = Sampling() if field.name in _OF_SAMPLING else ChatOptions()
    kept = text.strip() if field.read is not _stops else text
    value = field.read(kept) if kept else getattr(home, field.name)
    if isinstance(value, float) and value != value:
        raise ValueError
    if field.name in _OF_SAMPLING:
        changed = msgspec.structs.replace(
            options, sampling=msgspec.structs.replace(options.sampling, **{field.name: value})
        )
    else:
        changed = msgspec.structs.replace(options, **{field.name: value})
    check(changed)
    return changed


def _value(options: ChatOptions, name: str) -> object:
    return getattr(options.sampling if name in _OF_SAMPLING else options, name)


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return STOP_BETWEEN.join(part.replace("\n", "\\n") for part in value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _reason(error: UsageError) -> str:
    """The limit that msgspec names: "at most 5"."""
    said = str(error.__cause__).partition(" - at")[0].replace("`", "")
    for sign, words in (("<= ", "at most "), (">= ", "at least "), ("> ", "more than ")):
        if sign in said:
            return words + said.rpartition(sign)[2].removesuffix(".0")
    return said[:1].lower() + said[1:]
