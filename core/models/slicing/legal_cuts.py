"""Positions where a ring may cut a model, from its probe."""

from __future__ import annotations

from core.errors import IllegalCut, UnsupportedModel
from core.models.slicing.probe import ModelProbe


def legal_cuts(probe: ModelProbe) -> frozenset[int]:
    """Positions where a ring may cut the model; empty if it must stay in one process."""
    return probe.cuts - {probe.layers} if probe.layers in probe.cuts else frozenset()


def check_cuts(probe: ModelProbe, start: int, stop: int, *, embed: bool, output: bool) -> None:
    """Raise IllegalCut or UnsupportedModel unless [start, stop) with embedding and head can be a stage."""
    if not 0 <= start < stop <= probe.layers:
        raise IllegalCut(f"Layers [{start}, {stop}) are not in a model of {probe.layers} layers.")
    if embed != (start == 0):
        raise IllegalCut("Only the stage with layer 0 owns the embedding.")
    edges = {start, stop} - {0, probe.layers}
    apart = (stop == probe.layers) != output
    if not edges and not apart:
        return
    if probe.unsplittable:
        raise UnsupportedModel(
            f"This model cannot be split over several Macs: {probe.unsplittable}.",
            "Load it on one Mac, or choose another model.",
        )
    for cut in sorted(edges | ({probe.layers} if apart else set())):
        if cut not in probe.cuts:
            legal = ", ".join(str(c) for c in sorted(legal_cuts(probe)))
            raise IllegalCut(
                f"This model cannot be cut before layer {cut}, because layers on both sides share state.",
                f"It can be cut before layers {legal}." if legal else "Load it on one Mac.",
            )
