"""`macluster status` and `macluster peers`: this Mac, its peers and the loaded model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from core.events import Batch, Peer, Plan, Snapshot, TrustChanged
from core.mac.memory import footprint_bytes
from core.models.files.layers_on_disk import size_text
from core.requests.answers import UnfinishedAnswer
from core.requests.disks import DiskUse
from core.text import clean_text
from tui.cli.launch import home_of
from tui.cli.output import Facts, fields_of, print_facts, table
from tui.cli.plan import plan_facts
from tui.cli.watch import watching
from tui.state.plan_words import cable_mark
from tui.state.row_words import summary
from tui.state.seat import led_words
from tui.state.versions import version_words


async def status(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        key = (await watch.client.trust()).key_storage
        unfinished = await watch.client.unfinished()
        disks = disk_facts(await watch.client.disks())
        workers = [worker_facts(p, watch.now) | disks.get(p.device_id, {}) for p in watch.now.peers if p.worker_pid]
        facts = {"key_storage": key, "unfinished": unfinished_facts(unfinished), "workers": workers}
        lines = [f"Key: stored in {key}.", *unfinished_lines(unfinished)]
        print_facts(args, status_facts(watch.now) | facts, [*status_lines(watch.now), *lines])


async def peers(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        print_facts(args, watch.now.peers, peer_lines(watch.now.peers))


def trust_line(trust: TrustChanged, plan: Plan | None) -> str:
    mark = cable_mark(plan)
    words = f"{trust.level}{f', {mark.word}' if mark else ''} (weakest: {trust.weakest or 'none'})"
    return clean_text(f"Trust: {words} {trust.reason}").rstrip()


def worker_facts(peer: Peer, now: Snapshot) -> Facts:
    """A worker's process and memory; the resident size is read now if the process is on this Mac."""
    weight = next((s.weight_bytes for s in now.stages if s.device_id == peer.device_id), 0)
    here = peer.is_self or peer.address.startswith("127.")  # a demo simulates its Macs on this one
    resident = (footprint_bytes(peer.worker_pid or 0) if here else 0) or peer.worker_rss_bytes
    return {"peer": peer.name, "pid": peer.worker_pid, "rss_bytes": resident, "weight_bytes": weight}


def disk_facts(disks: Sequence[DiskUse]) -> dict[str, Facts]:
    """By device id: the bytes a Mac fetched, and the model's bytes on its disk."""
    return {each.mac: {"fetched_bytes": each.fetched_bytes, "disk_bytes": each.disk_bytes} for each in disks}


def status_facts(now: Snapshot) -> Facts:
    return {
        **fields_of(now, "version", "outdated"),
        "trust": msgspec.structs.asdict(now.trust),
        **fields_of(now, "peers", "plan_status", "plan_problem"),
        "plan": plan_facts(now.plan) if now.plan else None,
        "elsewhere": msgspec.to_builtins(now.elsewhere),
        "workers": [worker_facts(p, now) for p in now.peers if p.worker_pid],
        "running": now.running,
        "batch": batch_facts(now.batch, now.plan) if now.plan else None,
        "counters": msgspec.structs.asdict(now.counters),
    }


def batch_facts(batch: Batch, plan: Plan) -> Facts:
    most = {"rows_max": plan.rows, "context_tokens": plan.context, "waiting": len(batch.queue)}
    facts: Facts = msgspec.to_builtins(batch)
    return most | {field: fact for field, fact in facts.items() if field != "type"}


def batch_lines(batch: Batch, plan: Plan) -> list[str]:
    rows = [
        (r.request_id[:8], r.state, *map(str, (r.prompt_tokens, r.read, r.written)), str(r.lane or "–"))
        for r in batch.rows
    ]
    head = ("row", "state", "prompt", "read", "written", "lane")
    return [f"Rows: {summary(batch, plan)}", *(table(head, rows, left=(0, 1)) if rows else [])]


def peer_lines(peers: Sequence[Peer]) -> list[str]:
    marks = {"connected": "●", "suspect": "▲", "lost": "✗", "seen": "○", "needs an update": "▲"}
    rows = [
        (
            f"{marks[p.state]} {clean_text(p.name)}{' (this Mac)' if p.is_self else ''}",
            p.short_id,
            p.state,
            p.trust,
            clean_text(p.chip) or "–",
            size_text(p.budget_bytes) if p.budget_bytes else "–",
            clean_text(p.version) or "–",
            p.address or "–",
        )
        for p in peers
    ]
    lines = table(("Mac", "id", "state", "trust", "chip", "budget", "version", "address"), rows)
    return [*lines, *(clean_text(f"{p.name} ({p.short_id}): {p.problem}") for p in peers if p.problem)]


def status_lines(now: Snapshot) -> list[str]:
    warnings = [said] if (said := version_words(now)) else []
    lines = [f"macluster {now.version}", *warnings, *peer_lines(now.peers), trust_line(now.trust, now.used_plan)]
    if now.plan or not now.elsewhere:
        lines.append(f"Model: {now.plan.model if now.plan else 'none'} ({now.plan_status})")
    lines += [clean_text(f"Model: {led_words(each, now)}") for each in now.elsewhere]
    if now.plan_problem:
        lines.append(clean_text(f"Problem: {now.plan_problem.what} {now.plan_problem.fix}"))
    lines += batch_lines(now.batch, now.plan) if now.plan else []
    counted = [f"{name.replace('_', ' ')} {n}" for name, n in msgspec.structs.asdict(now.counters).items() if n]
    return [*lines, f"Network: {', '.join(counted)}"] if counted else lines


def unfinished_lines(answers: Sequence[UnfinishedAnswer]) -> list[str]:
    if not answers:
        return []
    how = clean_text(f"`macluster run {answers[0].model} --continue` continues the newest")
    return [f"Unfinished answers: {len(answers)}. {how}; `macluster status --json` lists them."]


def unfinished_facts(answers: Sequence[UnfinishedAnswer]) -> list[Facts]:
    return [fields_of(one, "request_id", "model", "tokens", "max_tokens", "at") for one in answers]
