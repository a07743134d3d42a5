"""From logits to a token, by mlx-lm's own samplers, so that a seed gives what mlx-lm gives in one process."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
from mlx_lm.sample_utils import make_sampler


def token_sampler(temperature: float, top_p: float, seed: int | None) -> Callable[[mx.array], int]:
    """A function from logits [1, vocabulary] to a token id; temperature 0 takes the most likely one.

    A seed sets MLX's random state of this thread, as `mx.random.seed` does before `mlx_lm.generate`.
    """
    if seed is not None:
        mx.random.seed(seed)
    sample = make_sampler(temp=temperature, top_p=top_p)

    def pick(logits: mx.array) -> int:
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        return int(sample(logprobs).item())

    return pick
