"""Prefixes of ended requests, kept in memory for prompts that start the same way.

Every stage keeps them under plain handles, as it keeps running rows, and they share the plan's memory: running rows
take precedence, and the least recently used prefixes are dropped as they grow. Written tokens of an answer that
continues count as prompt. Where prompts branch, the common prefix is copied, from a running row or from a cached one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from core.engine.requests import Request
from core.engine.ring_work import Copy, Drop, New, Op, Restore, Trim
from core.errors import Busy

LEAST_REUSED: Final = 4
BLOCK: Final = 256


class CachedPrefix(NamedTuple):
    """A cached row: `handle` holds `tokens`."""

    handle: int
    tokens: tuple[int, ...]


class Lent(NamedTuple):
    """A running row that holds `tokens`; `copied` makes the op that copies it, given the new handle."""

    tokens: tuple[int, ...]
    copied: Callable[[int], Op]


class Opened(NamedTuple):
    """A new row: `ops` make `handle`, which then holds the first `reused` tokens of its prompt."""

    ops: list[Op]
    handle: int
    reused: int


class _Found(NamedTuple):
    """A row to reuse for `common` tokens, cached under the handle `parked` or lent; `is_whole`: those are all of it."""

    common: int
    is_whole: bool
    row: Lent
    parked: int | None = None


def tokens_of(request: Request) -> int:
    """The most memory that the row of `request` may take, in tokens: prompt and whole answer."""
    return len(request.tokens) + request.max_tokens


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    at, most = 0, min(len(one), len(other))
    while at < most and one[at : at + BLOCK] == other[at : at + BLOCK]:
        at += BLOCK
    return next((n for n in range(at, min(at + BLOCK, most)) if one[n] != other[n]), min(at + BLOCK, most))


class PrefixCache:
    """Up to `rows` cached rows, which share `context` tokens of memory with the running ones.

    Callers pass what running rows take now (`running`) and may take later (`reserved`). Caches can be trimmed while
    they hold fewer tokens than `trim_limit`; None: always. `handles` numbers new rows. Pinned and arriving rows are
    neither changed nor dropped.
    """

    def __init__(self, rows: int, context: int, trim_limit: int | None, handles: Iterator[int]) -> None:
        self._most_rows, self._context, self._trim_limit, self._handles = rows, context, trim_limit, handles
        self._parked: dict[int, CachedPrefix] = {}  # least recently used first
        self._pins: Counter[int] = Counter()
        self._arriving: set[int] = set()
        self._undropped = 0  # tokens of rows that are still in memory until dropped

    @property
    def rows(self) -> tuple[CachedPrefix, ...]:
        return tuple(parked for handle, parked in self._parked.items() if handle not in self._arriving)

    def can_trim(self, tokens: int) -> bool:
        return self._trim_limit is None or tokens < self._trim_limit

    def fits(self, tokens: int, reserved: int) -> bool:
        """Whether a row of `tokens` can run now, once cached rows are dropped for it; alone it runs at any size."""
        others = reserved + self._pinned()
        return not others or others + tokens <= self._context

    @property
    def has_pins(self) -> bool:
        return bool(self._pins)

    @property
    def room(self) -> int:
        """The most that running rows may take, in tokens."""
        return self._context - self._pinned()

    def reusable(self, request: Request, lent: Sequence[Lent] = ()) -> int:
        found = self._longest(request, lent)
        return found.common if found else 0

    def branch(self, request: Request, lent: Sequence[Lent]) -> int:
        """Length of the longest common prefix with another row, even if no row can be trimmed to it."""
        start = _start(request)
        rows = (*(parked.tokens for parked in self.rows), *(row.tokens for row in lent))
        return max((common_prefix(tokens, start) for tokens in rows), default=0)

    def open(self, request: Request, running: int, lent: Sequence[Lent] = ()) -> Opened:
        """The row of a request that fits, with as much of its prompt as is in memory. A cached row that the prompt
        continues is taken over if it can be trimmed back after the request; else it stays and is copied, as is a row
        with only a useful prefix. If memory does not hold both, it is taken over when that loses fewer tokens than
        dropping others.
        """
        found = self._longest(request, lent)
        room = self._context - running - len(request.prefix)
        source = found.parked if found else None
        if source is not None:
            self._use(source)
        if found and source is not None and self._is_taken_over(found, source, request, room):
            self._forget(source)
            ops, handle = self._evict(room), source
        else:
            ops, handle = self._evict(room), next(self._handles)
            ops.append(found.row.copied(handle) if found else New(handle))
        if found and not found.is_whole:
            ops.append(Trim(handle, len(found.row.tokens) - found.common))
        return Opened(ops, handle, found.common if found else 0)

    def make_room(self, running: int) -> list[Op]:
        return self._evict(self._context - running)

    def leaves_room(self, running: int) -> bool:
        return self._tokens + self._undropped + running <= self._context

    def dropped(self) -> None:
        self._undropped = 0

    def park(self, handle: int, tokens: tuple[int, ...], running: int) -> list[Op]:
        if not self._is_wanted(tokens, running):
            self._undropped += len(tokens)
            return [Drop(handle)]
        return self._add(CachedPrefix(handle, tokens), running)

    def snapshot(self, copied: Callable[[int], Op], tokens: tuple[int, ...], running: int) -> list[Op]:
        """Cache a copy of a running row, if it is useful: it can't be trimmed back to this prefix later."""
        if not self._is_wanted(tokens, running):
            return []
        copy = next(self._handles)
        return [*self._add(CachedPrefix(copy, tokens), running), copied(copy)]

    def hold(self, tokens: tuple[int, ...], reserved: int) -> tuple[CachedPrefix, list[Op]]:
        """A row whose caches come from elsewhere, pinned and unused until `settle`. Raises Busy."""
        if not self._has_room(len(tokens), reserved):
            raise Busy("The running answers leave no memory for a saved conversation. Load it when they have ended.")
        parked = CachedPrefix(next(self._handles), tokens)
        ops = self._add(parked, reserved)
        self._arriving.add(parked.handle)
        self._pins[parked.handle] += 1
        return parked, [*ops, Restore(parked.handle, len(tokens))]

    def settle(self, handle: int) -> None:
        if handle in self._arriving:
            self._arriving.discard(handle)
            self.unpin(handle)
            self._use(handle)

    def pin(self, handle: int, reserved: int) -> None:
        """Keep a row unchanged until `unpin`, as often. Raises KeyError, Busy if running rows may need its memory."""
        parked = self._parked[handle]
        if not self._pins[handle] and reserved + self._pinned() + len(parked.tokens) > self._context:
            raise Busy("The running answers may need the memory of this conversation. Save it when they have ended.")
        self._pins[handle] += 1

    def unpin(self, handle: int) -> None:
        self._pins -= Counter((handle,))

    def lose(self, handles: Collection[int]) -> list[Op]:
        lost = [handle for handle in self._parked if handle in handles]
        for handle in lost:
            self._undropped += len(self._parked[handle].tokens)
            self._forget(handle)
        return [*map(Drop, lost)]

    def clear(self) -> None:
        self._undropped = 0
        self._parked.clear()
        self._pins.clear()
        self._arriving.clear()

    def _longest(self, request: Request, lent: Sequence[Lent]) -> _Found | None:
        start = _start(request)
        cached = [(Lent(row.tokens, partial(Copy, of=row.handle)), row.handle) for row in reversed(self.rows)]
        found = [self._found(row, start, handle) for row, handle in (*cached, *((row, None) for row in lent))]
        useful = [each for each in found if each.common >= LEAST_REUSED]
        return max(useful, key=lambda each: (each.common, each.parked is not None, each.is_whole), default=None)

    def _found(self, row: Lent, start: tuple[int, ...], parked: int | None) -> _Found:
        common = common_prefix(row.tokens, start)
        is_whole = common == len(row.tokens)
        return _Found(common if is_whole or self.can_trim(len(row.tokens)) else 0, is_whole, row, parked)

    def _is_taken_over(self, found: _Found, source: int, request: Request, room: int) -> bool:
        if self._pins[source]:
            return False
        if found.is_whole and self.can_trim(tokens_of(request) - 1):
            return True  # it can be trimmed back when the request has ended
        leaving = self._leaving(room)
        lost = sum(self._only_here(handle, 0) for handle in leaving)
        return source in leaving or self._only_here(source, found.common) < lost

    def _only_here(self, handle: int, kept: int) -> int:
        """How many tokens would have to be read again if this row left, though its first `kept` tokens stay."""
        tokens = self._parked[handle].tokens
        if not self.can_trim(len(tokens)):
            return len(tokens)
        others = (common_prefix(tokens, other.tokens) for other in self._parked.values() if other.handle != handle)
        return len(tokens) - max(kept, *others, 0)

    def _is_wanted(self, tokens: tuple[int, ...], running: int) -> bool:
        """Whether it is long enough, unlike any other, and there is room for it."""
        same = next((parked.handle for parked in self._parked.values() if parked.tokens == tokens), None)
        if same is not None:
            self._use(same)
        return same is None and len(tokens) >= LEAST_REUSED and self._has_room(len(tokens), running)

    def _has_room(self, tokens: int, running: int) -> bool:
        return running + self._pinned() + tokens <= self._context and len(self._pins) < self._most_rows

    @property
    def _tokens(self) -> int:
        return sum(len(parked.tokens) for parked in self._parked.values())

    def _pinned(self) -> int:
        return sum(len(self._parked[handle].tokens) for handle in self._pins)

    def _add(self, parked: CachedPrefix, running: int) -> list[Op]:
        self._parked[parked.handle] = parked
        return self._evict(self._context - running)

    def _evict(self, room: int) -> list[Op]:
        return self.lose(self._leaving(room))

    def _leaving(self, room: int) -> list[int]:
        leaving: list[int] = []
        taken = self._tokens
        for handle, parked in self._parked.items():
            if taken <= room and len(self._parked) - len(leaving) <= self._most_rows:
                break
            if not self._pins[handle]:
                leaving.append(handle)
                taken -= len(parked.tokens)
        return leaving

    def _use(self, handle: int) -> None:
        self._parked[handle] = self._parked.pop(handle)

    def _forget(self, handle: int) -> None:
        self._parked.pop(handle, None)
        self._arriving.discard(handle)
        del self._pins[handle]


def _start(request: Request) -> tuple[int, ...]:
    """The reusable part of a prompt: without the last token, which chooses the first one; none for prompt logprobs."""
    return () if request.scores_prompt else tuple(request.prefix[:-1])
