"""Which blocks of a model are requested from which Mac next. Pure: the clock is passed in, no I/O."""

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
        """The block after it."""
        return FileBlock(self.file, self.number + 1)


class _Request(NamedTuple):
    source: str
    at: float


class BlockSchedule:
    """Tracks which blocks are wanted, requested from one source each, or there.

    The rarest blocks come first, so that they are soon on one more Mac. A faster source asks more often and for more,
    and so gives more. When nothing else is left, a block requested `STALLED_S` seconds ago is requested from another
    source too. `offers`: the blocks that each source has.
    """

    def __init__(self, wanted: Iterable[FileBlock], offers: Mapping[str, Iterable[FileBlock]]) -> None:
        self._wanted = set(wanted)
        self._last_first = sorted(self._wanted, reverse=True)
        self._requested: dict[FileBlock, _Request] = {}
        self._has = {source: self._wanted.intersection(blocks) for source, blocks in offers.items()}
        self._to_ask: dict[str, list[FileBlock]] = {}  # by source, the next one last
        self._bad: Counter[str] = Counter()
        self._arrange()

    @property
    def is_done(self) -> bool:
        """Whether all blocks are there."""
        return not self._wanted

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that have a wanted block."""
        return tuple(source for source, has in self._has.items() if not has.isdisjoint(self._wanted))

    def holders(self, block: FileBlock) -> tuple[str, ...]:
        """The sources that have a block, in the order of the offers."""
        return tuple(source for source, has in self._has.items() if block in has)

    def take(self, source: str, most: int, now: float) -> tuple[FileBlock, ...]:
        """At most `most` consecutive blocks of a file to request from `source` now; none if there is nothing for it."""
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
        """A block is there and sound. Whether it was still wanted."""
        self._requested.pop(block, None)
        was_wanted = block in self._wanted
        self._wanted.discard(block)
        return was_wanted

    def lacks(self, source: str, block: FileBlock) -> None:
        """The source does not have the block after all: request it from another one."""
        self._has.get(source, set()).discard(block)
        self._ask_again(source, block)

    def bad(self, source: str, block: FileBlock) -> bool:
        """The source sent something else: request the block from another one. Whether the source is dropped for it."""
        self._bad[source] += 1
        if self._bad[source] >= MAX_BAD:
            self.gone(source)
            return True
        self._ask_again(source, block)
        return False

    def gone(self, source: str) -> None:
        """Nothing comes from the source any more."""
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
        """Put the block back, for other sources if there are any."""
        if (request := self._requested.get(block)) and request.source != source:
            return  # another source is sending it already
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
