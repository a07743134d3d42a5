"""`python -m core.worker.reference_model SECONDS`: the whole model in one process, by mlx-lm alone.

A `Task` comes on standard input, a `Whole` goes out, or a `Problem` with exit status REFUSED; it takes at most SECONDS
of processor time. The head's worker runs it through `core.models.files.sandbox`, which holds its other limits.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import msgspec
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from core.engine.sampling import greedy
from core.errors import MaclusterError, StageFailed
from core.link.arrays import encode_arrays
from core.models.files.sandbox import confine
from core.models.metal import obey_device
from core.models.slicing.loading import build_lazily
from core.models.slicing.slots import KV_GROUP

REFUSED: Final = 3
CACHE_BYTES: Final = 256 << 20


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Continue `tokens` greedily, caches in `kv_bits` bits if given; `count` positions of logits are wanted."""

    directory: str
    tokens: list[int]
    chunk: int
    count: int
    kv_bits: int | None = None


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """Logits [count, vocabulary] in float32, as they would travel in a frame. `exact`: nothing is rounded further."""

    logits: bytes
    exact: bool


def run(task: Task) -> Whole:
    """What mlx-lm computes, in the chunks in which the ring does. Raises BadModel, UnsupportedModel or StageFailed."""
    model = build_lazily(Path(task.directory))
    caches = make_prompt_cache(model)
    token, rows = task.tokens[-1], []
    try:
        for part in chunks(task.tokens[:-1], task.chunk):
            _forward(model, caches, part, task.kv_bits)
        for _ in range(task.count):
            rows.append(_forward(model, caches, [token], task.kv_bits))
            token = greedy(rows[-1])
    except (RuntimeError, ValueError) as error:
        raise StageFailed(f"MLX could not compute the whole model: {error}") from error
    kinds = {array.dtype for _, array in tree_flatten(model.parameters()) if mx.issubdtype(array.dtype, mx.floating)}
    exact = kinds == {mx.float32} and task.kv_bits is None
    return Whole(logits=b"".join(encode_arrays([mx.concatenate(rows)])), exact=exact)


def chunks(tokens: list[int], size: int) -> Iterator[list[int]]:
    """`tokens` in parts of `size`, the last one shorter."""
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def _forward(model: nn.Module, caches: list[Any], tokens: list[int], kv_bits: int | None) -> mx.array:
    """Logits [1, vocabulary] behind the last token, in float32."""
    from mlx_lm.generate import maybe_quantize_kv_cache  # a second, which a worker that asks for this does not take

    logits: mx.array = model(mx.array([tokens]), cache=caches)[:, -1].astype(mx.float32)
    maybe_quantize_kv_cache(caches, 0, KV_GROUP, kv_bits)
    mx.eval(logits, [cache.state for cache in caches if not cache.empty()])
    return logits


def main() -> int:
    """The child: writes what came out, returns the exit status."""
    confine(int(sys.argv[1]))
    # whatever a library prints must not run into the answer
    answer = os.dup(1)
    os.dup2(2, 1)
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    obey_device()
    mx.set_cache_limit(CACHE_BYTES)
    try:
        body, status = msgspec.msgpack.encode(run(task)), 0
    except MaclusterError as error:
        body, status = msgspec.msgpack.encode(error.problem), REFUSED
    with os.fdopen(answer, "wb") as file:
        file.write(body)
    mx.synchronize()
    mx.clear_streams()
    return status


if __name__ == "__main__":
    sys.exit(main())
