"""The form of the chat settings: text fields, and the options they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from core.constraint import Constraint
from core.errors import UsageError
from core.requests.conversations import ChatOptions
from core.sampling_options import OptionField, Sampling, option_fields
from tui.client import check
from tui.state.answer_format import shape_of, shape_text

STOP_BETWEEN: Final = "|"


def _stops(text: str) -> tuple[str, ...]:
    return tuple(part.replace("\\n", "\n") for part in text.split(STOP_BETWEEN) if part)


def _bias(text: str) -> dict[int, float]:
    return {int(token): float(value) for token, _, value in (part.partition("=") for part in text.split(","))}


OF_SAMPLING: Final = tuple(field for field in option_fields(Sampling) if field.name != "logprobs")
TYPED: Final = (*OF_SAMPLING, *option_fields(ChatOptions))
FIELDS: Final = tuple(field for field in TYPED if field.option.label)
# fields that a preset sets
PRESET: Final = tuple(field.name for field in FIELDS if field in OF_SAMPLING and field.name != "seed")

_READ: Final[dict[type, Callable[[str], Any]]] = {
    float: float,
    int: int,
    tuple: _stops,
    str: str,
    dict: _bias,
    Constraint: shape_of,
}


def texts_of(options: ChatOptions, fields: Iterable[OptionField] = FIELDS) -> dict[str, str]:
    homes = ((field.name, options.sampling if field in OF_SAMPLING else options) for field in fields)
    return {name: _text(getattr(home, name)) for name, home in homes}


def options_of(texts: Mapping[str, str], before: ChatOptions) -> tuple[ChatOptions, dict[str, str]]:
    """The typed options (the rest as `before`), and why a field is wrong, by field."""
    options, wrong, shown = before, {}, texts_of(before)
    for field in FIELDS:
        if texts[field.name] == shown[field.name]:
            continue
        try:
            options = _with(options, field, texts[field.name])
        except (ValueError, UsageError) as error:
            wrong[field.name] = _reason(field, error)
    return options, wrong


def with_option(options: ChatOptions, name: str, text: str) -> ChatOptions:
    """Set one of `TYPED` by its name; an empty text is its default. Raises UsageError."""
    field = next((each for each in TYPED if each.name == name.replace("-", "_")), None)
    if field is None:
        raise UsageError(f"Unknown option {name}.", f"Known: {', '.join(each.name for each in TYPED)}.")
    try:
        return _with(options, field, text)
    except (ValueError, UsageError) as error:
        raise UsageError(f"{field.name}: {_reason(field, error)}.", field.option.hint) from error


def _with(options: ChatOptions, field: OptionField, text: str) -> ChatOptions:
    """Raises ValueError for unreadable text, UsageError for values out of range."""
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


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{token}={bias:g}" for token, bias in value.items())
    if isinstance(value, Constraint):
        return shape_text(value)
    if isinstance(value, tuple):
        return STOP_BETWEEN.join(part.replace("\n", "\\n") for part in value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _reason(field: OptionField, error: ValueError | UsageError) -> str:
    if isinstance(error, ValueError):
        return "not a whole number" if field.kind is int else "not a number"
    if field.kind is Constraint:
        return error.what.removesuffix(".")
    said = str(error.__cause__).partition(" - at")[0].replace("`", "")
    for sign, words in (("<= ", "at most "), (">= ", "at least "), ("> ", "more than ")):
        if sign in said:
            return words + said.rpartition(sign)[2].removesuffix(".0")
    return said[:1].lower() + said[1:]
