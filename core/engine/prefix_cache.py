"""Rows that no request runs any more, kept for the prompts that begin as they do.

Every stage keeps them under plain handles, as it keeps those that run, and they share the memory of the plan: whatever
runs goes first, and those that were not used for the longest time make room for it, as it grows. What is written of an
answer that goes on counts as prompt: a row may hold some of that too. Where prompts branch, the beginning that they
have in common is copied, from a row that runs as well as from one at rest.
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
    """A row at rest: `handle` holds `tokens`."""

    handle: int
    tokens: tuple[int, ...]


class Lent(NamedTuple):
    """A row that runs and holds `tokens`; `copied`: what makes a copy of it under a handle."""

    tokens: tuple[int, ...]
    copied: Callable[[int], Op]


class Opened(NamedTuple):
    """A row that begins: `ops` make `handle`, which then holds the first `reused` tokens of its prompt."""

    ops: list[Op]
    handle: int
    reused: int


class _Found(NamedTuple):
    """`common`: tokens that a prompt can take from a row of `tokens`, which is `parked` or runs and is `lent`;
    `is_whole`: all that it holds.
    """

    common: int
    is_whole: bool
    tokens: tuple[int, ...]
    parked: CachedPrefix | None = None
    lent: Lent | None = None


def tokens_of(request: Request) -> int:
    """Memory that the row of `request` may come to take, in tokens: prompt and whole answer."""
    return len(request.tokens) + request.max_tokens


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many tokens both begin; they are of the same type."""
    at, most = 0, min(len(one), len(other))
    while at < most and one[at : at + BLOCK] == other[at : at + BLOCK]:
        at += BLOCK
    return next((n for n in range(at, min(at + BLOCK, most)) if one[n] != other[n]), min(at + BLOCK, most))


class PrefixCache:
    """At most `rows` rows, which take `context` tokens of memory together with those that run: they take `running` now,
    and may come to take `reserved`.

    Their caches can be trimmed while they hold fewer tokens than `trim_limit`; None: always. New rows are numbered by
    `handles`. What is pinned, or still arrives, is neither changed nor made to leave.
    """

    def __init__(self, rows: int, context: int, trim_limit: int | None, handles: Iterator[int]) -> None:
        self._most_rows, self._context, self._trim_limit, self._handles = rows, context, trim_limit, handles
        self._parked: dict[int, CachedPrefix] = {}  # the one that was used last is last
        self._pins: Counter[int] = Counter()
        self._arriving: set[int] = set()
        self._undropped = 0  # tokens of rows that left, and are still in memory

    @property
    def rows(self) -> tuple[CachedPrefix, ...]:
        """Rows that a prompt may reuse, the newest last."""
        return tuple(parked for handle, parked in self._parked.items() if handle not in self._arriving)

    def can_trim(self, tokens: int) -> bool:
        return self._trim_limit is None or tokens < self._trim_limit

    def fits(self, request: Request, reserved: int) -> bool:
        """Whether it may run now, once others have left for it; alone it runs however large it is."""
        others = reserved + self._pinned()
        return not others or others + tokens_of(request) <= self._context

    def reusable(self, request: Request, lent: Sequence[Lent] = ()) -> int:
        """How many tokens of its beginning a row here holds, or one that is `lent`."""
        found = self._longest(request, lent)
        return found.common if found else 0

    def branch(self, request: Request, lent: Sequence[Lent]) -> int:
        """With how many tokens another row begins as well, though no row can be cut to them."""
        start = _start(request)
        rows = (*(parked.tokens for parked in self.rows), *(row.tokens for row in lent))
        return max((common_prefix(tokens, start) for tokens in rows), default=0)

    def open(self, request: Request, running: int, lent: Sequence[Lent] = ()) -> Opened:
        """The row of a request that fits, with as much of its prompt as there is.

        A row that the prompt continues is taken over, if it can be trimmed to what it is now when the request has
        ended; else it stays, and is copied, as is one of which only a beginning is of use. Where there is no room for
        both, it is taken over if that loses less than what would leave for it.
        """
        found = self._longest(request, lent)
        if found and found.parked:
            self._use(found.parked.handle)
        room = self._context - running - len(request.prefix)
        source = found.parked.handle if found and found.parked else None
        if found and source is not None and self._is_taken_over(found, request, room):
            self._forget(source)
            ops: list[Op] = [*map(Drop, self._evict(room))]
            handle = source
        else:
            ops, handle = [*map(Drop, self._evict(room))], next(self._handles)
            ops.append(_copied(found)(handle) if found else New(handle))
        if found and not found.is_whole:
            ops.append(Trim(handle, len(found.tokens) - found.common))
        return Opened(ops, handle, found.common if found else 0)

    def make_room(self, running: int) -> list[Op]:
        """Drop rows for `running` tokens of those that run."""
        return [*map(Drop, self._evict(self._context - running))]

    def leaves_room(self, running: int) -> bool:
        """Whether there is room before rows that left are dropped."""
        return self._tokens + self._undropped + running <= self._context

    def dropped(self) -> None:
        """Note that rows that left are out of memory."""
        self._undropped = 0

    def park(self, handle: int, tokens: tuple[int, ...], running: int) -> list[Op]:
        """Keep a row that has ended, if it is of use."""
        if not self._is_wanted(tokens, running):
            self._undropped += len(tokens)
            return [Drop(handle)]
        return self._add(CachedPrefix(handle, tokens), running)

    def snapshot(self, copied: Callable[[int], Op], tokens: tuple[int, ...], running: int) -> list[Op]:
        """Keep a copy of a row that goes on, if it is of use: it cannot be trimmed to this when it has ended. `copied`:
        what makes one of it under a handle.
        """
        if not self._is_wanted(tokens, running):
            return []
        copy = next(self._handles)
        return [*self._add(CachedPrefix(copy, tokens), running), copied(copy)]

    def hold(self, tokens: tuple[int, ...], reserved: int) -> tuple[CachedPrefix, list[Op]]:
        """A row that comes from elsewhere; it is pinned, and of no use, until it is settled. Raises Busy."""
        if not self._has_room(len(tokens), reserved):
            raise Busy("What runs leaves no memory for a saved conversation: load it when the answers have ended.")
        parked = CachedPrefix(next(self._handles), tokens)
        ops = self._add(parked, reserved)
        self._arriving.add(parked.handle)
        self._pins[parked.handle] += 1
        return parked, [*ops, Restore(parked.handle, len(tokens))]

    def settle(self, handle: int) -> None:
        """All of a row from elsewhere is there: from now on it is as any other."""
        if handle in self._arriving:
            self._arriving.discard(handle)
            self.unpin(handle)
            self._use(handle)

    def pin(self, handle: int, reserved: int) -> None:
        """Keep it as it is until it is unpinned as often. Raises KeyError where it is not here, and Busy where those
        that run may come to need its memory.
        """
        parked = self._parked[handle]
        if not self._pins[handle] and reserved + self._pinned() + len(parked.tokens) > self._context:
            raise Busy("What runs may need the memory of this conversation: save it when the answers have ended.")
        self._pins[handle] += 1

    def unpin(self, handle: int) -> None:
        """The reverse of `pin`; nothing where the row was lost meanwhile."""
        self._pins -= Counter((handle,))

    def lose(self, handles: Collection[int]) -> list[Op]:
        """Give up those of `handles` that are here."""
        lost = [handle for handle in self._parked if handle in handles]
        for handle in lost:
            self._undropped += len(self._parked[handle].tokens)
            self._forget(handle)
        return [*map(Drop, lost)]

    def clear(self) -> None:
        """Nothing is parked."""
        self._undropped = 0
        self._parked.clear()
        self._pins.clear()
        self._arriving.clear()

    def _longest(self, request: Request, lent: Sequence[Lent]) -> _Found | None:
        """The row to reuse, of those alike the one at rest that was used last."""
        start = _start(request)
        found = [self._found(parked.tokens, start)._replace(parked=parked) for parked in reversed(self.rows)]
        found += [self._found(row.tokens, start)._replace(lent=row) for row in lent]
        useful = [each for each in found if each.common >= LEAST_REUSED]
        return max(useful, key=lambda each: (each.common, each.parked is not None, each.is_whole), default=None)

    def _found(self, tokens: tuple[int, ...], start: tuple[int, ...]) -> _Found:
        common = common_prefix(tokens, start)
        is_whole = common == len(tokens)
        return _Found(common if is_whole or self.can_trim(len(tokens)) else 0, is_whole, tokens)

    def _is_taken_over(self, found: _Found, request: Request, room: int) -> bool:
        """Whether the row at rest becomes that of `request`; `room`: what this leaves for those at rest."""
        if found.parked is None or self._pins[found.parked.handle]:
            return False
        if found.is_whole and self.can_trim(tokens_of(request) - 1):
            return True  # it can be trimmed to what it is now when that has ended
        leaving = self._leaving(room)
        lost = sum(self._only_here(handle, 0) for handle in leaving)
        return found.parked.handle in leaving or self._only_here(found.parked.handle, found.common) < lost

    def _only_here(self, handle: int, kept: int) -> int:
        """How many tokens would have to be read again if this one left, though `kept` of its first ones stay."""
        tokens = self._parked[handle].tokens
        if not self.can_trim(len(tokens)):
            return len(tokens)
        others = (common_prefix(tokens, other.tokens) for other in self._parked.values() if other.handle != handle)
        return len(tokens) - max(kept, *others, 0)

    def _is_wanted(self, tokens: tuple[int, ...], running: int) -> bool:
        """Whether it is long enough, there is no other like it, and room for it."""
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
        """Park what there is room for; what leaves for it is dropped."""
        self._parked[parked.handle] = parked
        return [*map(Drop, self._evict(self._context - running))]

    def _evict(self, room: int) -> list[int]:
        """The least recently used ones leave until the others fit in `room` tokens."""
        leaving = self._leaving(room)
        for handle in leaving:
            self._undropped += len(self._parked[handle].tokens)
            self._forget(handle)
        return leaving

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
    """What a prompt may reuse: never its last token, for its step chooses the first answer. A prompt whose logprobs are
    reported is read in full.
    """
    return () if request.scores_prompt else tuple(request.prefix[:-1])


def _copied(found: _Found) -> Callable[[int], Op]:
    """The op that copies a row, given the new handle."""
    if found.parked:
        return partial(Copy, of=found.parked.handle)
    assert found.lent
    return found.lent.copied
