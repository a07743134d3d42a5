"""Shape of an answer: a JSON schema, a regular expression or a grammar, as it travels with its request."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from core.numbers import TokenId

MAX_SOURCE: Final = 256 * 1024

Source = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SOURCE)]
Marker = Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=16)]


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """A grammar and its source text."""

    kind: Literal["json_schema", "regex", "lark"]
    source: Source  # JSON schema, regular expression, or llguidance's dialect of Lark


class Constraint(Grammar, frozen=True, kw_only=True):
    """A grammar for one answer. Reasoning is free: the grammar starts after `think_end`, if there is one."""

    think_start: Marker = ()  # tokens that open the reasoning, if the answer has any
    think_end: Marker = ()  # tokens that close it
