"""The queue of requests that wait for a row.

Partly written answers come first, the one with the fewest tokens left ahead; then new requests in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from core.engine.constraints import RowGrammar
from core.engine.lane_table import LaneTable
from core.engine.prefix_cache import Lent, PrefixCache, common_prefix, tokens_of
from core.engine.requests import Request
from core.engine.ring_work import Op
from core.engine.running import Row
from core.errors import Busy


class _Waiting(NamedTuple):
    request: Request
    max_draft: int  # tokens that may go with each of its steps
    grammar: RowGrammar | None  # allows or forces draft tokens
    only_forced: bool  # the draft has only tokens that the grammar forces


def turn_of(request: Request) -> float:
    return inf if request.left is None else request.left


class Admission:
    """At most `most_rows` requests run at the same time, and `queue` more wait."""

    def __init__(self, table: LaneTable, prefixes: PrefixCache, *, most_rows: int, queue: int, draft: int) -> None:
        self._table, self._prefixes = table, prefixes
        self._most_rows, self._queue, self._draft = most_rows, queue, draft
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def requests(self) -> list[Request]:
        return [each.request for each in self._waiting.values()]

    def submit(self, request: Request, *, may_draft: bool, grammar: RowGrammar | None) -> None:
        running, waiting = len(self._table.rows), len(self._waiting)
        if running + waiting >= self._most_rows + self._queue:
            raise Busy(f"{running} requests are running and {waiting} are waiting; no more are accepted.")
        max_draft = self._draft if may_draft or grammar else 0
        self._waiting[request.request_id] = _Waiting(request, max_draft, grammar, only_forced=not may_draft)
        self._waiting = dict(sorted(self._waiting.items(), key=lambda each: turn_of(each[1].request)))

    def cancel(self, request_id: str) -> bool:
        return self._waiting.pop(request_id, None) is not None

    def clear(self) -> list[str]:
        waiting = [*self._waiting]
        self._waiting.clear()
        return waiting

    def admit(self, chunk: int) -> list[Op]:
        """Give rows to the next requests while rows and memory are left."""
        ops: list[Op] = []
        lent: list[Lent] | None = None
        for waiting in [*self._waiting.values()]:
            request = waiting.request
            if len(self._table.held) >= self._most_rows or not self._prefixes.fits(
                request, self._table.reserved_tokens
            ):
                break
            if request.request_id in self._table.leaving:
                break  # its id is taken until the row before it has left
            lent = self._table.lent() if lent is None else lent
            if not self._waits_for_another(request, lent, chunk):
                ops += self._open(waiting, lent, chunk)
        return ops

    def _open(self, waiting: _Waiting, lent: Sequence[Lent], chunk: int) -> list[Op]:
        request = waiting.request
        trims = self._prefixes.can_trim(tokens_of(request) - 1)  # to any prefix of it, once it has ended
        branch = 0 if trims else self._prefixes.branch(request, lent)
        claimed = self._table.claimed_tokens(chunk, self._draft)
        ops, handle, reused = self._prefixes.open(request, claimed, lent)
        del self._waiting[request.request_id]
        row = Row(request, handle, reused, waiting.max_draft, waiting.grammar, only_forced=waiting.only_forced)
        self._table.rows[request.request_id] = row
        if not trims:
            row.keep_at(len(request.tokens) - 1)
            if branch - reused >= chunk:
                row.keep_at(branch)
        return ops

    def _waits_for_another(self, request: Request, lent: Sequence[Lent], chunk: int) -> bool:
        """Whether a running row will soon lend at least a chunk more of the prefix of `request`: it is read once then.
        Partly written answers are read together, not one after another.
        """
        if request.left is not None or request.scores_prompt:
            return False
        start, now = request.prefix[:-1], self._prefixes.reusable(request, lent)
        least = max(self._prefixes.reusable(request) + chunk, now + 1)
        for row in self._table.rows.values():
            common = 0 if row.is_lost else common_prefix(row.history, start)
            if common < least:
                continue
            if self._prefixes.can_trim(max(row.position, common) + chunk):
                return True
            if row.position <= common < row.prefix_tokens:
                row.keep_at(common)
                return True
        return False
