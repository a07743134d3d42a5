"""The batch as users see it: the worker's rows joined with this node's answers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from core.events import Batch, BatchRow
from core.node.answers.running_answer import RunningAnswer


def batch_now(reported: Batch, running: Mapping[str, RunningAnswer]) -> Batch:
    """The rows of `reported` that still run, then the answers that the worker does not have yet."""
    alive = [row for row in reported.rows if row.request_id in running and running[row.request_id].is_handed_over]
    known = {row.request_id for row in alive}
    unknown = [one for name, one in running.items() if name not in known]
    rows = (*(_measured(row, running[row.request_id]) for row in alive), *map(_waiting, unknown))
    return replace(reported, rows=rows)


def _measured(row: BatchRow, running: RunningAnswer) -> BatchRow:
    return replace(row, tokens_per_s=running.so_far("stop").decode_tokens_per_s, client=running.client)


def _waiting(running: RunningAnswer) -> BatchRow:
    record = running.record
    return BatchRow(
        request_id=record.request_id,
        prompt_tokens=len(record.prompt),
        written=len(running.tokens),
        max_tokens=record.max_tokens,
        client=running.client,
    )
