"""Asks this Mac's node and prints the answer as it streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from math import inf
from types import MappingProxyType
from typing import Final

from core.errors import MaclusterError, error_from
from core.events import HopSample, Recovery, RequestDone, Snapshot, TokenEvent
from core.requests.answers import AnswerId, ChatRequest, UnfinishedAnswer
from core.text import clean_text
from tui.cli.output import Facts, fields_of, table, to_json
from tui.cli.plan import plan_facts
from tui.cli.status import worker_facts
from tui.cli.watch import Watch

ANSWER_S: Final = 3600.0
CANCEL_S: Final = 2.0
RECOVERY_FIELDS: Final = ("state", "text", "fix", "mac", "since", "tokens", "done", "total", "eta_s", "choices")


async def answer(
    watch: Watch,
    asked: ChatRequest | UnfinishedAnswer,
    *,
    as_json: bool,
    hops: bool = True,
    more: Facts | None = None,
    of_workers: Mapping[str, Facts] = MappingProxyType({}),
    on_text: Callable[[str], None] = lambda _: None,
) -> RequestDone:
    """Ask, or continue an answer, and print it as it streams, then its figures; or print all of it as JSON.

    `more` and `of_workers` (by name) add facts to the JSON. Each piece of text also goes to `on_text`. Ctrl+C cancels
    the answer and prints what exists. Raises the node's refusal, or the error that ended the answer.
    """
    begun = asked.text if isinstance(asked, UnfinishedAnswer) else ""
    printed = _Answer(len(watch.seen), begun, on_text, as_it_comes=not as_json)
    wanted = asked if isinstance(asked, ChatRequest) else AnswerId(request_id=asked.request_id)
    async with AsyncExitStack() as attended:
        asking = asyncio.create_task(attended.enter_async_context(watch.client.attended(wanted)))
        try:
            printed.begin((await asyncio.shield(asking)).request_id)
            await _until_done(watch, printed)
        except asyncio.CancelledError:
            with contextlib.suppress(MaclusterError, TimeoutError):  # a node that ended has stopped the answer, too
                printed.begin((await asyncio.wait_for(asking, CANCEL_S)).request_id)
                await watch.client.cancel(printed.request_id)
                await watch.until(printed.is_done, CANCEL_S, "Cancelling")
                printed.print_end(watch, more or {}, of_workers, hops=False)
            raise
    printed.print_end(watch, more or {}, of_workers, hops=hops)
    assert printed.done is not None
    if printed.done.problem:
        raise error_from(printed.done.problem)
    return printed.done


def print_piece(text: str) -> None:
    print(clean_text(text), end="", flush=True)


async def _until_done(watch: Watch, printed: _Answer) -> None:
    """Wait up to an hour for the end; time spent waiting for a Mac does not count."""

    def waits(watch: Watch) -> bool:
        return watch.now.recovery is not None and watch.now.recovery.state == "wait"

    while not printed.is_done(watch):
        await watch.until(lambda w: printed.is_done(w) or waits(w), ANSWER_S, "The answer")
        await watch.until(lambda w: printed.is_done(w) or not waits(w), inf, "Waiting")


class _Answer:
    """The events of `request_id` since event `mark`; the text `begun` was written before."""

    def __init__(self, mark: int, begun: str, on_text: Callable[[str], None], *, as_it_comes: bool) -> None:
        self.request_id = ""
        self.done: RequestDone | None = None
        self._mark, self._begun, self._on_text, self._as_it_comes = mark, begun, on_text, as_it_comes
        self._tokens: list[TokenEvent] = []
        self._recoveries: list[Recovery] = []
        self._at_margin = True

    def begin(self, request_id: str) -> None:
        if not self.request_id:
            self.request_id = request_id
            self._show(self._begun)

    def is_done(self, watch: Watch) -> bool:
        fresh, self._mark = watch.seen[self._mark :], len(watch.seen)
        for event in fresh:
            match event:
                case TokenEvent(request_id=self.request_id):
                    self._tokens.append(event)
                    self._show(event.text)
                case RequestDone(request_id=self.request_id):
                    self.done = event
                    self._show(event.text)
                case Recovery(requests=requests) if not requests or self.request_id in requests:
                    self._report(event)
                case _:
                    pass
        return self.done is not None

    def _show(self, text: str) -> None:
        self._on_text(text)
        if self._as_it_comes and text:
            print_piece(text)
            self._at_margin = text.endswith("\n")

    def _report(self, event: Recovery) -> None:
        if self._recoveries and self._recoveries[-1].text == event.text:
            return
        self._recoveries.append(event)
        if not self._as_it_comes:
            return
        if not self._at_margin and sys.stdout.isatty() and sys.stderr.isatty():
            print(file=sys.stderr)
            self._at_margin = True
        is_dim = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
        line = recovery_line(event)
        print(f"\x1b[2m{line}\x1b[0m" if is_dim else line, file=sys.stderr, flush=True)

    def print_end(self, watch: Watch, more: Facts, of_workers: Mapping[str, Facts], *, hops: bool) -> None:
        assert self.done is not None
        if not self._as_it_comes:
            facts = answer_facts(watch.now, self._tokens, self.done, before=self._begun, recoveries=self._recoveries)
            workers = [worker | of_workers.get(worker["peer"], {}) for worker in facts["workers"]]
            print(to_json(facts | more | {"workers": workers}))
            return
        print("\n")
        if hops and watch.now.hops:
            print("\n".join(hop_lines(watch.now.hops, {p.device_id: p.name for p in watch.now.peers})))
        if hops:
            print(done_line(self.done))


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
        "recoveries": [fields_of(one, *RECOVERY_FIELDS) for one in recoveries],
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
