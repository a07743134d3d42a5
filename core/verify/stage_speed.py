"""`stage_speed FOLDER`: how fast the demo model decodes in 1, 2 and 3 stages on this machine, beside mlx_lm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import mlx.core as mx

from core.demo import DEMO_MODEL
from core.local.mlx_lm_process import mlx_lm_process
from core.local.timed_answers import ask
from core.local.worker_ring import worker_ring
from core.verify.check import Outcome, failed, passed
from core.verify.child import report

TOKENS: Final = 48
PROMPT: Final = (101,)  # its answer is longer than that
CUTS: Final = ((), (8,), (6, 11))


def check() -> Outcome:
    """Figures of speed never fail; tokens must be the same where sums do not depend on shapes, on the CPU."""
    with mlx_lm_process(DEMO_MODEL) as solo:
        solo.generate(PROMPT, 2)
        said = solo.generate(PROMPT, TOKENS)
    speeds, is_same = [], True
    for cuts in CUTS:
        with worker_ring(DEMO_MODEL, cuts, draft=0) as ring:
            ask(ring, PROMPT, 2)
            answer = ask(ring, PROMPT, TOKENS, fresh=False).answer
        speeds.append(_speed(answer.times))
        is_same = is_same and answer.tokens[: len(said.tokens)] == said.tokens  # mlx_lm stops at the end of a text
    alone_at = _speed(said.times)
    stages = ", ".join(f"{count} {speed:.0f} ({speed / alone_at:.2f})" for count, speed in enumerate(speeds, 1))
    figure = (
        f"tokens a second: mlx_lm {alone_at:.0f}; stages {stages}; the tokens {'are the same' * is_same or 'differ'}"
    )
    must_be_same = mx.default_device() == mx.cpu
    return passed(figure) if is_same or not must_be_same else failed(figure)


def _speed(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0])


if __name__ == "__main__":
    report(check)
