"""Which block of a model is asked of which Mac next. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

MAX_BAD: Final = 3


class FileBlock(NamedTuple):
    """One block of one file."""

    file: str
    number: int


class BlockSchedule:
    """Blocks are wanted, under way from one source each, or there. The rarest come first, so that what few Macs have is
    soon on one more; a source that is quicker asks more often, and gets more.
    """

    def __init__(self, wanted: Iterable[FileBlock]) -> None:
        self._wanted = set(wanted)
        self._last_first = sorted(self._wanted, reverse=True)
        self._under_way: dict[FileBlock, str] = {}
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
        return tuple(source for source, has in self._has.items() if has & self._wanted)

    def offer(self, offers: Mapping[str, Iterable[FileBlock]]) -> None:
        """Each of these sources has these blocks, as far as is known, and no others."""
        self._has |= {source: self._wanted.intersection(blocks) for source, blocks in offers.items()}
        self._arrange()

    def lacks(self, source: str, blocks: Iterable[FileBlock]) -> None:
        """It has not got these after all: what is under way from it of them is asked of others."""
        has = self._has.get(source, set())
        for block in has.intersection(blocks):
            has.discard(block)
            if self._under_way.get(block) == source:
                del self._under_way[block]
                self._ask_again(block)

    def next(self, source: str) -> FileBlock | None:
        """What to ask of `source` now, which is under way from then on; None where there is nothing for it."""
        to_ask = self._to_ask.get(source, [])
        while to_ask:
            block = to_ask.pop()
            if block in self._wanted and block not in self._under_way and block in self._has[source]:
                self._under_way[block] = source
                return block
        return None

    def arrived(self, block: FileBlock) -> None:
        """It is there, and is what it should be."""
        self._under_way.pop(block, None)
        self._wanted.discard(block)

    def bad(self, source: str, block: FileBlock) -> bool:
        """What came from `source` is not that block: another is asked, if another has it. Whether this source has sent
        so much of that kind that it is asked no more.
        """
        self._bad[source] += 1
        self._under_way.pop(block, None)
        if self._bad[source] >= MAX_BAD:
            self.gone(source)
            return True
        self._ask_again(block, source)
        return False

    def gone(self, source: str) -> None:
        """Nothing comes from it any more."""
        self._has.pop(source, None)
        self._under_way = {block: asked for block, asked in self._under_way.items() if asked != source}
        self._arrange()

    def _ask_again(self, block: FileBlock, last: str = "") -> None:
        """Of any but the one that was asked last, where another has it."""
        holders = [each for each, has in self._has.items() if block in has]
        for each in [each for each in holders if each != last] or holders:
            self._to_ask[each].append(block)

    def _arrange(self) -> None:
        self._last_first = [block for block in self._last_first if block in self._wanted]
        holders = Counter(block for has in self._has.values() for block in has)
        self._to_ask = {
            source: sorted((b for b in self._last_first if b in has), key=lambda b: holders[b], reverse=True)
            for source, has in self._has.items()
        }
