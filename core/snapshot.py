"""Fold events into a snapshot, for clients that connect later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from core import events

LOG_LINES_KEPT: Final = 200

_T = TypeVar("_T")


def apply(now: events.Snapshot, event: events.AnyEvent) -> events.Snapshot:
    """Apply `event` to a snapshot. Pure; token and progress events change nothing."""
    after = _after(now, event)
    if now.plan_status == "ready" and after.plan_status != "ready":
        return msgspec.structs.replace(after, batch=_halted(after.batch))
    return after


def _after(now: events.Snapshot, event: events.AnyEvent) -> events.Snapshot:  # noqa: C901 - a flat table of events
    change = msgspec.structs.replace
    match event:
        case events.Snapshot():
            return event
        case events.PeerSeen(peer=peer) | events.PeerChanged(peer=peer):
            return change(now, peers=_put(now.peers, peer, lambda p: p.device_id))
        case events.PeerGone(device_id=gone):
            return change(now, peers=tuple(p for p in now.peers if p.device_id != gone))
        case events.TrustChanged():
            return change(now, trust=event)
        case events.PairingChanged():
            return change(now, pairing=event)
        case events.Recovery(state=state):
            status: events.PlanStatus = "broken" if state in ("hold", "replan", "wait") else now.plan_status
            return change(now, recovery=None if state == "running" else event, plan_status=status)
        case events.PlanProposed(plan=plan):
            waiting = tuple(events.StageState(device_id=s.device_id, status="waiting") for s in plan.stages)
            return change(now, plan=plan, plan_status="loading", plan_problem=None, stages=waiting, hops=(), advice="")
        case events.PlanLoaded():
            return change(now, plan_status="ready", plan_problem=None)
        case events.PlanFailed(problem=problem):
            return change(now, plan_status="broken", plan_problem=problem)
        case events.PlanUnloaded():
            return change(now, plan=None, plan_status="none", plan_problem=None, stages=(), hops=(), advice="")
        case events.PlanAdvice(text=text):
            return change(now, advice=text)
        case events.StageState():
            return change(now, stages=_put(now.stages, event, lambda s: s.device_id))
        case events.HopSample():
            return change(now, hops=_put(now.hops, event, lambda h: (h.source, h.target)))
        case events.RequestStarted(request_id=started, prompt_tokens=prompt_tokens, client=client):
            row = events.BatchRow(request_id=started, prompt_tokens=prompt_tokens, client=client)
            batch = change(now.batch, rows=_put(now.batch.rows, row, lambda r: r.request_id))
            return change(now, running=(*now.running, started), batch=batch)
        case events.RequestDone(request_id=done):
            batch = change(now.batch, rows=tuple(r for r in now.batch.rows if r.request_id != done))
            return change(now, running=tuple(r for r in now.running if r != done), last_done=event, batch=batch)
        case events.LogLine():
            return change(now, logs=with_line(now.logs, event, LOG_LINES_KEPT))
        case events.Counters():
            return change(now, counters=event)
        case events.Transfer(mac=mac):
            others = tuple(t for t in now.transfers if t.mac != mac)
            return change(now, transfers=others if event.is_over else (*others, event))
        case events.Batch():
            return change(now, batch=event)
        case events.ApiStopped():
            return change(now, api=None)
        case events.ApiClients(clients=clients):
            return change(now, clients=clients)
        case events.Elsewhere(plans=plans):
            return change(now, elsewhere=plans)
        case events.InstallationChanged(text=text):
            return change(now, outdated=text)
        case events.ApiServed():
            return change(now, api=event)
        case _:
            return now


def with_line(lines: tuple[events.LogLine, ...], line: events.LogLine, most: int) -> tuple[events.LogLine, ...]:
    """Insert `line` by time. Beyond `most`, drop one of the Mac with the most lines, so none pushes out another's."""
    at = len(lines)
    while at and lines[at - 1].at > line.at and lines[at - 1].source != line.source:
        at -= 1
    kept = (*lines[:at], line, *lines[at:])
    if len(kept) <= most:
        return kept
    ((loudest, _),) = Counter(each.source for each in kept).most_common(1)
    first = next(number for number, each in enumerate(kept) if each.source == loudest)
    return (*kept[:first], *kept[first + 1 :])


def _halted(batch: events.Batch) -> events.Batch:
    """The batch when no ring runs: unfinished requests wait."""
    return events.Batch(rows=tuple(msgspec.structs.replace(r, state="waiting", lane=None) for r in batch.rows))


def _put(items: tuple[_T, ...], item: _T, key: Callable[[_T], object]) -> tuple[_T, ...]:
    keys = [key(each) for each in items]
    at = keys.index(key(item)) if key(item) in keys else len(keys)
    return (*items[:at], item, *items[at + 1 :])
