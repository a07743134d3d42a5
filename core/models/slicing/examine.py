"""`python -m core.models.slicing.examine DIR` prints how a model can be split and batched, as a JSON `SplitProfile`.

Prints a `Problem` with exit status 1 if the model cannot be examined. Imports mlx and reads headers only. Works on
foreign files, so a node runs it through `core.models.files.sandbox`, with limits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, get_args

import mlx.core as mx

from core.errors import UnsupportedModel
from core.events import WireType
from core.models.files.model_folder import ModelFolder, read_folder
from core.models.files.sandbox import answer
from core.models.lean_imports import import_for_layers_only

if __name__ == "__main__":
    import_for_layers_only()

from core.models.slicing.boundary import bytes_per_token
from core.models.slicing.loading import build_lazily, dry_run, weightless
from core.models.slicing.measured_caches import cache_sizes, one_row, whole_bits
from core.models.slicing.probe import legal_cuts
from core.models.slicing.split_profile import SplitProfile
from core.settings import KV_BITS

CPU_SECONDS: Final = 240
MAX_LAYERS: Final = 1000


def examine(folder: ModelFolder) -> SplitProfile:
    """Split profile of a model. Raises BadModel, UnsupportedModel."""
    model = build_lazily(folder)
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


def main() -> int:
    status = answer(lambda: examine(read_folder(Path(sys.argv[1]))), CPU_SECONDS)
    mx.synchronize()
    mx.clear_streams()
    return status


if __name__ == "__main__":
    sys.exit(main())
