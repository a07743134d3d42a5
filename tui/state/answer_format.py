"""Answer formats as users type them: `schema FILE`, `regex R` or `grammar FILE`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from core.constraint import MAX_SOURCE, Constraint
from core.errors import UsageError
from core.text import clean_text

WORDS: Final = {"json_schema": "schema", "regex": "regex", "lark": "grammar"}
SHOWN: Final = 1000  # characters of a name, in one line


def schema_in(file: Path) -> Constraint:
    """The JSON schema in `file`. Raises UsageError if it can't be read or contains no schema."""
    source = _read(file)
    if not _is_object(source):
        raise UsageError(
            f"{file} isn't a JSON schema: it doesn't contain a JSON object.", 'A schema looks like {"type": "object"}.'
        )
    return Constraint(kind="json_schema", source=source)


def grammar_in(file: Path) -> Constraint:
    """The grammar in `file`. Raises UsageError."""
    return Constraint(kind="lark", source=_read(file))


def shape_of(text: str) -> Constraint:
    """A typed shape; a schema may be given inline. Raises UsageError."""
    word, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if rest and word == WORDS["regex"]:
        return Constraint(kind="regex", source=rest)
    if rest and word == WORDS["lark"]:
        return grammar_in(_file(rest))
    if rest and word == WORDS["json_schema"]:
        if rest.startswith("{") and _is_object(rest):
            return Constraint(kind="json_schema", source=rest)
        return schema_in(_file(rest))
    raise UsageError("Start with schema, regex or grammar.", "For example: schema person.json, or regex yes|no.")


def shape_text(shape: Constraint) -> str:
    return f"{WORDS[shape.kind]} {clean_text(' '.join(shape.source.splitlines()))}"[:SHOWN]


def _file(text: str) -> Path:
    try:
        file = Path(text).expanduser()
        if file.is_file():
            return file
    except (OSError, RuntimeError, ValueError):
        pass  # not a file name, or "~" with an unknown user
    raise UsageError(f"The file {clean_text(text)[:SHOWN]} doesn't exist.")


def _is_object(source: str) -> bool:
    try:
        return isinstance(json.loads(source), dict)
    except (ValueError, RecursionError):
        return False


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as lines:
            source = lines.read(MAX_SOURCE + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} can't be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from error
    if len(source) > MAX_SOURCE:
        raise UsageError(f"{file} is longer than {MAX_SOURCE // 1024} KiB.")
    return source
