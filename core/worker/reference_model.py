"""`python -m core.worker.reference_model SECONDS`: the whole model in one process, by mlx-lm alone, or slice by slice
if it does not fit.

It reads a `Task` from standard input and writes a `Whole`, or a `Problem` with exit status REFUSED; it takes at most
SECONDS of processor time. The head's worker runs it through `core.models.files.sandbox`, which sets its other limits.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Collection, Iterator
from copy import copy
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import msgspec
from mlx.utils import tree_flatten, tree_unflatten

from core.models.lean_imports import import_for_layers_only

if __name__ == "__main__":
    import_for_layers_only()

from mlx_lm.models.cache import make_prompt_cache

from core.errors import MaclusterError, StageFailed
from core.link.arrays import encode_arrays
from core.models.files.layout import Layout
from core.models.files.model_folder import ModelFolder, read_folder
from core.models.files.sandbox import confine
from core.models.metal import obey_device
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.loading import build_lazily, dry_run, load_slice
from core.models.slicing.probe import legal_cuts
from core.models.slicing.ranks import Rank, shard

REFUSED: Final = 3
CACHE_BYTES: Final = 256 << 20


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens to read, and the positions whose logits are wanted."""

    directory: str
    tokens: list[int]
    chunk: int
    told: list[int]  # tokens after `tokens`, chosen elsewhere; logits are wanted before each
    kv_bits: int | None = None
    # if the model is larger, it runs slice by slice, each within this or as small as possible
    room_bytes: int | None = None
    ranks: int = 1  # parts in which the ring computes sums


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the whole model."""

    logits: bytes  # [positions, vocabulary] in float32, packed as in a frame
    exact: bool  # nothing is rounded further
    # how far they are from logits of the same tokens read one by one, with sums in the parts of ranks: other orders
    rounding: float = 0.0


def run(task: Task) -> Whole:
    """Run mlx-lm in chunks, then token by token and in parts. Raises BadModel, UnsupportedModel or StageFailed."""
    folder = read_folder(Path(task.directory))
    model, layout, paths = build_lazily(folder), folder.layout(), _summed_paths(folder, task.ranks)
    if task.room_bytes is not None and task.room_bytes < layout.total_bytes:
        cuts = legal_cuts(dry_run(model, folder.name))
        if spans := _spans(layout, sorted(cuts), task.room_bytes):
            return _run_slices(task, folder, spans, paths)
    readings: list[list[mx.array]] = []
    try:
        for parts in _readings(task):
            if readings:
                _sum_in_parts(model, paths, task.ranks)
            caches = make_prompt_cache(model)
            readings.append([_forward(model, caches, part, task.kv_bits) for part in parts][-len(task.told) :])
    except (RuntimeError, ValueError) as error:
        raise StageFailed(f"MLX could not compute the whole model: {error}") from error
    return _whole(task, readings, {array.dtype for _, array in tree_flatten(model.parameters())})


def _readings(task: Task) -> list[list[list[int]]]:
    steps = [[token] for token in (task.tokens[-1], *task.told[:-1])]
    return [[*chunks(task.tokens[:-1], size), *steps] for size in (task.chunk, 1)]


def _spans(layout: Layout, cuts: list[int], room_bytes: int) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    edges = [0, *cuts, layout.layers] if cuts else []
    for start, stop in pairwise(edges):
        first = spans[-1][0] if spans else start
        if spans and layout.stage_bytes(first, stop, embed=first == 0, output=stop == layout.layers) <= room_bytes:
            spans[-1] = (first, stop)
        else:
            spans.append((start, stop))
    return spans


def _run_slices(task: Task, folder: ModelFolder, spans: list[tuple[int, int]], paths: Collection[str]) -> Whole:
    readings = _readings(task)
    passing = [[[mx.array([part])] for part in parts] for parts in readings]
    dtypes: set[mx.Dtype] = set()
    rows: list[list[mx.array]] = [[] for _ in readings]
    for start, stop in spans:
        ends = (start == 0, stop == spans[-1][1])
        layers = load_slice(folder, start, stop, embed=ends[0], output=ends[1])
        dtypes |= {array.dtype for array in layers.weights.values()}
        for number, parts in enumerate(readings):
            if number:
                _sum_in_parts(layers.model, paths, task.ranks)
            caches, positions = layers.caches.new(), [0, *accumulate(map(len, parts))]
            for at, arrays in enumerate(passing[number]):
                step = layers.embed(arrays[0], caches, 0) if ends[0] else layers.run(arrays, caches, positions[at])
                if ends[1] and at >= len(parts) - len(task.told):
                    logits = layers.output(step, caches, positions[at + 1]).astype(mx.float32)
                    rows[number].append(logits)
                caches = layers.caches.quantise(caches, task.kv_bits) if task.kv_bits else caches
                mx.eval(step, layers.caches.states(caches), rows)
                passing[number][at] = step
            del caches
        del layers
        gc.collect()  # loaded layers are in reference cycles
        mx.clear_cache()
    return _whole(task, rows, dtypes)


class _Summed(nn.Module):  # type: ignore[misc]
    """A linear layer, also of experts, whose input is divided over `count` parts, as ranks divide it."""

    def __init__(self, layer: nn.Module, count: int) -> None:
        super().__init__()
        self.parts = [copy(layer) for _ in range(count)]
        for name in layer.keys() & {"weight", "scales", "biases"}:
            for part, array in zip(self.parts, mx.split(layer[name], count, axis=-1), strict=True):
                part[name] = array
        for part in self.parts[1:]:
            part.pop("bias", None)

    def __call__(self, x: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        inputs = mx.split(x, len(self.parts), axis=-1)
        first, *others = [part(each, *args, **kwargs) for part, each in zip(self.parts, inputs, strict=True)]
        total: mx.array = sum(others, first)
        return total


def _summed_paths(folder: ModelFolder, ranks: int) -> list[str]:
    """Paths of the layers whose inputs mlx-lm divides over `ranks`, and whose results ranks add up."""
    if ranks == 1:
        return []
    whole, part = build_lazily(folder), build_lazily(folder)
    shard(part, Rank(0, ranks))
    widths = {path: module.weight.shape[-1] for path, module in whole.named_modules() if "weight" in module}
    return [
        path
        for path, module in part.named_modules()
        if "weight" in module and module.weight.shape[-1] * ranks == widths.get(path)
    ]


def _sum_in_parts(model: nn.Module, paths: Collection[str], ranks: int) -> None:
    layers = dict(model.named_modules())
    model.update_modules(tree_unflatten([(path, _Summed(layers[path], ranks)) for path in paths]))


def _whole(task: Task, readings: list[list[mx.array]], dtypes: Collection[mx.Dtype]) -> Whole:
    """`readings`: for each reading, the logits [1, vocabulary] of every position."""
    exact = {dtype for dtype in dtypes if mx.issubdtype(dtype, mx.floating)} == {mx.float32} and task.kv_bits is None
    logits, others = map(mx.concatenate, readings)
    return Whole(logits=b"".join(encode_arrays([logits])), exact=exact, rounding=difference(logits, others))


def difference(logits: mx.array, others: mx.array) -> float:
    """The largest difference between logits of one shape; minus infinity equals itself."""
    size: Any = mx.abs(mx.where(logits == others, 0.0, logits - others)).max().item()
    return float(size)


def chunks(tokens: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def _forward(model: nn.Module, caches: list[Any], tokens: list[int], kv_bits: int | None) -> mx.array:
    from mlx_lm.generate import maybe_quantize_kv_cache  # the import takes a second, which the parent saves

    logits: mx.array = model(mx.array([tokens]), cache=caches)[:, -1].astype(mx.float32)
    maybe_quantize_kv_cache(caches, 0, KV_GROUP, kv_bits)
    mx.eval(logits, [cache.state for cache in caches if not cache.empty()])
    return logits


def main() -> int:
    """Run the child: write the result, return the exit status."""
    confine(int(sys.argv[1]))
    # library output must not mix with the result
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
