"""`slices FOLDER cpu|gpu`: compares a model cut into three stages with mlx_lm in one process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from core.demo import DEMO_MODEL
from core.engine.ring_model import RingModel
from core.engine.sampling import greedy
from core.local.local_ring import local_ring
from core.models.files.model_folder import read_folder
from core.models.slicing.building import build
from core.settings import DEVICE
from core.verify.check import Outcome, failed, passed, skipped
from core.verify.child import report
from core.worker.proof import EXACT, HALF
from core.worker.reference_model import fixed_prompt

CUTS: Final = (6, 11)
STEPS: Final = 24
TOLERANCE: Final = {"cpu": EXACT, "gpu": HALF}


def check(device: str) -> Outcome:
    """Both read the same prompt, then token by token the greedy answer of mlx_lm."""
    if device == "gpu" and not mx.is_available(mx.gpu):
        return skipped("MLX has no GPU here")
    os.environ[DEVICE] = device  # for the workers
    mx.set_default_device(mx.gpu if device == "gpu" else mx.cpu)
    whole = build(read_folder(DEMO_MODEL)).model
    with local_ring(DEMO_MODEL, CUTS) as stages:
        parts, expected = reference(whole, stages.vocab_size)
        return compared(expected, logits_of(RingModel(stages), parts), TOLERANCE[device])


def reference(whole: Any, vocabulary: int) -> tuple[list[list[int]], mx.array]:
    """The prompt and then the greedy tokens, one per part, with the logits [parts, vocabulary] after each part."""
    cache = make_prompt_cache(whole)
    parts = [fixed_prompt(vocabulary)]
    rows: list[mx.array] = []
    while len(rows) < STEPS:
        rows.append(whole(mx.array([parts[-1]]), cache=cache)[0, -1:].astype(mx.float32))
        mx.eval(rows[-1])
        parts.append([greedy(rows[-1])])
    return parts[:-1], mx.concatenate(rows)


def logits_of(model: RingModel, parts: Sequence[list[int]]) -> mx.array:
    """Logits [parts, vocabulary] of the ring after each part."""
    cache = model.make_cache()
    logits = mx.concatenate([model(mx.array([part]), cache=cache)[0, -1:].astype(mx.float32) for part in parts])
    mx.eval(logits)
    return logits


def compared(expected: mx.array, found: mx.array, tolerance: float) -> Outcome:
    """Compare logits within `tolerance`, relative to the largest logit. A different token is accepted where mlx_lm's
    own two best are closer to each other than the tolerance.
    """
    largest = max(1.0, _number(mx.abs(expected).max()))
    difference = _number(mx.abs(expected - found).max()) / largest
    best = mx.sort(expected, axis=-1)[:, -2:]
    is_tie = best[:, 1] - best[:, 0] <= tolerance * largest
    is_same = mx.argmax(expected, axis=-1) == mx.argmax(found, axis=-1)
    same, excused = (int(_number(each.sum())) for each in (is_same, ~is_same & is_tie))
    figure = (
        f"3 stages and mlx_lm choose the same token {same} of {len(expected)} times; logits differ by {difference:.1e} "
        f"of the largest (limit {tolerance:.1e})"
    )
    is_right = difference <= tolerance and same + excused == len(expected)  # also false for NaN
    return passed(figure) if is_right else failed(figure)


def _number(array: mx.array) -> float:
    value: Any = array.item()
    return float(value)


if __name__ == "__main__":
    report(check)
