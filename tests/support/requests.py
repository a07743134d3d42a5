"""Requests of many kinds, for an engine."""

from __future__ import annotations

import random
from typing import Final

import pytest

from core.engine.requests import Request
from core.sampling_options import Sampling
from tests.support.worker_ring import a_request

CHUNK: Final = 8
LAYERS: Final = 4
CUTS: Final = (1, 3)
VOCABULARY: Final = 512
SAMPLINGS: Final = (
    pytest.param(Sampling(temperature=0.8, seed=11), id="temperature"),
    pytest.param(Sampling(temperature=1.0, top_k=12, seed=12), id="top-k"),
    pytest.param(Sampling(temperature=1.0, top_p=0.7, seed=13), id="top-p"),
    pytest.param(Sampling(temperature=1.2, min_p=0.05, seed=14), id="min-p"),
    pytest.param(Sampling(repetition_penalty=1.4, repetition_context=30), id="repetition"),
    pytest.param(Sampling(presence_penalty=1.5, frequency_penalty=0.7), id="presence-and-frequency"),
    pytest.param(Sampling(logit_bias={7: 0.5, 9: -3.0, 200: 1.0}), id="bias"),
    pytest.param(Sampling(temperature=0.7, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.1, seed=15), id="all"),
)


def some_requests(seed: int, count: int, *, prompt: int = 40, answer: int = 24) -> list[Request]:
    """Requests of random lengths; every third one has an end token that occurs in its answer."""
    dice = random.Random(seed)
    requests = []
    for number in range(count):
        tokens = [dice.randrange(8, VOCABULARY) for _ in range(dice.randint(1, prompt))]
        eos = dice.sample(range(8, VOCABULARY), 40) if number % 3 == 0 else []
        requests.append(a_request(tokens, max_tokens=dice.randint(1, answer), eos=eos, min_tokens=number % 4))
    return requests
