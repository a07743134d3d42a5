"""Proof that the ring computes correctly, before requests come: a short fixed prompt, whose logits have to be those of
the whole model.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import mlx.core as mx

from core.engine.ring_model import RingModel
from core.errors import StageFailed
from core.events import Plan
from core.link.arrays import decode_arrays
from core.models.slicing.ranks import BY_LAYERS
from core.plan.topology import has_ranks
from core.worker import reference_model
from core.worker.messages import Proved
from core.worker.pipeline import Pipeline
from core.worker.reference_model import Reference, WholeLogits, difference
from core.worker.ring_forward import RingForward

# Relative to the largest logit. In float32 two orders of summing differ by about 1e-6; half precision has 8 to 11 bits,
# and two chips may round them differently in every layer.
EXACT: Final = 1e-4
HALF: Final = 1 / 32
# A GPU rounds more, and a model may amplify it: this multiple of how much one process differs from itself when it reads
# the same tokens at once, rounds otherwise, and adds up in the parts of ranks. Wrong weights differ by more than that.
OF_ROUNDING: Final = 4
MOST: Final = 1 / 4

# called when a part of the prompt is read, with its tokens and seconds; with none for a step
GoesOn = Callable[[int, float], None]

_FIX: Final = (
    "Run the same version of macluster and mlx-lm on every Mac, download the model again there, and load it again."
)
_OTHER_WEIGHTS: Final = "Its weights overflow or are damaged: choose another version of the model."


def prove(plan: Plan, pipeline: Pipeline, reference: Reference, on: GoesOn) -> Proved:
    """Run the fixed prompt through the ring, and compare its logits with `reference`. Raises LinkError when the ring
    breaks, StageFailed or ModelError when the model fails or differs from the whole model.
    """
    started = perf_counter()
    model, whole = RingModel(RingForward(pipeline)), reference.whole
    parts = reference_model.parts_of_prompt(pipeline.stage.layers.vocab_size, min(reference_model.PART, plan.chunk))
    try:
        logits = _through_the_ring(model, parts, on)
        model.compose()  # drops what the prompt left on the stages
        seconds = perf_counter() - started
        found = compare(logits, whole, fix=BY_LAYERS if has_ranks(plan) else _FIX) if whole else None
    except StageFailed:
        reference.forget()
        raise
    why = "" if whole else reference.why
    tokens = reference_model.PROMPT_TOKENS
    return Proved(plan_gen=plan.plan_gen, seconds=seconds, tokens=tokens, difference=found, why=why)


def _through_the_ring(model: RingModel, parts: list[list[int]], on: GoesOn) -> mx.array:
    """Logits [POSITIONS, vocabulary] in float32, after the last parts."""
    caches = model.make_cache()
    rows = []
    for number, part in enumerate(parts, start=reference_model.POSITIONS - len(parts)):
        started = perf_counter()
        logits = model(mx.array([part]), cache=caches)[:, -1].astype(mx.float32)
        if number >= 0:
            check_sane(logits)
            rows.append(logits)
        on(len(part) if number < 0 else 0, perf_counter() - started)
    return mx.concatenate(rows)


def check_sane(logits: mx.array) -> None:
    """Raises StageFailed unless logits [1, vocabulary] choose a token. Some families exclude ids by minus infinity."""
    if mx.isnan(logits).any().item() or not mx.isfinite(logits.max()).item():
        raise StageFailed("The ring's logits are not numbers.", _OTHER_WEIGHTS)
    if (logits == logits[:, :1]).all().item():
        raise StageFailed("The ring's logits are all the same.", _OTHER_WEIGHTS)


def compare(ring: mx.array, whole: WholeLogits, *, fix: str = _FIX) -> float:
    """The largest difference between logits [positions, vocabulary]. Raises StageFailed if rounding can't
    explain it.
    """
    (other,) = decode_arrays(memoryview(whole.logits))
    if other.shape != ring.shape:
        raise StageFailed(f"The ring gives logits {ring.shape}, the whole model {other.shape}.", _FIX)
    found = difference(ring, other)
    largest = max(1.0, difference(mx.where(mx.isinf(other), 0.0, other), mx.zeros_like(other)))
    measured = min(OF_ROUNDING * whole.rounding, MOST * largest)
    allowed = max((EXACT if whole.exact else HALF) * largest, measured)
    chosen = mx.take_along_axis(other, mx.argmax(ring, axis=-1, keepdims=True), axis=-1)
    behind = difference(mx.max(other, axis=-1, keepdims=True), chosen)
    if not found <= allowed or not behind <= measured:  # NaN counts as a difference, too
        raise StageFailed(
            f"The ring's logits are not those of the whole model on one Mac: they differ by up to {found:.3g}, "
            f"where rounding explains {allowed:.2g}.",
            fix,
        )
    return found
