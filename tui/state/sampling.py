"""How answers are asked for, as a form: fields of text, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from core.errors import UsageError
from core.requests.conversations import ChatOptions
from core.sampling_options import OptionField, Sampling, option_fields
from tui.client import check

STOP_BETWEEN: Final = "|"


def _stops(text: str) -> tuple[str, ...]:
    return tuple(part.replace("\\n", "\n") for part in text.split(STOP_BETWEEN) if part)


OF_SAMPLING: Final = tuple(field for field in option_fields(Sampling) if field.option.label)
FIELDS: Final = OF_SAMPLING + tuple(field for field in option_fields(ChatOptions) if field.option.label)
PRESET: Final = tuple(field.name for field in OF_SAMPLING if field.name != "seed")  # what a preset fills in

_READ: Final[dict[type, Callable[[str], Any]]] = {float: float, int: int, tuple: _stops, str: str}


def texts_of(options: ChatOptions) -> dict[str, str]:
    """What stands in each field."""
    return {field.name: _text(_value(options, field)) for field in FIELDS}


def options_of(texts: Mapping[str, str], before: ChatOptions) -> tuple[ChatOptions, dict[str, str]]:
    """What was typed, the rest as it was `before`; and for each field that is wrong, why."""
    options, wrong = before, {}
    for field in FIELDS:
        try:
            options = _with(options, field, texts[field.name])
        except ValueError:
            wrong[field.name] = "this is not a whole number" if field.kind is int else "this is not a number"
        except UsageError as error:
            wrong[field.name] = _reason(error)
    return options, wrong


def _with(options: ChatOptions, field: OptionField, text: str) -> ChatOptions:
    """Raises ValueError for what cannot be read, UsageError for what is beyond the limits."""
    home = Sampling() if field in OF_SAMPLING else ChatOptions()
    kept = text if field.kind is tuple else text.strip()
    value = _READ[field.kind](kept) if kept else getattr(home, field.name)
    if isinstance(value, float) and value != value:
        raise ValueError
    if field in OF_SAMPLING:
        changed = replace(options, sampling=replace(options.sampling, **{field.name: value}))
    else:
        changed = replace(options, **{field.name: value})
    check(changed)
    return changed


def _value(options: ChatOptions, field: OptionField) -> object:
    return getattr(options.sampling if field in OF_SAMPLING else options, field.name)


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
