"""A copy of every Mac's KV cache, in the memory of the head's node, for the running answers and the last ended one.

Only the head keeps it, which holds the whole conversation anyway: no Mac sees more than its stage does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from msgspec.structs import replace

from core.settings import MIB
from core.worker.messages import MirrorSpan

GIVEN_BYTES: Final = 4 * MIB  # spans sent to a worker at a time


class _Kept(NamedTuple):
    """A span and its tokens."""

    tokens: tuple[int, ...]
    span: MirrorSpan
    is_bare: bool = False  # its windows were dropped: rows that continue after later spans need none

    def without_windows(self) -> _Kept:
        return _Kept(self.tokens, replace(self.span, window=b""), is_bare=True)


class Mirror:
    """Runs of spans by request id, each from the first token on; `limit` bytes in total. Of recurrent states only the
    newest whole one is kept, and the one that is arriving.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._rows: dict[str, list[_Kept]] = {}
        self._last: str | None = None  # the row of the answer that ended last
        self._full: set[str] = set()

    def begin(self, request_id: str, beginning: Sequence[int]) -> int:
        """Start a row for a request with this prefix; returns how many of its tokens are mirrored already, of any row.
        The last token of the prefix is always computed.
        """
        found = [_common(row, beginning) for row in self._rows.values()]
        best = max(found, key=lambda row: row[-1].span.stop if row else 0, default=[])
        self._full.discard(request_id)
        if self.limit or best:
            self._rows[request_id] = best
        return best[-1].span.stop if best else 0

    def keep(self, request_id: str, span: MirrorSpan, tokens: Sequence[int]) -> bool:
        """Append the next span of a row; False if it was not kept, and none after it will be. The ended row gives way
        to running ones.
        """
        row = self._rows.get(request_id)
        if row is None or request_id in self._full:
            return False
        if span.start != (row[-1].span.stop if row else 0) or span.stop > len(tokens) or not self._has_room(row, span):
            self._full.add(request_id)  # or an incomplete state would be kept
            return False
        row.append(_Kept(tuple(tokens[span.start : span.stop]), span))
        if span.start == span.stop and span.needs is not None:
            row[:] = [kept for kept in row if kept.tokens or kept.span.stop == span.stop]
        return True

    def _has_room(self, row: list[_Kept], span: MirrorSpan) -> bool:
        needs = span.needs
        if needs is not None:
            row[:] = [k.without_windows() if k.span.stop <= needs and not k.is_bare else k for k in row]
        size = len(span.data) + len(span.window)
        if self.nbytes + size > self.limit and self._last:
            self._rows.pop(self._last, None)
        return self.nbytes + size <= self.limit

    def spans(self, request_id: str, behind: int) -> tuple[MirrorSpan, ...]:
        """The next spans of a row after the first `behind`, up to `GIVEN_BYTES`."""
        chosen: list[MirrorSpan] = []
        size = 0
        for _, span, _ in self._rows.get(request_id, [])[behind:]:
            size += len(span.data) + len(span.window)
            if chosen and size > GIVEN_BYTES:
                break
            chosen.append(span)
        return tuple(chosen)

    def end(self, request_id: str) -> None:
        if request_id in self._rows:
            if self._last != request_id:
                self._rows.pop(self._last or "", None)
            self._last = request_id

    def forget(self) -> None:
        self._rows.clear()
        self._full.clear()
        self._last = None

    @property
    def nbytes(self) -> int:
        spans = [kept.span for row in self._rows.values() for kept in row]
        return sum({id(data): len(data) for span in spans for data in (span.data, span.window)}.values())


def _common(row: Sequence[_Kept], beginning: Sequence[int]) -> list[_Kept]:
    """The longest usable run of spans of `row` that `beginning` shares, without its last token."""

    def fits(kept: _Kept) -> bool:
        start, stop = kept.span.start, kept.span.stop
        return stop < len(beginning) and tuple(beginning[start:stop]) == kept.tokens

    found = list(takewhile(fits, row))
    while found and not _goes_on_behind(found):
        found.pop()
    return found


def _goes_on_behind(row: Sequence[_Kept]) -> bool:
    needs = row[-1].span.needs
    return needs is not None and all(kept.span.stop <= needs for kept in row if kept.is_bare)
