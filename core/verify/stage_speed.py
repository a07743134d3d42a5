"""`stage_speed FOLDER`: decode speed of the demo model in 1, 2 and 3 stages on this machine, and of mlx_lm."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

import mlx.core as mx
from mlx_lm import load, stream_generate

from core.demo import DEMO_MODEL
from core.local.local_ring import TimedAnswer, ask, requests_ring
from core.verify.check import Outcome, failed, passed
from core.verify.child import report

TOKENS: Final = 48
PROMPT: Final = (101,)  # its answer is longer than that
CUTS: Final = ((), (8,), (6, 11))


def check() -> Outcome:
    """Speeds never fail. Tokens must be the same on the CPU, where sums don't depend on shapes."""
    expected = answer_of_mlx_lm()
    speeds, is_same = [], True
    for cuts in CUTS:
        with requests_ring(DEMO_MODEL, cuts) as head:
            ask(head, PROMPT, 2)
            answer = ask(head, PROMPT, TOKENS)
        speeds.append(_speed(answer.times))
        is_same = is_same and answer.tokens[: len(expected.tokens)] == expected.tokens  # mlx_lm stops at EOS
    mlx_lm_speed = _speed(expected.times)
    stages = ", ".join(f"{count} {speed:.0f} ({speed / mlx_lm_speed:.2f})" for count, speed in enumerate(speeds, 1))
    figure = f"tokens/s: mlx_lm {mlx_lm_speed:.0f}; stages {stages}; the tokens {'are the same' * is_same or 'differ'}"
    must_be_same = mx.default_device() == mx.cpu
    return passed(figure) if is_same or not must_be_same else failed(figure)


def answer_of_mlx_lm() -> TimedAnswer:
    """The answer of the whole model in this process, before any ring computes; the first one warms up."""
    model, tokenizer = load(str(DEMO_MODEL))[:2]
    for most in (2, TOKENS):
        told = stream_generate(model, tokenizer, list(PROMPT), max_tokens=most)
        tokens, times = zip(*((each.token, perf_counter()) for each in told), strict=True)
    return TimedAnswer(tokens, times)


def _speed(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


if __name__ == "__main__":
    report(check)
