"""Chooses the next blocks to request from each Mac. Pure: the caller passes the clock; no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

MAX_BAD: Final = 3
STALLED_S: Final = 3.0


class FileBlock(NamedTuple):
    """One block of one file."""

    file: str
    number: int

    @property
    def following(self) -> FileBlock:
        return FileBlock(self.file, self.number + 1)


class _Request(NamedTuple):
    source: str
    at: float


class BlockSchedule:
    """Tracks each block: wanted, requested from a source, or there.

    Requests the rarest blocks first, so that more Macs soon have them. Faster sources request more often and larger
    runs. At the end, a block requested over `STALLED_S` seconds ago is requested from another source too. `offers`:
    blocks of each source.
    """

    def __init__(self, wanted: Iterable[FileBlock], offers: Mapping[str, Iterable[FileBlock]]) -> None:
        self._wanted = set(wanted)
        self._last_first = sorted(self._wanted, reverse=True)
        self._requested: dict[FileBlock, _Request] = {}
        self._has = {source: self._wanted.intersection(blocks) for source, blocks in offers.items()}
        self._to_ask: dict[str, list[FileBlock]] = {}  # by source, in reverse order
        self._bad: Counter[str] = Counter()
        self._arrange()

    @property
    def is_done(self) -> bool:
        return not self._wanted

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(source for source, has in self._has.items() if not has.isdisjoint(self._wanted))

    def holders(self, block: FileBlock) -> tuple[str, ...]:
        """Sources with this block, in the order of the offers."""
        return tuple(source for source, has in self._has.items() if block in has)

    def take(self, source: str, most: int, now: float) -> tuple[FileBlock, ...]:
        """Up to `most` consecutive blocks of a file to request from `source` now; empty if it has no wanted ones."""
        to_ask, run = self._to_ask.get(source, []), list[FileBlock]()
        while to_ask and len(run) < most:
            block = to_ask[-1]
            if block in self._wanted and block not in self._requested and block in self._has[source]:
                if run and block != run[-1].following:
                    break
                run.append(block)
            to_ask.pop()
        run = run or self._stalled_run(source, most, now)
        self._requested |= dict.fromkeys(run, _Request(source, now))
        return tuple(run)

    def arrived(self, block: FileBlock) -> bool:
        """Record an intact block; returns whether it was still wanted."""
        self._requested.pop(block, None)
        was_wanted = block in self._wanted
        self._wanted.discard(block)
        return was_wanted

    def lacks(self, source: str, block: FileBlock) -> None:
        """Record that the source lacks the block; another source gets the request."""
        self._has.get(source, set()).discard(block)
        self._ask_again(source, block)

    def bad(self, source: str, block: FileBlock) -> bool:
        """Record wrong data; another source gets the request. Returns whether the source is dropped for it."""
        self._bad[source] += 1
        if self._bad[source] >= MAX_BAD:
            self.gone(source)
            return True
        self._ask_again(source, block)
        return False

    def gone(self, source: str) -> None:
        self._has.pop(source, None)
        self._requested = {block: request for block, request in self._requested.items() if request.source != source}
        self._arrange()

    def _stalled_run(self, source: str, most: int, now: float) -> list[FileBlock]:
        has, run = self._has.get(source, set()), list[FileBlock]()
        for block, request in sorted(self._requested.items()):
            if block in has and request.source != source and request.at <= now - STALLED_S and len(run) < most:
                if run and block != run[-1].following:
                    break
                run.append(block)
        return run

    def _ask_again(self, source: str, block: FileBlock) -> None:
        """Requeue the block, preferably for other sources."""
        if (request := self._requested.get(block)) and request.source != source:
            return  # another source is already sending it
        self._requested.pop(block, None)
        holders = self.holders(block)
        for each in [each for each in holders if each != source] or holders:
            self._to_ask[each].append(block)

    def _arrange(self) -> None:
        self._last_first = [block for block in self._last_first if block in self._wanted]
        holders = Counter(block for has in self._has.values() for block in has)
        self._to_ask = {
            source: sorted((b for b in self._last_first if b in has), key=holders.__getitem__, reverse=True)
            for source, has in self._has.items()
        }
