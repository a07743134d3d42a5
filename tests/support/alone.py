"""Reference for rows that run with others: the answer of mlx_lm to one request in one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import mlx_lm
import msgspec
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from core.engine.requests import Request
from core.sampling_options import Sampling


class ReferenceAnswer(NamedTuple):
    """The tokens of an answer, and the logarithm of the probability of each."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


class Alone:
    """One model in this process. It computes each answer once, for any number of rings."""

    def __init__(self, directory: Path, chunk: int) -> None:
        self._model: Any = mlx_lm.load(str(directory))[0]
        self._chunk = chunk
        self._said: dict[bytes, ReferenceAnswer] = {}

    def answer(self, request: Request) -> ReferenceAnswer:
        """Answer of generate_step with mlx_lm's own samplers; it stops where the engine's rows stop."""
        asked = msgspec.msgpack.encode(msgspec.structs.replace(request, request_id=""))
        if asked not in self._said:
            self._said[asked] = self._answer(request)
        return self._said[asked]

    def _answer(self, request: Request) -> ReferenceAnswer:
        how = request.sampling
        if how.seed is not None:
            mx.random.seed(how.seed)
        tokens: list[int] = []
        logprobs: list[float] = []
        steps = generate_step(
            mx.array(request.tokens),
            self._model,
            max_tokens=request.max_tokens,
            prefill_step_size=self._chunk,
            sampler=make_sampler(how.temperature, how.top_p, how.min_p, top_k=how.top_k),
            logits_processors=[*_processors(how), _not_yet(request)],
        )
        for token, spread in steps:
            tokens.append(int(token))
            logprobs.append(float(spread[int(token)].item()))
            if tokens[-1] in request.eos:
                break
        return ReferenceAnswer(tuple(tokens), tuple(logprobs))


def _processors(how: Sampling) -> Any:
    return make_logits_processors(
        how.logit_bias or None,
        how.repetition_penalty,
        how.repetition_context,
        how.presence_penalty,
        how.presence_context,
        how.frequency_penalty,
        how.frequency_context,
    )


def _not_yet(request: Request) -> Any:
    """Ban the end tokens until there are `min_tokens` tokens."""

    def process(tokens: mx.array, logits: mx.array) -> mx.array:
        if request.eos and tokens.size - len(request.tokens) < request.min_tokens:
            logits[:, mx.array(request.eos)] = -mx.inf
        return logits

    return process


def wanders(answers: Sequence[ReferenceAnswer]) -> bool:
    """Whether references can show a fault: at least half of all their tokens are distinct within their answer."""
    distinct = sum(len(set(answer.tokens)) for answer in answers)
    return 2 * distinct >= sum(len(answer.tokens) for answer in answers)
