"""Proof that the ring computes correctly, before requests come: a short fixed prompt, on demand against the whole
model.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from time import monotonic, perf_counter
from typing import Final

import mlx.core as mx
import msgspec

from core.engine.ring_model import RingModel
from core.engine.sampling import greedy
from core.errors import Problem, StageFailed, error_from
from core.events import Plan
from core.link.arrays import decode_arrays
from core.models.files.sandbox import Job, run_child
from core.models.slicing.ranks import BY_LAYERS
from core.plan.topology import has_ranks
from core.rates import Throttle
from core.settings import MIB
from core.worker.messages import Prove, Proved
from core.worker.pipeline import Pipeline
from core.worker.reference_model import REFUSED, Task, Whole, chunks, difference
from core.worker.ring_forward import RingForward

PROMPT_TOKENS: Final = 24
PART: Final = 8  # tokens that travel together: few, so that even a slow Mac shows that it goes on
POSITIONS: Final = 4
TELL_S: Final = 5.0
START_S: Final = 30.0
BYTES_PER_S: Final = 100e6
POLL_S: Final = 0.05

# Relative to the largest logit. In float32 two orders of summing differ by about 1e-6; half precision has 8 to 11 bits,
# and two chips may round them differently in every layer.
EXACT: Final = 1e-4
HALF: Final = 1 / 32
# A GPU rounds more, and a model may amplify it: this multiple of how much one process differs from itself when it reads
# the same tokens in other chunks, and adds up in the parts of ranks. Wrong weights differ by more than that.
OF_ROUNDING: Final = 4
MOST: Final = 1 / 4

# called when a part of the prompt is read, with its tokens and seconds; with none for every other sign of progress
GoesOn = Callable[[int, float], None]

_FIX: Final = "Run the same version of macluster on every Mac, download the model again there, and load it again."
_OTHER_WEIGHTS: Final = "Its weights overflow or are damaged: choose another version of the model."


def prove(order: Prove, plan: Plan, pipeline: Pipeline, *, idle: Callable[[], None], on: GoesOn) -> Proved:
    """Run the fixed prompt through the ring, and if requested through the whole model. While that runs, `idle` is
    called, and may raise, which ends it. Raises LinkError when the ring breaks, StageFailed or ModelError when the
    model fails or differs from the whole model.
    """
    started = perf_counter()
    chunk = min(PART, plan.chunk)
    prompt = fixed_prompt(pipeline.stage.layers.vocab_size)
    model = RingModel(RingForward(pipeline))
    logits = _through_the_ring(model, prompt, chunk, on)
    model.compose()  # drops what the prompt left on the stages
    seconds = perf_counter() - started
    found = None
    if order.verify:
        task = Task(
            directory=order.directory,
            tokens=prompt,
            chunk=chunk,
            kv_bits=plan.kv_bits,
            room_bytes=_room(plan),
            ranks=len(plan.stages) if has_ranks(plan) else 1,
            told=[greedy(row) for row in mx.split(logits, POSITIONS)],
        )
        tell = Throttle(TELL_S)

        def wait_on() -> None:
            idle()
            if tell.take(monotonic()):
                on(0, 0.0)

        whole = run_whole(task, sum(stage.weight_bytes for stage in plan.stages), logits.nbytes, wait_on)
        found = compare(logits, whole, fix=BY_LAYERS if has_ranks(plan) else _FIX)
    return Proved(plan_gen=order.plan_gen, seconds=seconds, tokens=len(prompt), difference=found)


def _room(plan: Plan) -> int | None:
    """Bytes that the whole model may take next to a rank; None if the user requested the comparison."""
    if not has_ranks(plan):
        return None
    own = plan.head
    return max(0, own.budget_bytes - own.needed_bytes) if own.budget_bytes else None


def fixed_prompt(vocabulary: int) -> list[int]:
    return [104_729 * (position + 1) ** 2 % vocabulary for position in range(PROMPT_TOKENS)]


def _through_the_ring(model: RingModel, prompt: list[int], chunk: int, on: GoesOn) -> mx.array:
    """Logits [POSITIONS, vocabulary] in float32: after the prompt, and after each greedy step."""
    caches = model.make_cache()
    for part in chunks(prompt[:-1], chunk):
        started = perf_counter()
        model(mx.array([part]), cache=caches)
        on(len(part), perf_counter() - started)
    token, rows = prompt[-1], []
    for _ in range(POSITIONS):
        logits = model(mx.array([[token]]), cache=caches)[:, -1].astype(mx.float32)
        check_sane(logits)
        token = greedy(logits)
        rows.append(logits)
        on(0, 0.0)
    return mx.concatenate(rows)


def check_sane(logits: mx.array) -> None:
    """Raises StageFailed unless logits [1, vocabulary] choose a token. Some families exclude ids by minus infinity."""
    if mx.isnan(logits).any().item() or not mx.isfinite(logits.max()).item():
        raise StageFailed("The ring's logits are not numbers.", _OTHER_WEIGHTS)
    if (logits == logits[:, :1]).all().item():
        raise StageFailed("The ring's logits are all the same.", _OTHER_WEIGHTS)


def compare(ring: mx.array, whole: Whole, *, fix: str = _FIX) -> float:
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


def run_whole(task: Task, weight_bytes: int, logit_bytes: int, idle: Callable[[], None]) -> Whole:
    """Run the whole model in a child process, which ends with this one, or as soon as `idle` raises."""
    seconds = START_S + weight_bytes / BYTES_PER_S
    job = Job(
        module="core.worker.reference_model",
        arguments=(str(int(seconds) * (os.cpu_count() or 1)),),
        subject="The whole model, run for comparison,",
        fix="Load it without --verify.",
        seconds=seconds,
        rss_bytes=2 * weight_bytes + 4096 * MIB,
        answer_bytes=logit_bytes + MIB,
    )
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_child, job, msgspec.msgpack.encode(task), stop)
        try:
            while not wait([running], POLL_S).done:
                idle()
        finally:
            stop.set()
        status, answer = running.result()
    if status == REFUSED:
        raise error_from(msgspec.msgpack.decode(answer, type=Problem))
    if status != 0:
        raise StageFailed(f"The whole model, run for comparison, ended with status {status}.", job.fix)
    return msgspec.msgpack.decode(answer, type=Whole)
