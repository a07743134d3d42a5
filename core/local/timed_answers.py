"""Timed answers of a ring, and a check that their prompts were really read."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from core.engine.requests import Request
from core.errors import WorkerError, error_from
from core.local.worker_ring import RingAnswer, WorkerRing, a_request


class Timed(NamedTuple):
    """An answer with its times, in seconds after the request."""

    answer: RingAnswer
    first_s: float  # to the first token
    seconds: float  # to the last token


def ask(ring: WorkerRing, prompt: Sequence[int], tokens: int, *, fresh: bool = True) -> Timed:
    """Decode `tokens` greedy tokens. Raises what `ask_all` raises."""
    started = perf_counter()
    (answer,) = ask_all(ring, [a_request(prompt, max_tokens=tokens)], fresh=fresh)
    return Timed(answer, answer.times[0] - started, answer.times[-1] - started)


def ask_all(ring: WorkerRing, requests: Sequence[Request], *, fresh: bool = True) -> list[RingAnswer]:
    """Send requests at once and wait. Raises an answer's error, or WorkerError if a `fresh` prompt was cached."""
    answers = ring.generate_all(requests)
    for answer in answers:
        if answer.done.problem:
            raise error_from(answer.done.problem)
        if fresh and answer.done.reused_tokens:
            raise WorkerError(f"{answer.done.reused_tokens} tokens of the prompt were in memory already.")
    return answers
