"""Logits of the whole model by mlx-lm alone, which a ring has to give too.

The head makes them before it loads its stage, if the whole model has room there, and keeps them in its home. Later
loads read the file: of another split, or with less room.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from copy import copy
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import msgspec
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache

from core.errors import ModelNotFound, StageFailed, TrustError
from core.events import Plan
from core.link.arrays import encode_arrays
from core.models.files.checked_files import judged
from core.models.files.layout import Layout
from core.models.files.model_folder import ModelFolder
from core.models.metal import fault_of
from core.models.slicing.building import build
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.loading import Progress, dry_run, load_slice, load_whole
from core.models.slicing.probe import legal_cuts
from core.models.slicing.ranks import Rank, shard
from core.plan.make_plan import room_for_whole
from core.plan.notes import LOSSY
from core.plan.topology import has_ranks
from core.settings import Home
from core.trust.private_files import open_private, private_folder, write_private
from core.version import compute_hash
from core.worker.messages import Load

FORMAT: Final = Home.references.format  # part of the names: those of another version stay as they are
MOST_KEPT: Final = 32  # files, of 2 MB for 128,000 token ids
SAMPLES: Final = 256
SAMPLE_BYTES: Final = 4096

PROMPT_TOKENS: Final = 24
POSITIONS: Final = 4  # the last tokens, which are read one by one; their logits are compared
PART: Final = 8  # tokens that travel together: few, so that even a slow Mac shows that it goes on

_STEPS: Final = {mx.bfloat16: 2**-8, mx.float16: 2**-11}  # relative


class WholeLogits(msgspec.Struct, frozen=True, kw_only=True):
    """Logits of the fixed prompt's last positions."""

    logits: bytes  # [POSITIONS, vocabulary] in float32, packed as in a frame
    exact: bool  # nothing is rounded further
    # how far another reading is from them: at once, with sums in the parts of ranks, and rounded as by another chip
    rounding: float = 0.0


class Reference(NamedTuple):
    """Logits to compare the ring's with."""

    whole: WholeLogits | None = None
    why: str = ""  # why there is nothing to compare with, as the end of a sentence
    file: Path | None = None  # kept there, and can be made again

    def forget(self) -> None:
        if self.file:
            self.file.unlink(missing_ok=True)


def reference_for(order: Load, folder: ModelFolder, held: dict[str, mx.array], on_progress: Progress) -> Reference:
    """The kept logits for the plan of `order`, or new ones if the whole model has room. `held` then has all its
    weights, for the stage to take its own. Raises BadModel, UnsupportedModel, StageFailed and GpuFault, and
    ModelNotFound if files are missing for a comparison that has to be.
    """
    plan, head = order.plan, order.plan.head
    if plan.wire in LOSSY:
        return Reference(why=f"hidden states are sent as {plan.wire}")
    file = Path(order.references) / _name(folder, plan)
    kept = None if order.verify else _read(file)
    has_room = has_ranks(plan) or room_for_whole(head) >= folder.layout().total_bytes
    if kept or not has_room:
        return Reference(kept, f"the whole model has never had room on {head.peer}", file if has_room else None)
    held.clear()
    try:
        whole = make_reference(folder, plan, held, on_progress)
    except ModelNotFound:
        if has_ranks(plan) or order.verify:
            raise
        return Reference(why=f"{head.peer} has only a part of the model's files")
    _write(file, whole)
    return Reference(whole, file=file)


def _name(folder: ModelFolder, plan: Plan) -> str:
    """A name for each model, way to compute, and kind of device."""
    device = mx.default_device().type.name
    parts = (FORMAT, folder.fingerprint, _sample(folder), compute_hash(), device, plan.kv_bits, _ranks(plan))
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def _sample(folder: ModelFolder) -> str:
    """Digest of a few weights: fine-tuned models share settings and tensor names, and so their fingerprint."""
    digest = hashlib.sha256()
    with judged(folder.path):
        for name in sorted(folder.headers):
            with (folder.path / name).open("rb") as file:
                size = file.seek(0, 2)
                count = -(-SAMPLES * size // folder.weight_file_bytes)
                for number in range(count):
                    file.seek((2 * number + 1) * size // (2 * count))
                    digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _read(file: Path) -> WholeLogits | None:
    # a file that is missing, damaged or readable by others counts as absent
    with suppress(TrustError, msgspec.MsgspecError), open_private(file, TrustError) as opened:
        return msgspec.msgpack.decode(opened.read(), type=WholeLogits)
    return None


def _write(file: Path, whole: WholeLogits) -> None:
    # if the disk is full, the next load makes them again
    with suppress(TrustError, OSError):
        private_folder(file.parent, TrustError)
        write_private(file, msgspec.msgpack.encode(whole), TrustError)
        for old in sorted(file.parent.iterdir(), key=lambda each: each.stat().st_mtime)[:-MOST_KEPT]:
            old.unlink()


def fixed_prompt(vocabulary: int) -> list[int]:
    return [104_729 * (position + 1) ** 2 % vocabulary for position in range(PROMPT_TOKENS)]


def parts_of_prompt(vocabulary: int, chunk: int) -> list[list[int]]:
    """The fixed prompt in parts of `chunk` tokens, then one by one; logits are wanted after each of the last ones."""
    prompt = fixed_prompt(vocabulary)
    return [*_chunks(prompt[:-POSITIONS], chunk), *_chunks(prompt[-POSITIONS:], 1)]


def make_reference(folder: ModelFolder, plan: Plan, held: dict[str, mx.array], on_progress: Progress) -> WholeLogits:
    """Run mlx-lm in chunks, then in one chunk and in parts. Ranks, whose whole model need not have room, are compared
    with slices of it then. Raises ModelNotFound, BadModel, UnsupportedModel, StageFailed, GpuFault.
    """
    layout, paths, room_bytes = folder.layout(), _summed_paths(folder, _ranks(plan)), room_for_whole(plan.head)
    if room_bytes < layout.total_bytes:
        cuts = legal_cuts(dry_run(build(folder).model, folder.name))
        if spans := _spans(layout, sorted(cuts), room_bytes):
            return _run_slices(plan, folder, spans, paths)
    model = load_whole(folder, on_progress)
    held.update(tree_flatten(model.parameters()))
    dtypes = {array.dtype for array in held.values()}
    vocabulary = model(mx.array([[0]])).shape[-1]  # lazy: this computes nothing
    readings: list[list[mx.array]] = []
    try:
        for parts in _readings(plan, vocabulary):
            if readings:
                _compute_otherwise(model, paths, _ranks(plan))
            caches = make_prompt_cache(model)
            readings.append([_forward(model, caches, part, plan.kv_bits) for part in parts][-POSITIONS:])
            on_progress(layout.total_bytes, layout.total_bytes)
    except (RuntimeError, ValueError) as error:
        if fault := fault_of(error):
            raise fault from error
        raise StageFailed(f"MLX could not compute the whole model: {error}") from error
    del model, caches
    gc.collect()  # what is left of a model may be in reference cycles
    return _whole(plan, readings, dtypes)


def _ranks(plan: Plan) -> int:
    """Parts in which the ring computes sums."""
    return len(plan.stages) if has_ranks(plan) else 1


def _readings(plan: Plan, vocabulary: int) -> list[list[list[int]]]:
    return [parts_of_prompt(vocabulary, size) for size in (min(PART, plan.chunk), PROMPT_TOKENS)]


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


def _run_slices(plan: Plan, folder: ModelFolder, spans: list[tuple[int, int]], paths: Collection[str]) -> WholeLogits:
    readings: list[list[list[int]]] = []
    passing: list[list[list[mx.array]]] = []
    dtypes: set[mx.Dtype] = set()
    rows: list[list[mx.array]] = [[], []]
    for start, stop in spans:
        ends = (start == 0, stop == spans[-1][1])
        layers = load_slice(folder, start, stop, embed=ends[0], output=ends[1])
        readings = readings or _readings(plan, layers.vocab_size)
        passing = passing or [[[mx.array([part])] for part in parts] for parts in readings]
        dtypes |= {array.dtype for array in layers.weights.values()}
        for number, parts in enumerate(readings):
            if number:
                _compute_otherwise(layers.model, paths, _ranks(plan))
            caches, positions = layers.caches.new(), [0, *accumulate(map(len, parts))]
            for at, arrays in enumerate(passing[number]):
                step = layers.embed(arrays[0], caches, 0) if ends[0] else layers.run(arrays, caches, positions[at])
                if ends[1] and at >= len(parts) - POSITIONS:
                    logits = layers.output(step, caches, positions[at + 1]).astype(mx.float32)
                    rows[number].append(logits)
                caches = layers.caches.quantise(caches, plan.kv_bits) if plan.kv_bits else caches
                mx.eval(step, layers.caches.states(caches), rows)
                passing[number][at] = step
            del caches
        del layers
        gc.collect()  # loaded layers are in reference cycles
        mx.clear_cache()
    return _whole(plan, rows, dtypes)


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
    whole, part = build(folder).model, build(folder).model
    shard(part, Rank(0, ranks))
    widths = {path: module.weight.shape[-1] for path, module in whole.named_modules() if "weight" in module}
    return [
        path
        for path, module in part.named_modules()
        if "weight" in module and module.weight.shape[-1] * ranks == widths.get(path)
    ]


def _compute_otherwise(model: nn.Module, paths: Collection[str], ranks: int) -> None:
    """Sum in the parts of ranks, and move norms in half precision by one step. On real models that moves logits as far
    as computing with 32 bits does.
    """
    arrays = enumerate(tree_flatten(model.parameters()))
    norms = [(path, _moved(norm, seed)) for seed, (path, norm) in arrays if norm.ndim == 1 and norm.dtype in _STEPS]
    model.update(tree_unflatten(norms))
    layers = dict(model.named_modules())
    model.update_modules(tree_unflatten([(path, _Summed(layers[path], ranks)) for path in paths]))


def _moved(norm: mx.array, seed: int) -> mx.array:
    signs = 1 - 2 * mx.random.randint(0, 2, norm.shape, key=mx.random.key(seed))
    return (norm.astype(mx.float32) * (1 + signs * _STEPS[norm.dtype])).astype(norm.dtype)


def _whole(plan: Plan, readings: list[list[mx.array]], dtypes: Collection[mx.Dtype]) -> WholeLogits:
    """`readings`: for each reading, the logits [1, vocabulary] of every position."""
    exact = {dtype for dtype in dtypes if mx.issubdtype(dtype, mx.floating)} == {mx.float32} and plan.kv_bits is None
    logits, others = map(mx.concatenate, readings)
    return WholeLogits(logits=b"".join(encode_arrays([logits])), exact=exact, rounding=difference(logits, others))


def difference(logits: mx.array, others: mx.array) -> float:
    """The largest difference between logits of one shape; minus infinity equals itself."""
    size: Any = mx.abs(mx.where(logits == others, 0.0, logits - others)).max().item()
    return float(size)


def _chunks(tokens: list[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(tokens), size):
        yield tokens[start : start + size]


def _forward(model: nn.Module, caches: list[Any], tokens: list[int], kv_bits: int | None) -> mx.array:
    logits: mx.array = model(mx.array([tokens]), cache=caches)[:, -1].astype(mx.float32)
    if kv_bits:
        from mlx_lm.generate import maybe_quantize_kv_cache  # the import takes a second

        maybe_quantize_kv_cache(caches, 0, KV_GROUP, kv_bits)
    mx.eval(logits, [cache.state for cache in caches if not cache.empty()])
    return logits
