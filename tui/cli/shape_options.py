"""What an answer of `macluster run` must look like: a schema or a grammar from a file, or a regular expression."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.constraint import Constraint
from tui.state.answer_format import grammar_in, schema_in


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
        return schema_in(args.schema)
    return grammar_in(args.grammar) if args.grammar else None
