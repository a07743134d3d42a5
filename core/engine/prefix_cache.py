"""Rows that no request runs any more, kept for the prompts that begin as they do.

Every stage keeps them under plain handles, as it keeps those that run, and they share the memory of the plan: whatever
runs goes first, and those that were not used for the longest time make room for it. What is written of an answer
that goes on counts as prompt: a row may hold some of that too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
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


class Opened(NamedTuple):
    """A row that begins: `ops` make `handle`, which then holds the first `reused` tokens of its prompt."""

    ops: list[Op]
    handle: int
    reused: int


class _Found(NamedTuple):
    """`common`: tokens that a prompt can take from `parked`; `is_whole`: all that it holds."""

    common: int
    is_whole: bool
    parked: CachedPrefix


def tokens_of(request: Request) -> int:
    """What the row of `request` may take of the memory: room for prompt and answer, what is written among it."""
    return len(request.tokens) + request.max_tokens


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many tokens both begin; they are of the same type."""
    at, most = 0, min(len(one), len(other))
    while at < most and one[at : at + BLOCK] == other[at : at + BLOCK]:
        at += BLOCK
    return next((n for n in range(at, min(at + BLOCK, most)) if one[n] != other[n]), min(at + BLOCK, most))


class PrefixCache:
    """At most `rows` rows, which take `context` tokens of memory together with those that run, `running` each time.

    Their caches can be trimmed while they hold fewer tokens than `trim_limit`; None: always. New rows are numbered by
    `handles`. What is pinned, or still arrives, is neither changed nor made to leave.
    """

    def __init__(self, rows: int, context: int, trim_limit: int | None, handles: Iterator[int]) -> None:
        self._most_rows, self._context, self._trim_limit, self._handles = rows, context, trim_limit, handles
        self._parked: dict[int, CachedPrefix] = {}  # the one that was used last is last
        self._pins: Counter[int] = Counter()
        self._arriving: set[int] = set()

    @property
    def rows(self) -> tuple[CachedPrefix, ...]:
        """Those that a prompt may reuse, the newest last."""
        return tuple(parked for handle, parked in self._parked.items() if handle not in self._arriving)

    def can_trim(self, tokens: int) -> bool:
        """Whether caches that hold so many tokens can be trimmed."""
        return self._trim_limit is None or tokens < self._trim_limit

    def fits(self, request: Request, running: int) -> bool:
        """Whether it may run now, once others have left for it; alone it runs however large it is."""
        others = running + self._pinned()
        return not others or others + tokens_of(request) <= self._context

    def reusable(self, request: Request) -> int:
        """How many tokens of its beginning a row here holds."""
        found = self._longest(request)
        return found.common if found else 0

    def open(self, request: Request, running: int) -> Opened:
        """The row of a request that fits, with as much of its prompt as there is.

        A row that the prompt continues is taken over, if it can be trimmed to what it is now when the request has
        ended; else it stays, and is copied, as is one of which only a beginning is of use. Where there is no room for
        both, it is taken over in any case.
        """
        found = self._longest(request)
        if found:
            self._use(found.parked.handle)
        evicted = self._evict(self._context - running - tokens_of(request))
        if found is None:
            handle = next(self._handles)
            return Opened([*map(Drop, evicted), New(handle)], handle, 0)
        source = found.parked.handle
        ops: list[Op] = [Drop(handle) for handle in evicted if handle != source]
        if source in evicted or self._continues(found, request):
            self._forget(source)
            handle = source
        else:
            handle = next(self._handles)
            ops.append(Copy(handle, source))
        if not found.is_whole:
            ops.append(Trim(handle, len(found.parked.tokens) - found.common))
        return Opened(ops, handle, found.common)

    def park(self, handle: int, tokens: tuple[int, ...], running: int) -> list[Op]:
        """Keep a row that has ended, if it is of use."""
        if not self._is_wanted(tokens, running):
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

    def hold(self, tokens: tuple[int, ...], running: int) -> tuple[CachedPrefix, list[Op]]:
        """A row that comes from elsewhere; it is pinned, and of no use, until it is settled. Raises Busy."""
        if not self._has_room(len(tokens), running):
            raise Busy("What runs leaves no memory for a saved conversation: load it when the answers have ended.")
        parked = CachedPrefix(next(self._handles), tokens)
        ops = self._add(parked, running)
        self._arriving.add(parked.handle)
        self.pin(parked.handle)
        return parked, [*ops, Restore(parked.handle, len(tokens))]

    def settle(self, handle: int) -> None:
        """All of a row from elsewhere is there: from now on it is as any other."""
        if handle in self._arriving:
            self._arriving.discard(handle)
            self.unpin(handle)
            self._use(handle)

    def pin(self, handle: int) -> None:
        """Keep it as it is until it is unpinned as often. Raises KeyError where it is not here."""
        self._pins[self._parked[handle].handle] += 1

    def unpin(self, handle: int) -> None:
        """The reverse of `pin`; nothing where the row was lost meanwhile."""
        self._pins -= Counter((handle,))

    def lose(self, handles: Collection[int]) -> list[Op]:
        """Give up those of `handles` that are here."""
        lost = [handle for handle in self._parked if handle in handles]
        for handle in lost:
            self._forget(handle)
        return [*map(Drop, lost)]

    def clear(self) -> None:
        """Nothing is parked."""
        self._parked.clear()
        self._pins.clear()
        self._arriving.clear()

    def _longest(self, request: Request) -> _Found | None:
        """The row to reuse, of which the prompt's last token is never a part: its step chooses the first answer. What
        is in memory does not tell how likely it was.
        """
        start = () if request.tells_prompt else tuple(request.beginning[:-1])
        found = [self._found(parked, start) for parked in reversed(self.rows)]
        useful = [each for each in found if each.common >= LEAST_REUSED]
        return max(useful, key=lambda each: each[:2], default=None)

    def _found(self, parked: CachedPrefix, start: tuple[int, ...]) -> _Found:
        common = common_prefix(parked.tokens, start)
        is_whole = common == len(parked.tokens)
        return _Found(common if is_whole or self.can_trim(len(parked.tokens)) else 0, is_whole, parked)

    def _continues(self, found: _Found, request: Request) -> bool:
        """Whether the row can become that of `request`, and be trimmed to what it is now when that has ended."""
        is_free = not self._pins[found.parked.handle]
        return found.is_whole and is_free and self.can_trim(tokens_of(request) - 1)

    def _is_wanted(self, tokens: tuple[int, ...], running: int) -> bool:
        """Whether it is long enough, there is no other like it, and room for it."""
        same = next((parked.handle for parked in self._parked.values() if parked.tokens == tokens), None)
        if same is not None:
            self._use(same)
        return same is None and len(tokens) >= LEAST_REUSED and self._has_room(len(tokens), running)

    def _has_room(self, tokens: int, running: int) -> bool:
        return running + self._pinned() + tokens <= self._context and len(self._pins) < self._most_rows

    def _pinned(self) -> int:
        return sum(len(self._parked[handle].tokens) for handle in self._pins)

    def _add(self, parked: CachedPrefix, running: int) -> list[Op]:
        """Park what there is room for; what leaves for it is dropped."""
        self._parked[parked.handle] = parked
        return [*map(Drop, self._evict(self._context - running))]

    def _evict(self, room: int) -> list[int]:
        """The least recently used ones leave until the others fit in `room` tokens."""
        evicted: list[int] = []
        taken = sum(len(parked.tokens) for parked in self._parked.values())
        for handle, parked in self._parked.items():
            if taken <= room and len(self._parked) - len(evicted) <= self._most_rows:
                break
            if not self._pins[handle]:
                evicted.append(handle)
                taken -= len(parked.tokens)
        for handle in evicted:
            self._forget(handle)
        return evicted

    def _use(self, handle: int) -> None:
        self._parked[handle] = self._parked.pop(handle)

    def _forget(self, handle: int) -> None:
        self._parked.pop(handle, None)
        self._arriving.discard(handle)
        del self._pins[handle]
