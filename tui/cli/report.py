"""What the commands print: the same facts as plain text for people and as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from core.events import (
    Batch,
    HopSample,
    Peer,
    Plan,
    PlanLoaded,
    Recovery,
    RequestDone,
    Snapshot,
    TokenEvent,
    TrustChanged,
)
from core.mac.memory import rss_bytes
from core.plan.fit import missing_bytes, shortage
from core.plan.notes import before_which, ranges, sees
from core.requests import Forecast, ModelChoice, PlanPreview, SpeedResult, UnfinishedAnswer
from core.settings import GB
from core.text import clean_text
from tui.state.batch import summary
from tui.state.survival import survival

Facts = dict[str, Any]


def to_json(facts: object) -> str:
    """One JSON object or list."""
    return msgspec.json.encode(facts).decode()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,)) -> list[str]:
    """Lines of columns, those of the numbers `left` to the left, the others to the right."""
    cells = [list(head), *(list(r) for r in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def plan_lines(plan: Plan, hop_bytes: Sequence[int] = ()) -> list[str]:
    """Who owns which layers, in their order, what stays free, what each sends for a token where that is known, the
    notes, and which of them may be lost.
    """
    rows = [
        (
            s.peer + (" (head)" if s is plan.head else ""),
            ranges(range(s.start, s.stop)),
            str(s.stop - s.start),
            gigabytes(s.weight_bytes),
            gigabytes(s.kv_bytes),
            gigabytes(s.budget_bytes),
            gigabytes(-missing_bytes(s)) if missing_bytes(s) <= 0 else f"{gigabytes(missing_bytes(s))} short",
            *([f"{hop_bytes[plan.stages.index(s)]} B"] if hop_bytes else []),
        )
        for s in plan.owners
    ]
    head = ("Mac", "layers", "count", "weights", "cache", "budget", "free", *(["sends/token"] if hop_bytes else []))
    title = f"Plan: {plan.model}, {plan.layers} layers, topology {plan.topology}, context {plan.context} tokens"
    can_lose = "" if shortage(plan) else survival(plan)
    return [title, *table(head, rows), *plan.notes, *([can_lose] if can_lose else [])]


def proof_lines(loaded: PlanLoaded) -> list[str]:
    """What the ring showed of itself when it was loaded, where it showed anything."""
    return [clean_text(loaded.proof)] if loaded.proof else []


def preview_lines(preview: PlanPreview) -> list[str]:
    """What `macluster plan` prints: the split, who sees what, what is particular about the model, what does not fit."""
    split = preview.plan or preview.draft
    lines = plan_lines(split, preview.hop_bytes) if split else []
    lines += [f"{s.peer} would see {sees(split, s.device_id)}." for s in split.owners] if split else []
    if split and preview.cuts is not None:
        if len(preview.cuts) < split.layers - 1:
            only = f"It can be cut {before_which(preview.cuts)} only."
            lines.append(only if preview.cuts else "It cannot be split.")
        if split.batched:
            lines.append("Rows of several requests share a batch.")
    lines += forecast_lines(preview.forecast) if preview.forecast else []
    for stage, share in zip(split.stages if split else (), preview.parts, strict=False):
        lines.append(f"{stage.peer} reads {gigabytes(sum(end - begin for _, begin, end in share))}:")
        lines += [clean_text(f"  {file}  bytes {begin}–{end - 1}") for file, begin, end in share]
    if preview.problem:
        lines.append(clean_text(f"{preview.problem.what} {preview.problem.fix}".rstrip()))
    return lines


def forecast_lines(told: Forecast) -> list[str]:
    """What the plan would be worth to one person who asks, and on what grounds."""
    basis = "from past runs here" if told.measured else "a guess by the chip"
    speed = f"Expected: {told.tokens_per_s:.1f} tokens/s for one request ({basis})"
    first = "" if told.prompt_s is None else f" first token after {told.prompt_s:.1f} s for each 1000 tokens of prompt,"
    lines = [f"{speed},{first} loaded in {told.load_s:.0f} s."]
    return [*lines, clean_text(told.advice)] if told.advice else lines


def trust_line(trust: TrustChanged) -> str:
    """How far the cluster is trusted."""
    return clean_text(f"Trust: {trust.level} (weakest: {trust.weakest or 'none'}) {trust.reason}").rstrip()


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


def speed_facts(found: SpeedResult) -> Facts:
    """What `macluster speedtest --json` prints."""
    return msgspec.structs.asdict(found) | {"bytes_per_s": found.bytes_per_s}


def speed_lines(found: SpeedResult) -> list[str]:
    """What it prints for people."""
    rtt, least, loaded = (f"{1e3 * s:.2f} ms" for s in (found.rtt_s, found.rtt_min_s, found.loaded_rtt_s))
    return [
        f"{rtt} there and back (least {least}, of {found.round_trips} empty messages)",
        f"{found.bytes_per_s / 1e6:.0f} MB/s sealed ({found.frames} messages, each {loaded} there and back)",
        *(["An answer was being written meanwhile: ask again when none is."] if found.answering else []),
    ]


def done_line(done: RequestDone) -> str:
    """How the answer went."""
    rate = f"{done.decode_tokens_per_s:.1f} tokens/s" if done.decode_tokens_per_s else "too short for a rate"
    first = f"{done.ttft_s:.2f} s" if done.ttft_s else "–"
    words = [f"{done.tokens} tokens", rate, f"first token after {first}", f"finish: {done.finish_reason}"]
    if done.reused_tokens:
        words.append(f"{done.reused_tokens} of {done.prompt_tokens} prompt tokens from memory")
    if done.drafted_tokens:
        words.append(f"{done.accepted_tokens} of {done.drafted_tokens} guesses right")
    return ", ".join(words)


def recovery_line(told: Recovery) -> str:
    """What happened to the plan, and what the person can do."""
    return clean_text(f"{told.text} {told.fix}").rstrip()


def recovery_facts(told: Recovery) -> Facts:
    """The same for programs; `tokens` are committed, `done` of `total` are read again."""
    fields = ("state", "text", "fix", "mac", "since", "tokens", "done", "total", "eta_s", "choices")
    return {field: getattr(told, field) for field in fields}


def answer_facts(
    now: Snapshot,
    tokens: Sequence[TokenEvent],
    done: RequestDone,
    *,
    before: str = "",
    recoveries: Sequence[Recovery] = (),
) -> Facts:
    """The object that `macluster demo --json` and `macluster run --json` print. The text `before` was there already
    when the answer was continued; `tokens` are those that came then.
    """
    names = {p.device_id: p.name for p in now.peers}
    return {
        "plan": plan_facts(now.plan) if now.plan else None,
        "tokens": [t.token for t in tokens],
        "text": before + "".join(t.text for t in tokens) + done.text,
        "logprobs": [_likely(t) for t in tokens if t.logprob is not None],
        "finish_reason": done.finish_reason,
        "problem": done.problem,
        "prompt_tokens": done.prompt_tokens,
        "reused_tokens": done.reused_tokens,
        "drafted_tokens": done.drafted_tokens,
        "accepted_tokens": done.accepted_tokens,
        "ttft_s": done.ttft_s,
        "decode_tokens_per_s": done.decode_tokens_per_s,
        "recoveries": [recovery_facts(one) for one in recoveries],
        "hops": [hop_facts(h, names) for h in now.hops],
        "trust": {"level": now.trust.level, "weakest": now.trust.weakest},
        "workers": [worker_facts(p, now) for p in now.peers if p.worker_pid],
    }


def _likely(token: TokenEvent) -> Facts:
    top = [{"token": one, "logprob": logprob} for one, logprob in token.top]
    return {"token": token.token, "logprob": token.logprob, "top": top}


def plan_facts(plan: Plan) -> Facts:
    """A plan with names for ids; `free_bytes` is below zero by what is missing on a Mac."""
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
                "free_bytes": -missing_bytes(s),
                "sees": sees(plan, s.device_id),
            }
            for s in plan.stages
        ],
        "output": peers[plan.output],
        "batched": plan.batched,
        "notes": plan.notes,
        "indispensable": [peers[device_id] for device_id in plan.indispensable if device_id in peers],
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
    """What a load would do; `draft` is the split that does not fit, `cuts` None where nobody has examined the model."""
    split = preview.plan or preview.draft
    names = [s.peer for s in split.stages] if split else []
    return {
        "plan": plan_facts(preview.plan) if preview.plan else None,
        "draft": plan_facts(preview.draft) if preview.draft else None,
        "problem": preview.problem,
        "cuts": preview.cuts,
        "hops": [
            {"from": names[i], "to": names[(i + 1) % len(names)], "bytes_per_token": size}
            for i, size in enumerate(preview.hop_bytes)
        ],
        "parts": [
            {"peer": name, "files": [{"file": f, "begin": a, "end": b} for f, a, b in share]}
            for name, share in zip(names, preview.parts, strict=False)
        ],
        "total_bytes": preview.total_bytes,
        "kv_bytes": preview.kv_bytes,
        "forecast": forecast_facts(preview.forecast) if preview.forecast else None,
    }


def forecast_facts(told: Forecast) -> Facts:
    """A forecast with its sums; times in seconds, `stages_s` and `hops_s` in ring order."""
    facts: Facts = msgspec.to_builtins(told)
    return facts | {"token_s": told.token_s, "tokens_per_s": told.tokens_per_s}


def status_facts(now: Snapshot) -> Facts:
    """What `macluster status --json` prints."""
    return {
        "version": now.version,
        "trust": msgspec.structs.asdict(now.trust),
        "peers": now.peers,
        "plan_status": now.plan_status,
        "plan_problem": now.plan_problem,
        "plan": plan_facts(now.plan) if now.plan else None,
        "workers": [worker_facts(p, now) for p in now.peers if p.worker_pid],
        "running": now.running,
        "batch": batch_facts(now.batch, now.plan) if now.plan else None,
        "counters": msgspec.structs.asdict(now.counters),
    }


def batch_facts(batch: Batch, plan: Plan) -> Facts:
    """The rows that run, then the queue, beside what the plan has of each."""
    most = {"rows_max": plan.rows, "context_tokens": plan.context, "waiting": len(batch.queue)}
    facts: Facts = msgspec.to_builtins(batch)
    return most | {field: fact for field, fact in facts.items() if field != "type"}


def batch_lines(batch: Batch, plan: Plan) -> list[str]:
    """How full the plan is, and a line a row."""
    rows = [
        (r.request_id[:8], r.state, *map(str, (r.prompt_tokens, r.read, r.written)), str(r.lane or "–"))
        for r in batch.rows
    ]
    head = ("row", "state", "prompt", "read", "written", "lane")
    return [f"Rows: {summary(batch, plan)}", *(table(head, rows, left=(0, 1)) if rows else [])]


def peer_lines(peers: Sequence[Peer]) -> list[str]:
    """What `macluster peers` prints: a line a Mac, and why one was not reached."""
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
        for p in peers
    ]
    lines = table(("Mac", "id", "state", "trust", "chip", "budget", "address"), rows)
    return [*lines, *(clean_text(f"{p.name} ({p.short_id}): {p.problem}") for p in peers if p.problem)]


def status_lines(now: Snapshot) -> list[str]:
    """What `macluster status` prints."""
    lines = [*peer_lines(now.peers), trust_line(now.trust)]
    lines.append(f"Model: {now.plan.model if now.plan else 'none'} ({now.plan_status})")
    if now.plan_problem:
        lines.append(clean_text(f"Problem: {now.plan_problem.what} {now.plan_problem.fix}"))
    lines += batch_lines(now.batch, now.plan) if now.plan else []
    counted = [f"{name.replace('_', ' ')} {n}" for name, n in msgspec.structs.asdict(now.counters).items() if n]
    return [*lines, f"Network: {', '.join(counted)}"] if counted else lines


def unfinished_lines(answers: Sequence[UnfinishedAnswer]) -> list[str]:
    """How many answers were cut off, and how the newest goes on."""
    if not answers:
        return []
    how = clean_text(f"`macluster run {answers[0].model} --continue` goes on with the newest")
    return [f"Unfinished answers: {len(answers)}. {how}, `macluster status --json` lists them."]


def unfinished_facts(answers: Sequence[UnfinishedAnswer]) -> list[Facts]:
    """What was cut off, without its words."""
    fields = ("request_id", "model", "tokens", "max_tokens", "at")
    return [{field: getattr(one, field) for field in fields} for one in answers]


def model_lines(models: Sequence[ModelChoice]) -> list[str]:
    """What `macluster models` prints."""
    head = ("model", "family", "weights", "size", "layers", "context", "fit")
    return table(head, [(m.name, *_about(m), fit_words(m)) for m in models], left=(0, 1, len(head) - 1))


def _about(model: ModelChoice) -> tuple[str, ...]:
    if not model.layers:
        return ("–",) * 5
    size = gigabytes(model.total_bytes)
    return model.model_type, model.quantization, size, str(model.layers), str(model.context_max)


def model_facts(model: ModelChoice) -> Facts:
    """A model as `macluster models --json` prints it."""
    facts: Facts = msgspec.to_builtins(model)
    return facts | {"fit": fit_words(model), "preview": preview_facts(model.preview)}


def fit_words(model: ModelChoice) -> str:
    """How a model fits, in a few words."""
    if model.loaded:
        return "loaded"
    plan, draft, problem = model.preview.plan, model.preview.draft, model.preview.problem
    if plan and model.preview.missing_on:
        return f"{len(plan.stages)} Macs, {len(model.preview.missing_on)} of which lack it"
    if plan:
        return "1 Mac, no hops" if len(plan.stages) == 1 else f"{len(plan.stages)} Macs"
    if draft:
        worst = max(draft.stages, key=missing_bytes)
        return f"needs {gigabytes(missing_bytes(worst))} more on {worst.peer}"
    return clean_text(problem.what) if problem else "does not fit"


def gigabytes(count: int) -> str:
    """ "1.2 GB", or MB below a tenth."""
    return f"{count / GB:.1f} GB" if count >= GB / 10 else f"{count / 1e6:.1f} MB"
