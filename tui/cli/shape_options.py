"""What an answer of `macluster run` must look like: a schema or a grammar from a file, or a regular expression."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from core.constraint import MAX_SOURCE, Constraint
from core.errors import UsageError


def add_options(command: argparse.ArgumentParser) -> None:
    """One of three."""
    group = command.add_argument_group("what the answer must look like").add_mutually_exclusive_group()
    group.add_argument("--schema", type=Path, metavar="FILE", help="a document of the JSON schema in FILE")
    group.add_argument("--regex", metavar="R", help="all of it is what the regular expression R describes")
    group.add_argument(
        "--grammar", type=Path, metavar="FILE", help="a text of the grammar in FILE, in llguidance's Lark"
    )


def constraint_of(args: argparse.Namespace) -> Constraint | None:
    """None where it may look like anything. Raises UsageError for a file that cannot be read, or holds no schema."""
    if args.regex is not None:
        return Constraint(kind="regex", source=args.regex)
    if args.schema:
        return Constraint(kind="json_schema", source=_schema(args.schema))
    return Constraint(kind="lark", source=_read(args.grammar)) if args.grammar else None


def _schema(file: Path) -> str:
    source = _read(file)
    try:
        if isinstance(json.loads(source), dict):
            return source
    except (ValueError, RecursionError):
        pass
    raise UsageError(f"{file} is no JSON schema: it holds no JSON object.", 'Such as {"type": "object"}.')


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as lines:
            source = lines.read(MAX_SOURCE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from error
    if len(source) > MAX_SOURCE:
        raise UsageError(f"{file} is longer than {MAX_SOURCE // 1024} KiB.")
    return source
