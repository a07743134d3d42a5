"""Which blocks of a model are asked of which Mac next. Pure: the clock is passed in, no I/O."""

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
        """The block behind it."""
        return FileBlock(self.file, self.number + 1)


class _AskedBlock(NamedTuple):
    source: str
    at: float


class BlockSchedule:
    """Blocks are wanted, under way from one source each, or there. The rarest come first, so that what few Macs have is
    soon on one more; a source that is quicker asks more often and for more, and so gives more. Where nothing else is
    left, what has been under way for `STALLED_S` seconds is asked of another source, too.
    """

    def __init__(self, wanted: Iterable[FileBlock]) -> None:
        self._wanted = set(wanted)
        self._last_first = sorted(self._wanted, reverse=True)
        self._under_way: dict[FileBlock, _AskedBlock] = {}
        self._has: dict[str, set[FileBlock]] = {}
        self._to_ask: dict[str, list[FileBlock]] = {}
        self._bad: Counter[str] = Counter()

    @property
    def is_done(self) -> bool:
        """Whether all is there."""
        return not self._wanted

    @property
    def sources(self) -> tuple[str, ...]:
        """Those that have something of what is wanted."""
        return tuple(source for source, has in self._has.items() if not has.isdisjoint(self._wanted))

    def holders(self, block: FileBlock) -> tuple[str, ...]:
        """The sources that have it, in the order in which they were offered."""
        return tuple(source for source, has in self._has.items() if block in has)

    def offer(self, offers: Mapping[str, Iterable[FileBlock]]) -> None:
        """Each of these sources has these blocks, and no others."""
        self._has |= {source: self._wanted.intersection(blocks) for source, blocks in offers.items()}
        self._arrange()

    def lacks(self, source: str, block: FileBlock) -> None:
        """It has not got it after all: another is asked."""
        self._has.get(source, set()).discard(block)
        self._ask_again(source, block)

    def take(self, source: str, most: int, now: float) -> tuple[FileBlock, ...]:
        """What to ask of `source` now, which is under way from then on: blocks of a file in a row, `most` of them at
        most; none where there is nothing for it.
        """
        if not (run := self._next_run(source, most)):
            run = self._stalled_run(source, most, now)
        self._under_way |= dict.fromkeys(run, _AskedBlock(source, now))
        return tuple(run)

    def arrived(self, block: FileBlock) -> bool:
        """It is there, and is what it should be. Whether it was still wanted."""
        self._under_way.pop(block, None)
        was_wanted = block in self._wanted
        self._wanted.discard(block)
        return was_wanted

    def bad(self, source: str, block: FileBlock) -> bool:
        """What came from `source` is not that block: another is asked, if another has it. Whether this source has sent
        so much of that kind that it is asked no more.
        """
        self._bad[source] += 1
        if self._bad[source] >= MAX_BAD:
            self.gone(source)
            return True
        self._ask_again(source, block)
        return False

    def gone(self, source: str) -> None:
        """Nothing comes from it any more."""
        self._has.pop(source, None)
        self._under_way = {block: asked for block, asked in self._under_way.items() if asked.source != source}
        self._arrange()

    def _next_run(self, source: str, most: int) -> list[FileBlock]:
        to_ask, run = self._to_ask.get(source, []), list[FileBlock]()
        while to_ask and len(run) < most:
            block = to_ask[-1]
            if block in self._wanted and block not in self._under_way and block in self._has[source]:
                if run and block != run[-1].following:
                    break
                run.append(block)
            to_ask.pop()
        return run

    def _stalled_run(self, source: str, most: int, now: float) -> list[FileBlock]:
        has, run = self._has.get(source, set()), list[FileBlock]()
        for block, asked in sorted(self._under_way.items()):
            if block in has and asked.source != source and asked.at <= now - STALLED_S and len(run) < most:
                if run and block != run[-1].following:
                    break
                run.append(block)
        return run

    def _ask_again(self, source: str, block: FileBlock) -> None:
        """Of any but the one that was asked last, where another has it."""
        if (asked := self._under_way.get(block)) and asked.source != source:
            return  # another one gives it already
        self._under_way.pop(block, None)
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
