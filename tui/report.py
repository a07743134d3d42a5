"""What the commands print: the same facts as plain text for people and as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from core.events import HopSample, Peer, Plan, RequestDone, Snapshot, TokenEvent, TrustChanged
from core.mac.memory import rss_bytes
from core.requests import ModelChoice, PlanPreview
from core.settings import GB
from core.text import clean_text

Facts = dict[str, Any]


def to_json(facts: object) -> str:
    """One JSON object or list."""
    return msgspec.json.encode(facts).decode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of columns, the first one to the left, the others to the right."""
    cells = [list(head), *(list(r) for r in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return [
        "  ".join(
            c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def plan_lines(plan: Plan) -> list[str]:
    """Who owns which layers."""
    rows = [
        (
            s.peer + (" (head)" if s is plan.head else ""),
            f"{s.start}–{s.stop - 1}",
            str(s.stop - s.start),
            gigabytes(s.weight_bytes),
            gigabytes(s.kv_bytes),
            gigabytes(s.budget_bytes),
        )
        for s in plan.stages
    ]
    title = f"Plan: {plan.model}, {plan.layers} layers, topology {plan.topology}, context {plan.context} tokens"
    return [title, *table(("Mac", "layers", "count", "weights", "cache", "budget"), rows)]


def trust_line(trust: TrustChanged) -> str:
    """How far the cluster is trusted."""
    return f"Trust: {trust.level} (weakest: {trust.weakest or 'none'})"


def hop_lines(hops: Sequence[HopSample], names: dict[str, str]) -> list[str]:
    """Where the time of the last request went."""
    rows = [
        (
            f"{names.get(h.source, h.source[:8])} → {names.get(h.target, h.target[:8])}",
            str(h.frames),
            f"{h.bytes / 1e6:.2f} MB",
            *(f"{1e3 * s / max(1, h.frames):.2f}" for s in (h.compute_s, h.wait_s, h.seal_s, h.send_s, h.open_s)),
            "–" if h.rtt_s is None else f"{1e3 * h.rtt_s:.1f}",
        )
        for h in hops
    ]
    head = ("hop (ms per frame)", "frames", "sent", "compute", "wait", "seal", "send", "open", "rtt")
    return ["Hops:", *table(head, rows)]


def done_line(done: RequestDone) -> str:
    """How the answer went."""
    rate = f"{done.decode_tokens_per_s:.1f} tokens/s" if done.decode_tokens_per_s else "too short for a rate"
    first = f"{done.ttft_s:.2f} s" if done.ttft_s else "–"
    return f"{done.tokens} tokens, {rate}, first token after {first}, finish: {done.finish_reason}"


def answer_facts(now: Snapshot, tokens: Sequence[TokenEvent], done: RequestDone) -> Facts:
    """The object that `macluster demo --json` and `macluster run --json` print."""
    names = {p.device_id: p.name for p in now.peers}
    return {
        "plan": plan_facts(now.plan) if now.plan else None,
        "tokens": [t.token for t in tokens],
        "text": "".join(t.text for t in tokens) + done.text,
        "finish_reason": done.finish_reason,
        "problem": done.problem,
        "prompt_tokens": done.prompt_tokens,
        "ttft_s": done.ttft_s,
        "decode_tokens_per_s": done.decode_tokens_per_s,
        "hops": [hop_facts(h, names) for h in now.hops],
        "trust": {"level": now.trust.level, "weakest": now.trust.weakest},
        "workers": [worker_facts(p, now) for p in now.peers if p.worker_pid],
    }


def plan_facts(plan: Plan) -> Facts:
    """A plan with names for ids."""
    peers = {s.device_id: s.peer for s in plan.stages}
    return {
        "model": plan.model,
        "fingerprint": plan.fingerprint,
        "topology": plan.topology,
        "layers": plan.layers,
        "context": plan.context,
        "stages": [
            {
                "peer": s.peer,
                "device_id": s.device_id,
                "start": s.start,
                "stop": s.stop,
                "bytes": s.weight_bytes,
                "kv_bytes": s.kv_bytes,
                "budget_bytes": s.budget_bytes,
            }
            for s in plan.stages
        ],
        "output": peers[plan.output],
    }


def hop_facts(hop: HopSample, names: dict[str, str]) -> Facts:
    """A hop with names for ids; times in seconds."""
    facts: Facts = {"from": names.get(hop.source, hop.source), "to": names.get(hop.target, hop.target)}
    fields = ("frames", "bytes", "compute_s", "codec_s", "wait_s", "seal_s", "open_s", "send_s", "rtt_s", "queue")
    return facts | {field: getattr(hop, field) for field in fields}


def worker_facts(peer: Peer, now: Snapshot) -> Facts:
    """A worker's process and memory; the resident size is read now where the process is on this Mac."""
    weight = next((s.weight_bytes for s in now.stages if s.device_id == peer.device_id), 0)
    here = peer.is_self or peer.address.startswith("127.")  # the demo's Macs are all this one
    resident = (rss_bytes(peer.worker_pid or 0) if here else 0) or peer.worker_rss_bytes
    return {"peer": peer.name, "pid": peer.worker_pid, "rss_bytes": resident, "weight_bytes": weight}


def preview_facts(preview: PlanPreview) -> Facts:
    """What a load would do."""
    return {
        "plan": plan_facts(preview.plan) if preview.plan else None,
        "problem": preview.problem,
        "total_bytes": preview.total_bytes,
        "kv_bytes": preview.kv_bytes,
    }


def status_facts(now: Snapshot) -> Facts:
    """What `macluster status --json` prints."""
    return {
        "version": now.version,
        "trust": {"level": now.trust.level, "weakest": now.trust.weakest},
        "peers": now.peers,
        "plan_status": now.plan_status,
        "plan_problem": now.plan_problem,
        "plan": plan_facts(now.plan) if now.plan else None,
        "workers": [worker_facts(p, now) for p in now.peers if p.worker_pid],
        "running": now.running,
    }


def status_lines(now: Snapshot) -> list[str]:
    """What `macluster status` prints."""
    marks = {"connected": "●", "suspect": "▲", "lost": "✗", "seen": "○"}
    rows = [
        (
            f"{marks[p.state]} {clean_text(p.name)}{' (this Mac)' if p.is_self else ''}",
            p.short_id,
            p.state,
            p.trust,
            clean_text(p.chip) or "–",
            gigabytes(p.budget_bytes) if p.budget_bytes else "–",
            p.address or "–",
        )
        for p in now.peers
    ]
    lines = table(("Mac", "id", "state", "trust", "chip", "budget", "address"), rows)
    lines.append(trust_line(now.trust))
    lines.append(f"Model: {now.plan.model if now.plan else 'none'} ({now.plan_status})")
    if now.plan_problem:
        lines.append(clean_text(f"Problem: {now.plan_problem.what} {now.plan_problem.fix}"))
    return lines


def model_lines(models: Sequence[ModelChoice]) -> list[str]:
    """What `macluster models` prints."""
    rows = [
        (m.name, m.model_type, str(m.layers), gigabytes(m.total_bytes), m.quantization, fit_words(m)) for m in models
    ]
    return table(("model", "family", "layers", "size", "weights", "fit"), rows)


def fit_words(model: ModelChoice) -> str:
    """How a model fits, in a few words."""
    if model.loaded:
        return "loaded"
    if model.preview.plan is None:
        return model.preview.problem.what if model.preview.problem else "does not fit"
    count = len(model.preview.plan.stages)
    return "1 Mac, no hops" if count == 1 else f"{count} Macs"


def gigabytes(count: int) -> str:
    """ "1.2 GB", or MB below a tenth."""
    return f"{count / GB:.1f} GB" if count >= GB / 10 else f"{count / 1e6:.1f} MB"
