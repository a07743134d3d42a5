"""Rows, lanes and queue in words."""

from __future__ import annotations

from core.events import Batch, Plan, Snapshot
from core.settings import ROW_GROWTH
from tui.state.format import count, plural
from tui.state.plan_words import context_length


def summary(batch: Batch, plan: Plan) -> str:
    """How many rows, lanes and tokens are in use."""
    queue = len(batch.queue)
    parts = [f"{len(batch.running)} of {plural(plan.rows, 'row')}"]
    parts += [f"{plural(batch.in_flight, 'lane')} in flight"] if batch.lanes else []
    parts += [f"{queue} queued"] if queue else []
    parked = f" (cached {count(batch.parked_tokens)})" if batch.parked_tokens else ""
    return " · ".join([*parts, f"context {count(batch.used_tokens)}/{context_length(plan.context)}{parked}"])


def why_they_wait(now: Snapshot) -> str:
    """Why the first queued request waits; "" if nothing waits."""
    batch, plan = now.batch, now.plan
    if plan is None or not batch.queue:
        return ""
    if now.plan_status != "ready":
        return "The model isn't ready yet. The queue continues as soon as it is."
    if len(batch.running) >= plan.rows:
        return f"All {plural(plan.rows, 'row')} are busy. The next request starts when an answer ends."
    first, free = batch.queue[0], plan.context - batch.reserved_tokens
    wanted = first.prompt_tokens + min(first.max_tokens, first.written + ROW_GROWTH)
    if wanted <= free:
        return ""  # it is about to be admitted
    return f"The next request needs {wanted} tokens of memory; {max(0, free)} are free. It waits until there is room."
