"""What all Macs hold of the answers that run, and of the one that ended last, in the memory of the head's node.

Nobody but the head keeps it, which holds the whole conversation anyway: so no Mac sees more than its stage does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from core.settings import MIB
from core.worker.messages import MirrorSpan

# of spans that are given to a worker at once
GIVEN_BYTES: Final = 4 * MIB


class _Kept(NamedTuple):
    """A span, and the tokens that it is of."""

    tokens: tuple[int, ...]
    span: MirrorSpan


class Mirror:
    """Rows by request id, each a run of spans from its first token on; together `limit` bytes at most."""

    def __init__(self) -> None:
        self.limit = 0
        self._rows: dict[str, list[_Kept]] = {}
        self._last: str | None = None  # the row of the answer that ended last

    def begin(self, request_id: str, beginning: Sequence[int]) -> int:
        """A request is handed over that begins with these tokens, the last of which every worker reads: how many of
        them are mirrored, of whichever row.
        """
        found = [_common(row, beginning) for row in self._rows.values()]
        best = max(found, key=len, default=[])
        if self.limit or best:
            self._rows[request_id] = best
        return best[-1].span.stop if best else 0

    def keep(self, request_id: str, span: MirrorSpan, tokens: Sequence[int]) -> bool:
        """The next span of a row whose tokens are those; False where it is not kept, and no other of this row will be.
        What ended gives way to what runs.
        """
        row = self._rows.get(request_id)
        if row is None or span.start != (row[-1].span.stop if row else 0) or span.stop > len(tokens):
            return False
        if self.nbytes + len(span.data) > self.limit and self._last:
            self._rows.pop(self._last, None)
        if self.nbytes + len(span.data) > self.limit:
            return False
        row.append(_Kept(tuple(tokens[span.start : span.stop]), span))
        return True

    def spans(self, request_id: str, start: int) -> tuple[MirrorSpan, ...]:
        """Those of a row from token `start` on, as many as travel together; none where it has no such span."""
        chosen: list[MirrorSpan] = []
        size = 0
        for _, span in self._rows.get(request_id, []):
            if span.start >= start and (not chosen or size + len(span.data) <= GIVEN_BYTES):
                chosen.append(span)
                size += len(span.data)
            elif chosen:
                break
        return tuple(chosen) if chosen and chosen[0].start == start else ()

    def end(self, request_id: str) -> None:
        """An answer has ended: its conversation may go on, and the one before it does not."""
        if request_id in self._rows:
            if self._last != request_id:
                self._rows.pop(self._last or "", None)
            self._last = request_id

    def forget(self) -> None:
        """Nothing is mirrored any more."""
        self._rows.clear()
        self._last = None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept; rows that begin alike share them."""
        return sum({id(kept.span): len(kept.span.data) for row in self._rows.values() for kept in row}.values())


def _common(row: Sequence[_Kept], beginning: Sequence[int]) -> list[_Kept]:
    """The spans of `row` that hold what `beginning` has, but for its last token."""

    def fits(kept: _Kept) -> bool:
        start, stop = kept.span.start, kept.span.stop
        return stop < len(beginning) and tuple(beginning[start:stop]) == kept.tokens

    return list(takewhile(fits, row))
