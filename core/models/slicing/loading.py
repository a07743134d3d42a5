"""Loads one slice of a model, or lists the bytes of its files that this would read.

The whole model is built lazily; with several ranks, each keeps its part of every layer. Arrays outside the slice are
replaced by zeros that are never evaluated, which also closes the files; the rest is read. `slice_parts` makes the same
choice from headers alone, to decide what a Mac must download.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from core.errors import BadModel, UnsupportedModel
from core.models.files.checked_files import OTHER_VERSION, UNREADABLE
from core.models.files.compared_hashes import check_compared
from core.models.files.layers_on_disk import check_here
from core.models.files.model_folder import ModelFolder, read_folder
from core.models.files.parts import Part, parts_of
from core.models.metal import fault_of
from core.models.slicing.building import FAILURES, Built, build, first_line, origins
from core.models.slicing.part_reads import PartRead, part_reads
from core.models.slicing.probe import ModelProbe, check_cuts
from core.models.slicing.ranks import Rank, computes_apart, shard
from core.models.slicing.slots import Slice

Progress = Callable[[int, int], None]


def load_slice(
    folder: ModelFolder,
    start: int,
    stop: int,
    *,
    embed: bool,
    output: bool,
    rank: Rank | None = None,
    on_progress: Progress | None = None,
    held: dict[str, mx.array] | None = None,
) -> Slice:
    """Load layers [start, stop) into memory; `embed`: with the embedding, `output`: with final norm and head.

    `rank`: load that rank's part of each layer (it computes after `join`), and the parts of norm and head that the
    other ranks need. `on_progress(done_bytes, total_bytes)` is called as tensors arrive. `held`: the `weights` of
    another slice of the same model; shared ones are reused, the rest is freed.

    Must run in the thread that will run the slice. Raises ModelNotFound (bytes of the slice are not on this disk),
    BadModel (missing, cut or hostile files), UnsupportedModel (unknown or unsplittable architecture) and IllegalCut.

    >>> first = load_slice(read_folder(path), 0, 12, embed=True, output=False)
    >>> hidden = first.embed(mx.array([[1, 2, 3]]), first.caches.new(), 0)
    """
    model, tensors = build(folder)
    probe = dry_run(model, folder.name)
    reads: dict[str, PartRead] = {}
    if rank:
        reads = part_reads(folder, tensors, shard(model, rank))
        output = output or not computes_apart(model, rank, probe)
    check_cuts(probe, start, stop, embed=embed, output=output)
    own = _own(model, probe, start, stop, embed=embed, output=output)
    _check_on_disk(folder, Built(model, tensors), own)
    tensors.clear()
    if not rank:  # parts of different ranks look alike
        own |= {
            path: array
            for path, array in (held or {}).items()
            if path in own and (array.shape, array.dtype) == (own[path].shape, own[path].dtype)
        }
    if held:
        held.clear()
        mx.clear_cache()
    stubs = [(p, own.get(p, mx.zeros(a.shape, a.dtype))) for p, a in tree_flatten(model.parameters())]
    model.update(tree_unflatten(stubs))
    weight_bytes = sum(array.nbytes for array in own.values())
    _evaluate(own, reads, weight_bytes, on_progress, folder)
    model.update(tree_unflatten([(path, own[path]) for path in reads.keys() & own.keys()]))
    mx.eval(list(_private_arrays(model)))
    stage = Slice(model, probe, start, stop, embed=embed, output=output, rank=rank)
    stage.weights, stage.weight_bytes = own, weight_bytes
    return stage


def load_whole(folder: ModelFolder, on_progress: Progress) -> nn.Module:
    """Load mlx-lm's own model, without slots. Raises as `load_slice`."""
    built = build(folder)
    weights = dict(tree_flatten(built.model.parameters()))
    _check_on_disk(folder, built, weights)
    built.tensors.clear()
    _evaluate(weights, {}, sum(array.nbytes for array in weights.values()), on_progress, folder)
    return built.model


def slice_parts(folder: ModelFolder, start: int, stop: int, *, embed: bool, output: bool) -> tuple[Part, ...]:
    """Byte ranges that `load_slice` reads for the same slice, headers included. Raises as it does. Needs correct JSON
    files, headers and file lengths; reads no tensor.
    """
    model, tensors = build(folder)
    probe = dry_run(model, folder.name)
    check_cuts(probe, start, stop, embed=embed, output=output)
    own = _own(model, probe, start, stop, embed=embed, output=output)
    return parts_of(folder.headers, origins(tensors, [*own.values(), *_private_arrays(model)]))


@contextmanager
def weightless(model: nn.Module) -> Iterator[None]:
    """Replace a lazily built model's weights by zeros without memory, and drop state made from them afterwards."""
    before = [(module, dict(module), dict(vars(module))) for module in model.modules()]
    promises = model.parameters()
    model.update(tree_map(lambda array: mx.broadcast_to(mx.zeros((), array.dtype), array.shape), promises))
    try:
        yield
    finally:
        for module, items, attributes in before:
            module.clear()
            dict.update(module, items)  # the module's own update takes only parameters
            vars(module).clear()
            vars(module).update(attributes)
        model.update(promises)


def dry_run(model: nn.Module, name: str) -> ModelProbe:
    """Probe the lazily built model `name` without reading any tensor. Raises UnsupportedModel."""
    try:
        with weightless(model):
            return ModelProbe(model)
    except FAILURES as error:
        raise UnsupportedModel(f"{name} does not run: {first_line(error)}.", OTHER_VERSION) from error


def _own(
    model: nn.Module, probe: ModelProbe, start: int, stop: int, *, embed: bool, output: bool
) -> dict[str, mx.array]:
    """Parameters of a slice, by path; the only place that decides what belongs to a slice."""
    wanted = probe.shared | (probe.embed if embed else set()) | (probe.output if output else set())
    own: dict[str, mx.array] = {}
    for path, array in tree_flatten(model.parameters()):
        layer = probe.layer_of(path)
        if (start <= layer < stop) if layer is not None else path in wanted:
            own[path] = array
    return own


def _check_on_disk(folder: ModelFolder, built: Built, own: Mapping[str, mx.array]) -> None:
    if folder.there:
        check_compared(folder.path)
        needed = origins(built.tensors, [*own.values(), *_private_arrays(built.model)])
        check_here(folder.name, folder.headers, folder.there, needed)


def _evaluate(
    own: dict[str, mx.array],
    reads: Mapping[str, PartRead],
    total: int,
    on_progress: Progress | None,
    folder: ModelFolder,
) -> None:
    """Read the arrays of `own` in place, using `reads` for partial ones."""
    done = 0
    for path, array in own.items():
        try:
            if path in reads:
                own[path] = reads[path].read()
            else:
                mx.eval(array)
        except (OSError, RuntimeError) as error:
            if fault := fault_of(error):
                raise fault from error
            read_folder(folder.path)  # raises an error that names the file if it is shorter now
            raise BadModel(f"{path!r} of {folder.name} cannot be read: {first_line(error)}.", UNREADABLE) from error
        done += array.nbytes
        if on_progress:
            on_progress(done, total)
    mx.clear_cache()


def _private_arrays(model: nn.Module) -> Iterator[mx.array]:
    """Arrays other than parameters, such as rope frequencies, which every stage needs."""
    for module in model.modules():
        for name, value in module.items():
            if name.startswith("_"):
                yield from (leaf for _, leaf in tree_flatten(value) if isinstance(leaf, mx.array))
