"""A turn reuses the caches that the answer before it left in memory, where the model's kind of cache allows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.alone import Alone
from tests.support.cluster import Make
from tests.support.kinds import Kind, model_of
from tests.support.reloading import Rings, shared_rings
from tests.support.worker_ring import a_request

CHUNK: Final = 8
PROMPT: Final = list(range(40, 70))
ANSWER: Final = 12
BEFORE: Final = 4
COMMON: Final = [100 + 7 * at % 60 for at in range(60)]


@pytest.fixture(scope="module")
def rings() -> Iterator[Rings]:
    with shared_rings() as shared:
        yield shared


@pytest.mark.parametrize(
    ("family", "kept"),
    [
        pytest.param("llama", len(PROMPT) + BEFORE, id="keys: up to the edit"),
        pytest.param(
            "gemma3_text", len(PROMPT) - 1, id="windows: up to the end of the prompt", marks=pytest.mark.nightly
        ),
        pytest.param(
            "qwen3_next", len(PROMPT) - 1, id="states: up to the end of the prompt", marks=pytest.mark.nightly
        ),
    ],
)
def test_a_turn_reads_what_is_new_in_it(made: Make, rings: Rings, family: str, kept: int) -> None:
    """`kept`: tokens not read again if the first answer is changed after its first few tokens."""
    directory = model_of(Kind(family), made)
    alone = Alone(directory, CHUNK)
    ring = rings.ring(directory, (3, 6), fresh=True, chunk=CHUNK)
    (first,) = ring.generate_all([a_request(PROMPT, max_tokens=ANSWER)])
    second = a_request([*PROMPT, *first.tokens, 81, 82, 83], max_tokens=ANSWER)
    edited = a_request([*PROMPT, *first.tokens[:BEFORE], 90, 91], max_tokens=ANSWER)
    again = a_request(PROMPT, max_tokens=ANSWER)
    answers = [ring.generate_all([request])[0] for request in (second, edited, again)]
    branches = [a_request([*COMMON, 90 + at, 91], max_tokens=ANSWER) for at in range(3)]
    together = [*ring.generate_all(branches[:2]), *ring.generate_all(branches[2:])]
    assert first.done.reused_tokens == 0
    assert [answer.done.reused_tokens for answer in answers] == [len(PROMPT) + ANSWER - 1, kept, len(PROMPT) - 1]
    assert [answer.tokens for answer in answers] == [alone.answer(r).tokens for r in (second, edited, again)]
    assert together[2].done.reused_tokens == len(COMMON)
    assert together[1].done.reused_tokens == len(COMMON) or (
        family != "llama" and not together[1].done.reused_tokens
    ), "it came late"
    assert [answer.tokens for answer in together] == [alone.answer(r).tokens for r in branches]


def test_an_edit_in_the_middle_of_the_prompt_keeps_what_is_before_it(made: Make, rings: Rings) -> None:
    directory = made("llama")
    edited = a_request([*PROMPT[:20], 90, 91, *PROMPT[22:]], max_tokens=ANSWER)
    ring = rings.ring(directory, (3, 6), fresh=True, chunk=CHUNK)
    ring.generate_all([a_request(PROMPT, max_tokens=ANSWER)])
    (answer,) = ring.generate_all([edited])
    assert answer.done.reused_tokens == 20
    assert answer.tokens == Alone(directory, CHUNK).answer(edited).tokens
