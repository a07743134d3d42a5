"""What all Macs hold of the answers that run, and of the one that ended last, in the memory of the head's node.

Nobody but the head keeps it, which holds the whole conversation anyway: so no Mac sees more than its stage does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from core.settings import MIB
from core.worker.messages import MirrorSpan

# of spans that are given to a worker at once
GIVEN_BYTES: Final = 4 * MIB


class _Kept(NamedTuple):
    """A span, and the tokens that it is of. `is_bare`: its windows were dropped, since rows that go on behind later
    spans do not need them.
    """

    tokens: tuple[int, ...]
    span: MirrorSpan
    is_bare: bool = False

    def without_windows(self) -> _Kept:
        """The same for later spans."""
        return _Kept(self.tokens, replace(self.span, window=b""), is_bare=True)


class Mirror:
    """Rows by request id, each a run of spans from its first token on; together `limit` bytes at most. Of states only
    the newest that are whole are kept, and those that come.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._rows: dict[str, list[_Kept]] = {}
        self._last: str | None = None  # the row of the answer that ended last
        self._full: set[str] = set()

    def begin(self, request_id: str, beginning: Sequence[int]) -> int:
        """A request is handed over that begins with these tokens, the last of which every worker reads: how many of
        them are mirrored, of whichever row.
        """
        found = [_common(row, beginning) for row in self._rows.values()]
        best = max(found, key=lambda row: row[-1].span.stop if row else 0, default=[])
        self._full.discard(request_id)
        if self.limit or best:
            self._rows[request_id] = best
        return best[-1].span.stop if best else 0

    def keep(self, request_id: str, span: MirrorSpan, tokens: Sequence[int]) -> bool:
        """The next span of a row whose tokens are those; False where it is not kept, and no other of this row will be.
        What ended gives way to what runs.
        """
        row = self._rows.get(request_id)
        if row is None or request_id in self._full:
            return False
        if span.start != (row[-1].span.stop if row else 0) or span.stop > len(tokens) or not self._has_room(row, span):
            self._full.add(request_id)  # or a state would be kept of which a part is missing
            return False
        row.append(_Kept(tuple(tokens[span.start : span.stop]), span))
        if span.start == span.stop and span.needs is not None:
            row[:] = [kept for kept in row if kept.tokens or kept.span.stop == span.stop]
        return True

    def _has_room(self, row: list[_Kept], span: MirrorSpan) -> bool:
        """Once what no row needs any more has left for it."""
        needs = span.needs
        if needs is not None:
            row[:] = [k.without_windows() if k.span.stop <= needs and not k.is_bare else k for k in row]
        size = len(span.data) + len(span.window)
        if self.nbytes + size > self.limit and self._last:
            self._rows.pop(self._last, None)
        return self.nbytes + size <= self.limit

    def spans(self, request_id: str, behind: int) -> tuple[MirrorSpan, ...]:
        """Those of a row behind the first `behind` ones, as many as travel together."""
        chosen: list[MirrorSpan] = []
        size = 0
        for _, span, _ in self._rows.get(request_id, [])[behind:]:
            size += len(span.data) + len(span.window)
            if chosen and size > GIVEN_BYTES:
                break
            chosen.append(span)
        return tuple(chosen)

    def end(self, request_id: str) -> None:
        """An answer has ended: its conversation may go on, and the one before it does not."""
        if request_id in self._rows:
            if self._last != request_id:
                self._rows.pop(self._last or "", None)
            self._last = request_id

    def forget(self) -> None:
        """Nothing is mirrored any more."""
        self._rows.clear()
        self._full.clear()
        self._last = None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept; rows that begin alike share them."""
        spans = [kept.span for row in self._rows.values() for kept in row]
        return sum({id(data): len(data) for span in spans for data in (span.data, span.window)}.values())


def _common(row: Sequence[_Kept], beginning: Sequence[int]) -> list[_Kept]:
    """The spans of `row` that hold what `beginning` has, but for its last token, as far as a row can go on."""

    def fits(kept: _Kept) -> bool:
        start, stop = kept.span.start, kept.span.stop
        return stop < len(beginning) and tuple(beginning[start:stop]) == kept.tokens

    found = list(takewhile(fits, row))
    while found and not _goes_on_behind(found):
        found.pop()
    return found


def _goes_on_behind(row: Sequence[_Kept]) -> bool:
    """Whether the windows are there that the last of these spans needs."""
    needs = row[-1].span.needs
    return needs is not None and all(kept.span.stop <= needs for kept in row if kept.is_bare)
