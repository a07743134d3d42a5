"""Loads one slice of a model, or says which bytes of its files that would read.

The whole model is built lazily, and for one of several ranks left with that rank's part of each layer. The promises
outside the slice are then replaced by zeros that nobody evaluates, which also closes the files; what is left is read.
The same choice tells what a Mac has to fetch: `slice_parts` needs headers only, so files of the right length with
nothing behind their headers will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from core.errors import BadModel, UnsupportedModel
from core.models.files.block_map import read_map
from core.models.files.compared_hashes import check_compared
from core.models.files.folder import name_of
from core.models.files.layers_on_disk import check_here
from core.models.files.parts import Part, parts_of
from core.models.files.safetensors import read_tensors
from core.models.metal import fault_of
from core.models.slicing.building import FAILURES, build, first_line
from core.models.slicing.legal_cuts import check_cuts
from core.models.slicing.part_reads import PartRead, part_reads
from core.models.slicing.probe import ModelProbe
from core.models.slicing.ranks import Rank, computes_apart, shard
from core.models.slicing.slots import Slice
from core.models.slicing.tensor_sources import origins

Progress = Callable[[int, int], None]


def load_slice(
    directory: Path,
    start: int,
    stop: int,
    *,
    embed: bool,
    output: bool,
    rank: Rank | None = None,
    on_progress: Progress | None = None,
    held: dict[str, mx.array] | None = None,
) -> Slice:
    """Layers [start, stop) of the model in `directory`, in memory, with its embedding and its norm and head if asked;
    of each layer the part of `rank`, if that is given, which can compute once `join` was called, and of norm and head
    what the others could not do without.

    `on_progress(done_bytes, total_bytes)` is called as tensors arrive. `held`: the `weights` of another slice of the
    same model; what belongs to this one is taken from there instead of being read, and the rest is let go.
    Must run in the thread that will run the slice. Raises ModelNotFound (also where bytes of the slice are not on the
    disk), BadModel (missing, cut or hostile files), UnsupportedModel (unknown architecture, or one that cannot be
    split) and IllegalCut.
    """
    model, tensors, headers = build(directory)
    probe = dry_run(model, directory)
    reads: dict[str, PartRead] = {}
    if rank:
        reads = part_reads(directory, headers, tensors, shard(model, rank))
        output = output or not computes_apart(model, rank, probe)
    check_cuts(probe, start, stop, embed=embed, output=output)
    own = _own(model, probe, start, stop, embed=embed, output=output)
    if there := read_map(directory):
        check_compared(directory)
        check_here(name_of(directory), headers, there, origins(tensors, [*own.values(), *_private_arrays(model)]))
    tensors.clear()
    if not rank:  # a part looks like the same part of another rank
        own |= {path: array for path, array in (held or {}).items() if path in own and _is_like(array, own[path])}
    if held:
        held.clear()
        mx.clear_cache()
    stubs = [(p, own.get(p, mx.zeros(a.shape, a.dtype))) for p, a in tree_flatten(model.parameters())]
    model.update(tree_unflatten(stubs))
    weight_bytes = sum(array.nbytes for array in own.values())
    _evaluate(own, reads, weight_bytes, on_progress, directory)
    model.update(tree_unflatten([(path, own[path]) for path in reads.keys() & own.keys()]))
    mx.eval(list(_private_arrays(model)))
    stage = Slice(model, probe, start, stop, embed=embed, output=output, rank=rank)
    stage.weights, stage.weight_bytes = own, weight_bytes
    return stage


def slice_parts(directory: Path, start: int, stop: int, *, embed: bool, output: bool) -> tuple[Part, ...]:
    """The bytes of the weight files that `load_slice` reads for the same slice, headers included; raises as it does.

    Only the JSON files, the headers and the lengths of the files have to be right: no byte of a tensor is looked at.
    """
    model, tensors, headers = build(directory)
    probe = dry_run(model, directory)
    check_cuts(probe, start, stop, embed=embed, output=output)
    own = _own(model, probe, start, stop, embed=embed, output=output)
    return parts_of(headers, origins(tensors, [*own.values(), *_private_arrays(model)]))


def build_lazily(directory: Path) -> nn.Module:
    """The whole model of `directory`, no tensor read yet; raises ModelNotFound, BadModel or UnsupportedModel."""
    return build(directory).model


@contextmanager
def weightless(model: nn.Module) -> Iterator[None]:
    """A lazily built model over zeros that take no memory: a family whose forward looks at values reads no weight. What
    it keeps for the next forward of what it made of zeros is forgotten at the end.
    """
    before = [(module, dict(module), dict(vars(module))) for module in model.modules()]
    promises = model.parameters()
    model.update(tree_map(lambda array: mx.broadcast_to(mx.zeros((), array.dtype), array.shape), promises))
    try:
        yield
    finally:
        for module, items, attributes in before:
            module.clear()
            dict.update(module, items)  # a module's own takes parameters
            vars(module).clear()
            vars(module).update(attributes)
        model.update(promises)


def dry_run(model: nn.Module, directory: Path) -> ModelProbe:
    """What a forward of the lazily built model of `directory` shows; no tensor is read. Raises UnsupportedModel."""
    try:
        with weightless(model):
            return ModelProbe(model)
    except FAILURES as error:
        raise UnsupportedModel(f"The model in {name_of(directory)} does not run: {first_line(error)}.") from error


def _own(
    model: nn.Module, probe: ModelProbe, start: int, stop: int, *, embed: bool, output: bool
) -> dict[str, mx.array]:
    """The parameters of a slice, by path: the one place that decides what belongs to it."""
    wanted = probe.shared | (probe.embed if embed else set()) | (probe.output if output else set())
    own: dict[str, mx.array] = {}
    for path, array in tree_flatten(model.parameters()):
        layer = probe.layer_of(path)
        if (start <= layer < stop) if layer is not None else path in wanted:
            own[path] = array
    return own


def _is_like(one: mx.array, other: mx.array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype


def _evaluate(
    own: dict[str, mx.array],
    reads: Mapping[str, PartRead],
    total: int,
    on_progress: Progress | None,
    directory: Path,
) -> None:
    """Read what is in `own`, in place, by `reads` where that is a part."""
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
            read_tensors(directory)  # names the file, if it became shorter since
            raise BadModel(f"{path!r} of {name_of(directory)} cannot be read: {first_line(error)}.") from error
        done += array.nbytes
        if on_progress:
            on_progress(done, total)
    mx.clear_cache()


def _private_arrays(model: nn.Module) -> Iterator[mx.array]:
    """Arrays that are no parameters, such as rope frequencies; the forward needs them on every stage."""
    for module in model.modules():
        for name, value in module.items():
            if name.startswith("_"):
                yield from (leaf for _, leaf in tree_flatten(value) if isinstance(leaf, mx.array))
