"""The queue of requests that wait for a row.

Displaced rows come first, in the order in which they were admitted; then other partly written answers, the one with the
fewest tokens left ahead; then new requests in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import inf

from core.engine.constraints import RowGrammar
from core.engine.lane_table import LaneTable
from core.engine.prefix_cache import Lent, PrefixCache, common_prefix, tokens_of
from core.engine.requests import Request
from core.engine.ring_work import Op
from core.engine.running import Row
from core.errors import Busy


def turn_of(request: Request) -> float:
    return inf if request.left is None else request.left


class Admission:
    """At most `most_rows` requests run at the same time, and `queue` more wait. A request starts once its prefix and
    the next `growth` tokens fit, however long its answer may get.
    """

    def __init__(
        self, table: LaneTable, prefixes: PrefixCache, *, most_rows: int, queue: int, draft: int, growth: int
    ) -> None:
        self._table, self._prefixes = table, prefixes
        self._most_rows, self._queue, self._draft, self._growth = most_rows, queue, draft, growth
        self._waiting: dict[str, Row] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def requests(self) -> list[Request]:
        return [row.request for row in self._waiting.values()]

    @property
    def is_due(self) -> bool:
        """Whether the next request may get a row now."""
        return any(self._has_room(row.request) for row in islice(self._waiting.values(), 1))

    def submit(self, request: Request, *, may_draft: bool, grammar: RowGrammar | None) -> None:
        running, waiting = len(self._table.rows), len(self._waiting)
        if running + waiting >= self._most_rows + self._queue:
            raise Busy(f"{running} requests are running and {waiting} are waiting; no more are accepted.")
        max_draft = self._draft if may_draft or grammar else 0
        self._waiting[request.request_id] = Row(request, max_draft, grammar, only_forced=not may_draft)
        turns = {name: -inf if row.is_displaced else turn_of(row.request) for name, row in self._waiting.items()}
        self._waiting = {name: self._waiting[name] for name in sorted(turns, key=turns.__getitem__)}

    def put_back(self, row: Row) -> None:
        """Queue what is left of a displaced row, before all others."""
        row.displace()
        self._waiting = {row.request.request_id: row, **self._waiting}

    def cancel(self, request_id: str) -> Row | None:
        return self._waiting.pop(request_id, None)

    def clear(self) -> list[str]:
        waiting = [*self._waiting]
        self._waiting.clear()
        return waiting

    def admit(self, chunk: int) -> list[Op]:
        """Give rows to the next requests while rows and memory are left."""
        ops: list[Op] = []
        lent: list[Lent] | None = None
        for row in [*self._waiting.values()]:
            if not self._has_room(row.request):
                break
            lent = self._table.lent() if lent is None else lent
            if not self._waits_for_another(row.request, lent, chunk):
                ops += self._open(row, lent, chunk)
        return ops

    def _has_room(self, request: Request) -> bool:
        table, prefixes, most = self._table, self._prefixes, tokens_of(request)
        if len(table.held) >= self._most_rows or request.request_id in table.leaving:
            return False  # its id is taken until the row before it has left
        if prefixes.has_pins and not prefixes.fits(most, table.most_tokens):
            return False  # rows that can't be dropped leave the others no way out
        return prefixes.fits(min(most, len(request.prefix) + self._growth), table.reserved_tokens)

    def _open(self, row: Row, lent: Sequence[Lent], chunk: int) -> list[Op]:
        request = row.request
        trims = self._prefixes.can_trim(tokens_of(request) - 1)  # to any prefix of it, once it has ended
        branch = 0 if trims else self._prefixes.branch(request, lent)
        claimed = self._table.claimed_tokens(chunk)
        ops, handle, reused = self._prefixes.open(request, claimed, lent)
        del self._waiting[request.request_id]
        row.start(handle, reused)
        self._table.rows[request.request_id] = row
        if not trims:
            row.keep_at(len(request.tokens) - 1)
            if branch - reused >= chunk:
                row.keep_at(branch)
        return ops

    def _waits_for_another(self, request: Request, lent: Sequence[Lent], chunk: int) -> bool:
        """Whether a running row will soon lend at least a chunk more of the prefix of `request`: it is read once then.
        If memory is short, a row that has just begun to write may soon leave that much to it, and cached prefixes stay.
        Partly written answers are read together, not one after another.
        """
        if request.left is not None or request.scores_prompt:
            return False
        start, now = request.prefix[:-1], self._prefixes.reusable(request, lent)
        most = self._prefixes.reusable(request) + chunk
        least = max(most, now + 1)
        claimed = self._table.claimed_tokens(chunk)
        is_full = not self._prefixes.leaves_room(claimed + len(request.prefix))
        for row in self._table.rows.values():
            common = 0 if row.is_lost else common_prefix(row.history, start)
            if is_full and common >= max(most, len(start) // 2) and row.written_here < self._growth:
                return True
            if common < least:
                continue
            if self._prefixes.can_trim(max(row.position, common) + chunk):
                return True
            if row.position <= common < row.prefix_tokens:
                row.keep_at(common)
                return True
        return False
