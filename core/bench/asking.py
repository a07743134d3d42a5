"""Questions to a ring whose answers are measured."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final, NamedTuple

from core.bench.bench_models import FIRST_TOKEN, VOCABULARY
from core.bench.ring import RingAnswer, Settings, WorkerRing, a_request
from core.engine.requests import Request
from core.errors import WorkerError, error_from

# how a prompt is read where that is not compared: always in the same way, whatever was measured before
STEADY: Final = Settings(chunk=64, window=3, adapts=False)


class Timed(NamedTuple):
    """An answer, and the seconds from its question to its first token and to its last."""

    answer: RingAnswer
    first_s: float
    seconds: float


def a_prompt(tokens: int, number: int) -> tuple[int, ...]:
    """A prompt of so many tokens that begins unlike that of any other `number`: nothing of it is in memory yet."""
    return tuple(FIRST_TOKEN + (number + 7 * at) % (VOCABULARY - FIRST_TOKEN) for at in range(tokens))


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
