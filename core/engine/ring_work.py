"""Work that the head puts on the ring, as values: compositions, prompt chunks, steps of a lane.

A *handle* is a number for rows that run together. Every stage keeps the caches of its own layers under it, and the same
compositions in the same order keep all stages alike, without messages about cache contents. A handle is plain (one row,
mlx-lm's ordinary caches) or batched (one row or more, mlx-lm's batch caches).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

Handle = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Op(msgspec.Struct, frozen=True, array_like=True, tag=""):
    """Base of the ops of a composition; a msgpack array on the wire."""


class New(_Op, frozen=True, array_like=True, tag="New"):
    """`handle` names one new row with empty plain caches."""

    handle: Handle


class Restore(_Op, frozen=True, array_like=True, tag="Restore"):
    """`handle` names one new row that holds `tokens` tokens; its plain caches follow one by one."""

    handle: Handle
    tokens: Count


class Merge(_Op, frozen=True, array_like=True, tag="Merge"):
    """`into` names a batch of the plain rows `rows`, in this order; their handles are used up. `into` may be one."""

    into: Handle
    rows: tuple[Handle, ...]


class Extend(_Op, frozen=True, array_like=True, tag="Extend"):
    """Append the rows of batch `more` to those of batch `into`; `more` is used up."""

    into: Handle
    more: Handle


class Keep(_Op, frozen=True, array_like=True, tag="Keep"):
    """Keep these rows of batch `handle`, at least one, in this order."""

    handle: Handle
    rows: tuple[Count, ...]


class Copy(_Op, frozen=True, array_like=True, tag="Copy"):
    """`into` names a copy of `of`, plain or batched; neither changes with the other."""

    into: Handle
    of: Handle


class Extract(_Op, frozen=True, array_like=True, tag="Extract"):
    """`into` names row `row` of batch `of` as a plain row; `of` stays as it is."""

    into: Handle
    of: Handle
    row: Count


class Trim(_Op, frozen=True, array_like=True, tag="Trim"):
    """Forget the last `count` tokens of every row; only where the caches can be trimmed."""

    handle: Handle
    count: Count


class PrepareRows(_Op, frozen=True, array_like=True, tag="PrepareRows"):
    """mlx-lm's `prepare`: pass the padding of each row to the batch caches."""

    handle: Handle
    left_padding: tuple[Count, ...] | None = None
    lengths: tuple[Count, ...] | None = None
    right_padding: tuple[Count, ...] | None = None


class Finalise(_Op, frozen=True, array_like=True, tag="Finalise"):
    """mlx-lm's `finalize`: the right padding becomes left padding."""

    handle: Handle


class Drop(_Op, frozen=True, array_like=True, tag="Drop"):
    """Forget `handle`, if it exists."""

    handle: Handle


Op = New | Restore | Merge | Extend | Keep | Copy | Extract | Trim | PrepareRows | Finalise | Drop


class Compose(msgspec.Struct, frozen=True):
    """Change the rows under the handles on every stage, between the work before and after it."""

    ops: tuple[Op, ...]


class Chunk(msgspec.Struct, frozen=True):
    """Prompt tokens [position, position + len) of each of `requests`, in the order of the handle's rows; no logits."""

    requests: tuple[str, ...]
    handle: int
    positions: tuple[int, ...]
    tokens: tuple[Sequence[int], ...]

    @property
    def read(self) -> tuple[int, ...]:
        """Tokens of each prefix that are read after this chunk."""
        return tuple(position + len(self.tokens[0]) for position in self.positions)


class Step(msgspec.Struct, frozen=True):
    """One token of each row of a lane; the logits after them choose the next tokens.

    If the lane is one plain row, `drafts` go with its token and count if the logits confirm them. A step that goes
    ahead has no `tokens`: it feeds the unread choices of the step before it.
    """

    handle: int
    requests: tuple[str, ...]
    tokens: tuple[int, ...]
    drafts: tuple[int, ...] = ()


Work = Compose | Chunk | Step
