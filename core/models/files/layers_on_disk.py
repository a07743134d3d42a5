"""Lists the layers on this disk of a partly downloaded model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from core.errors import ModelNotFound
from core.models.files.block_map import BlockMap
from core.models.files.layout import layer_of
from core.models.files.parts import Part, Ranges, range_texts, ranges
from core.models.files.safetensors import SafetensorsHeader
from core.settings import GB

Headers = Mapping[str, SafetensorsHeader]


def layers_here(layers: int, headers: Headers, there: BlockMap | None) -> Ranges:
    """Half-open ranges of complete layers. `there`: the block map; None for a complete model."""
    if there is None:
        return ((0, layers),)
    lacking = {layer_of(name) for name, part in _tensors(headers) if there.lacking([part])}
    return ranges(layer for layer in range(layers) if layer not in lacking)


def check_here(model: str, headers: Headers, there: BlockMap, tensors: Set[str]) -> None:
    """Raise ModelNotFound unless every byte of `tensors` of the named model is on this disk."""
    lacking = {name: there.lacking([part]) for name, part in _tensors(headers) if name in tensors}
    nbytes = sum(part.nbytes for parts in lacking.values() for part in parts)
    if nbytes:
        layers = ranges(sorted({layer for name in lacking if lacking[name] and (layer := layer_of(name)) is not None}))
        whose = f" of {layers_text(layers)}" if layers else ""
        what = f"{model} is only partly on this Mac: {size_text(nbytes)}{whose} are missing."
        raise ModelNotFound(what, f"Copy it there: d in the list of models, or `macluster copy {model}`.")


def layers_text(which: Ranges) -> str:
    """ "layers 0–3 and 8"."""
    words = range_texts(which)
    numbers = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
    return f"layer {numbers}" if numbers.isdecimal() else f"layers {numbers}"


def size_text(nbytes: int) -> str:
    """ "4.2 GB", "0.3 MB"."""
    return f"{nbytes / GB:.1f} GB" if nbytes >= GB / 10 else f"{nbytes / 1e6:.1f} MB"


def _tensors(headers: Headers) -> Iterator[tuple[str, Part]]:
    for file, header in headers.items():
        for name, tensor in header.tensors.items():
            begin = header.nbytes + tensor.begin
            yield name, Part(file=file, begin=begin, end=begin + tensor.nbytes)
