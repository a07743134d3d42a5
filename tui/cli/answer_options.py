"""The options of `macluster run` and `macluster demo` for one answer: sampling, limits and constraints."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from core.constraint import Constraint
from core.errors import UsageError
from core.requests.answers import ChatRequest, Message
from core.sampling_options import option_fields
from tui.client import check
from tui.state.answer_format import grammar_in, schema_in

PLAIN: Final = ChatRequest(messages=(), max_tokens=200)  # the defaults

_Struct = TypeVar("_Struct", bound=Struct)


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--ignore-chat-template", action="store_true", help="send the prompt as it is")
    shapes = command.add_argument_group("constrain the answer").add_mutually_exclusive_group()
    shapes.add_argument("--schema", type=Path, metavar="FILE", help="JSON that follows the JSON schema in FILE")
    shapes.add_argument("--regex", metavar="R", help="text that matches the regular expression R as a whole")
    grammar = "text that follows the grammar in FILE (llguidance's Lark)"
    shapes.add_argument("--grammar", type=Path, metavar="FILE", help=grammar)
    _add(command.add_argument_group("where the answer ends"), PLAIN)
    _add(command.add_argument_group("how each token is chosen"), PLAIN.sampling)


def request_of(prompt: str, args: argparse.Namespace) -> ChatRequest:
    """Build the request for `prompt`; raises UsageError for options that exclude each other."""
    if args.logprobs is not None and not args.json:
        raise UsageError("--logprobs needs --json.", "Add --json.")
    request = replace(
        _asked(PLAIN, args),
        messages=(Message(role="user", content=prompt),),
        sampling=_asked(PLAIN.sampling, args),
        raw=args.ignore_chat_template,
        constraint=_constraint_of(args),
    )
    check(request)
    return request


def asks_for_more(args: argparse.Namespace) -> bool:
    """Whether any option of `add_options` differs from its default."""
    plain = argparse.ArgumentParser()
    add_options(plain)
    return any(getattr(args, name) != value for name, value in vars(plain.parse_args([])).items())


def _add(group: argparse._ArgumentGroup, plain: Struct) -> None:
    for name, kind, option in option_fields(type(plain)):
        if option.help:
            flag, usual, (read, metavar) = f"--{name.replace('_', '-')}", getattr(plain, name), _TYPED[kind]
            often: dict[str, Any] = {"action": "append", "default": []} if kind in (dict, tuple) else {"default": usual}
            group.add_argument(flag, type=read, metavar=metavar, help=option.help, **often)


def _asked(plain: _Struct, args: argparse.Namespace) -> _Struct:
    changes = {}
    for name, kind, option in option_fields(type(plain)):
        if option.help:
            value = getattr(args, name)
            changes[name] = kind(value) if isinstance(value, list) else value
    return replace(plain, **changes)


def _constraint_of(args: argparse.Namespace) -> Constraint | None:
    """The chosen constraint, or None; raises UsageError for a file that can't be read or holds no schema."""
    if args.regex is not None:
        return Constraint(kind="regex", source=args.regex)
    if args.schema:
        return schema_in(args.schema)
    return grammar_in(args.grammar) if args.grammar else None


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def _bias(text: str) -> tuple[int, float]:
    token, _, value = text.partition("=")
    if not token.isascii() or not token.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a token id and a number, such as 42=-5")
    return int(token), _number(value)


# how each kind of value is written
_TYPED: Final[dict[type, tuple[Callable[[str], Any], str]]] = {
    float: (_number, "X"),
    int: (int, "N"),
    tuple: (str, "TEXT"),
    dict: (_bias, "ID=VALUE"),
}
