"""What an answer has to look like: a JSON schema, a regular expression or a grammar, as it travels with its request."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from core.numbers import TokenId

MAX_SOURCE: Final = 256 * 1024

Source = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SOURCE)]
Marker = Annotated[tuple[TokenId, ...], msgspec.Meta(max_length=16)]


class Grammar(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All texts of one shape. `source`: a JSON schema as text, a regular expression, or a grammar in llguidance's form
    of Lark.
    """

    kind: Literal["json_schema", "regex", "lark"]
    source: Source


class Constraint(Grammar, frozen=True, kw_only=True):
    """The grammar of one answer, as the tokens of its model know it. What the model thinks is free: the grammar begins
    behind the tokens `think_end`, where there are any; with `think_start` only if the answer begins with that, which it
    may.
    """

    think_start: Marker = ()
    think_end: Marker = ()
