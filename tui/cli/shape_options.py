"""The constraint options of `macluster run`: a JSON schema, a grammar or a regular expression."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.constraint import Constraint
from tui.state.answer_format import grammar_in, schema_in


def add_options(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("constrain the answer").add_mutually_exclusive_group()
    group.add_argument("--schema", type=Path, metavar="FILE", help="JSON that follows the JSON schema in FILE")
    group.add_argument("--regex", metavar="R", help="text that matches the regular expression R as a whole")
    group.add_argument(
        "--grammar", type=Path, metavar="FILE", help="text that follows the grammar in FILE (llguidance's Lark)"
    )


def constraint_of(args: argparse.Namespace) -> Constraint | None:
    """The chosen constraint, or None; raises UsageError for a file that can't be read or holds no schema."""
    if args.regex is not None:
        return Constraint(kind="regex", source=args.regex)
    if args.schema:
        return schema_in(args.schema)
    return grammar_in(args.grammar) if args.grammar else None
