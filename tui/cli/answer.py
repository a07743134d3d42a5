"""Prints an answer: its figures, its hops, its recoveries."""

from __future__ import annotations

from collections.abc import Sequence

from core.events import HopSample, Recovery, RequestDone, Snapshot, TokenEvent
from core.text import clean_text
from tui.cli.output import Facts, fields_of, table
from tui.cli.plan import plan_facts
from tui.cli.status import worker_facts


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
    rate = f"{done.decode_tokens_per_s:.1f} tokens/s" if done.decode_tokens_per_s else "too short for a rate"
    first = f"{done.ttft_s:.2f} s" if done.ttft_s else "–"
    words = [f"{done.tokens} tokens", rate, f"first token after {first}", f"finish: {done.finish_reason}"]
    if done.reused_tokens:
        words.append(f"{done.reused_tokens} of {done.prompt_tokens} prompt tokens cached")
    if done.beside_tokens:
        words.append(f"{done.beside_tokens} of {done.prompt_tokens} read by the prefill Mac")
    if done.drafted_tokens:
        words.append(f"{done.accepted_tokens} of {done.drafted_tokens} draft tokens accepted")
    return ", ".join(words)


def recovery_line(recovery: Recovery) -> str:
    return clean_text(f"{recovery.text} {recovery.fix}").rstrip()


def recovery_facts(recovery: Recovery) -> Facts:
    return fields_of(recovery, "state", "text", "fix", "mac", "since", "tokens", "done", "total", "eta_s", "choices")


def answer_facts(
    now: Snapshot,
    tokens: Sequence[TokenEvent],
    done: RequestDone,
    *,
    before: str = "",
    recoveries: Sequence[Recovery] = (),
) -> Facts:
    """JSON of an answer. `before` is the text of an answer that was continued; `tokens` are the new ones."""
    names = {p.device_id: p.name for p in now.peers}
    return {
        "plan": plan_facts(now.plan) if now.plan else None,
        "tokens": [t.token for t in tokens],
        "text": before + "".join(t.text for t in tokens) + done.text,
        "logprobs": [_logprobs_of(t) for t in tokens if t.logprob is not None],
        **fields_of(done, "finish_reason", "problem", "prompt_tokens", "reused_tokens", "beside_tokens"),
        **fields_of(done, "drafted_tokens", "accepted_tokens", "ttft_s", "decode_tokens_per_s"),
        "recoveries": [recovery_facts(one) for one in recoveries],
        "hops": [hop_facts(h, names) for h in now.hops],
        "trust": fields_of(now.trust, "level", "weakest"),
        "workers": [worker_facts(p, now) for p in now.peers if p.worker_pid],
    }


def _logprobs_of(token: TokenEvent) -> Facts:
    top = [{"token": one, "logprob": logprob} for one, logprob in token.top]
    return {"token": token.token, "logprob": token.logprob, "top": top}


def hop_facts(hop: HopSample, names: dict[str, str]) -> Facts:
    """A hop with names instead of ids; times in seconds."""
    facts: Facts = {"from": names.get(hop.source, hop.source), "to": names.get(hop.target, hop.target)}
    times = ("compute_s", "codec_s", "wait_s", "seal_s", "open_s", "send_s", "rtt_s")
    return facts | fields_of(hop, "frames", "bytes", *times, "queue", "path")
