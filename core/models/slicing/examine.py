"""`python -m core.models.slicing.examine DIR` prints how a model can be split and batched, as a JSON `SplitProfile`.

With slices, as START:STOP:ENDS, it prints a list of `Part` for each: what a Mac must download for its stage. ENDS is
any of e (embedding) and o (norm and head). Prints a `Problem` with exit status 1 if the model cannot be examined.
Imports mlx and reads headers only. Works on foreign files, so a node runs it through `core.models.files.sandbox`, with
limits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, get_args

import mlx.core as mx

from core.errors import UnsupportedModel, UsageError
from core.events import WireType
from core.models.files.model_folder import ModelFolder, read_folder
from core.models.files.parts import Part
from core.models.files.sandbox import answer
from core.models.lean_imports import import_for_layers_only

if __name__ == "__main__":
    import_for_layers_only()

from core.models.slicing.boundary import bytes_per_token
from core.models.slicing.building import build
from core.models.slicing.loading import dry_run, slice_parts, weightless
from core.models.slicing.measured_caches import cache_sizes, one_row, whole_bits
from core.models.slicing.probe import legal_cuts
from core.models.slicing.split_profile import SplitProfile
from core.settings import KV_BITS

CPU_SECONDS: Final = 240
MAX_LAYERS: Final = 1000


def examine(folder: ModelFolder) -> SplitProfile:
    """Split profile of a model. Raises BadModel, UnsupportedModel."""
    model = build(folder).model
    if len(model.layers) > MAX_LAYERS:
        raise UnsupportedModel(f"{folder.name} claims {len(model.layers)} layers.", "Choose another model.")
    probe = dry_run(model, folder.name)
    cuts = tuple(sorted(legal_cuts(probe)))
    with weightless(model):
        alone, unquantised = one_row(model, probe), whole_bits(model)
        caches = cache_sizes(model, probe, () if unquantised else KV_BITS)
    return SplitProfile(
        layers=probe.layers,
        cuts=cuts,
        unsplittable="" if cuts else "it has one layer" if probe.layers == 1 else probe.unsplittable,
        reveals_tokens=probe.reveals_tokens,
        one_row=alone,
        whole_bits=unquantised,
        boundary_bytes=tuple(b.bytes_per_token for b in probe.boundaries),
        wire_bytes={
            wire: tuple(bytes_per_token(wire, b.kinds) for b in probe.boundaries) for wire in get_args(WireType)
        },
        caches=caches,
    )


def parts_of_slice(folder: ModelFolder, words: str) -> tuple[Part, ...]:
    """Byte ranges of the slice that `words` describe. Raises UsageError, and as `slice_parts`."""
    start, _, rest = words.partition(":")
    stop, _, ends = rest.partition(":")
    if not (start.isdecimal() and stop.isdecimal() and set(ends) <= {"e", "o"}):
        raise UsageError(f"{words!r} is not a slice.", "Write it as 0:8:eo.")
    return slice_parts(folder, int(start), int(stop), embed="e" in ends, output="o" in ends)


def main() -> int:
    """Print the profile, the ranges or the problem; returns the exit status."""

    def work() -> SplitProfile | list[tuple[Part, ...]]:
        folder, slices = read_folder(Path(sys.argv[1])), sys.argv[2:]
        return [parts_of_slice(folder, words) for words in slices] if slices else examine(folder)

    status = answer(work, CPU_SECONDS)
    mx.synchronize()
    mx.clear_streams()
    return status


if __name__ == "__main__":
    sys.exit(main())
