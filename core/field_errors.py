"""Decode foreign JSON, and explain in plain words which value breaks its type's limits."""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from core.errors import UsageError

_PATH: Final = re.compile(r" - at `(?:key in )?\$([^`]*)`$")
_FIELD: Final = re.compile(r"[A-Za-z_]\w*")
_EXPECTED: Final = re.compile(r"Expected `([^`]+)`(?: of length)?(?: (<=|>=|<|>|==) (\S+?))?(?:, got `([^`]+)`)?$")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")
_HALF: Final = re.compile(
    rb"(?<!\\ud[89ab][0-9a-f]{2})\\ud[c-f][0-9a-f]{2}|\\ud[89ab][0-9a-f]{2}(?!\\ud[c-f])", re.IGNORECASE
)
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
_BOUNDS: Final = {">=": "at least {}", "<=": "at most {}", ">": "more than {}", "<": "less than {}", "==": "exactly {}"}
_UNITS: Final = {"str": " characters", "array": " entries", "object": " entries"}

_T = TypeVar("_T")


def decoded(raw: bytes, kind: type[_T], *, as_written: bool = False) -> _T:
    """Decode JSON. Raises UsageError; `as_written`: with the field's own name, for programs."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError as error:
        raise UsageError("The JSON is nested too deeply.") from error
    except UnicodeDecodeError as error:
        raise UsageError("The text is not UTF-8.") from error
    except msgspec.ValidationError as error:
        raise refusal(error, as_written=as_written) from error
    except msgspec.DecodeError as error:
        raise UsageError(_broken(raw, str(error))) from error


def check_known(raw: Any, value: object) -> None:
    """Raise UsageError if the builtins `raw` have a field that `value`, decoded from them, has not."""
    if isinstance(value, msgspec.Struct) and isinstance(raw, dict):
        tag = value.__struct_config__.tag_field
        names = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for name in raw:
            if name in names:
                check_known(raw[name], getattr(value, names[name]))
            elif name != tag:
                raise UsageError(f"{_spoken(name).capitalize()} is not supported.")
    elif isinstance(value, tuple):
        for each, decoded_one in zip(raw, value, strict=True):
            check_known(each, decoded_one)


def _broken(raw: bytes, said: str) -> str:
    """Say why bytes are not JSON."""
    if not raw.strip():
        return "The body is empty; it must be JSON."
    if half := _HALF.search(raw):
        return f"The JSON has half of a surrogate pair: {half[0].decode()} at byte {half.start()}."
    return f"{said.replace('Input data was truncated', 'The JSON ends too early')}."


def refusal(error: msgspec.MsgspecError, *, as_written: bool = False) -> UsageError:
    said = plain(error, as_written=as_written)
    return UsageError(f"{said}." if as_written else f"{said[0].upper()}{said[1:]}.")


def plain(error: msgspec.MsgspecError, *, as_written: bool = False) -> str:
    """Explain a msgspec error without a full stop: "top p must be at most 1". Names the field, not its path."""
    said = str(error)
    spoken = str if as_written else _spoken
    path = _PATH.search(said)
    said = said[: path.start()] if path else said
    if found := _MISSING.match(said):
        return f"{spoken(found[1])} is missing"
    fields = _FIELD.findall(path[1]) if path else []
    name = spoken(fields[-1]) if fields else "it"
    if found := _EXPECTED.match(said):
        return f"{name} must be {_wanted(found[1], found[2], found[3], found[4])}"
    if said.startswith("Invalid enum value "):
        return f"{name} cannot be {said.removeprefix('Invalid enum value ')}"
    if said == "Number out of range":
        return f"{name} is out of range"
    return f"{name} is malformed"


def _spoken(field: str) -> str:
    return field.replace("_", " ")


def _wanted(kind: str, sign: str | None, bound: str | None, came: str | None) -> str:
    if sign is None or bound is None:
        kinds = " or ".join(_KINDS.get(each, each) for each in kind.split(" | "))
        return f"{kinds}, not {_KINDS.get(came, came)}" if came else kinds
    limit = _BOUNDS[sign].format(bound.removesuffix(".0"))
    if kind in _UNITS:
        return f"{_KINDS[kind]} of {limit}{_UNITS[kind]}"
    return f"a whole number, {limit}" if kind == "int" else limit
