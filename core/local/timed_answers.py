"""Questions to a ring whose answers are measured."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from core.engine.requests import Request
from core.errors import WorkerError, error_from
from core.local.worker_ring import RingAnswer, WorkerRing, a_request


class Timed(NamedTuple):
    """An answer, and the seconds from its question to its first token and to its last."""

    answer: RingAnswer
    first_s: float
    seconds: float


def ask(ring: WorkerRing, prompt: Sequence[int], tokens: int, *, fresh: bool = True) -> Timed:
    """`tokens` greedy tokens. Raises what `ask_all` raises."""
    started = perf_counter()
    (answer,) = ask_all(ring, [a_request(prompt, max_tokens=tokens)], fresh=fresh)
    return Timed(answer, answer.times[0] - started, answer.times[-1] - started)


def ask_all(ring: WorkerRing, requests: Sequence[Request], *, fresh: bool = True) -> list[RingAnswer]:
    """The answers to questions that are asked at once. Raises what the ring reports, and WorkerError where a prompt
    that is `fresh` was in memory, even in part: it would be measured as if it had been read.
    """
    answers = ring.generate_all(requests)
    for answer in answers:
        if answer.done.problem:
            raise error_from(answer.done.problem)
        if fresh and answer.done.reused:
            raise WorkerError(f"{answer.done.reused} tokens of the prompt were in memory already.")
    return answers
