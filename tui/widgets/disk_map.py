"""Bars of the layers on each Mac's disk."""

from __future__ import annotations

from textual.content import Content

from core.events import Snapshot
from core.requests.plans import ModelChoice
from tui.state.disks import DiskRow, disk_rows
from tui.state.format import DIM, STEPS, TEXTURES, TINTS, fit, layer_range

_NAME = 12
_WORDS = 16


def map_lines(choice: ModelChoice, now: Snapshot, width: int) -> list[Content]:
    """One line per Mac in `width` cells; none if every disk has all of the model, or no disk any."""
    rows = disk_rows(choice, now)
    bar = max(8, min(40, width - _NAME - _WORDS))
    lines = [_line(index, row, choice.layers, bar) for index, row in enumerate(rows)]
    return [Content.styled("Layers on disk", DIM), *lines] if lines else []


def _line(index: int, row: DiskRow, layers: int, bar: int) -> Content:
    there = layer_cells(row.ranges, layers, bar)
    texture, tint = TEXTURES[index % len(TEXTURES)], TINTS[index % len(TINTS)]
    cells = "".join(texture if cell else STEPS[0] for cell in there)
    held = sum(stop - start for start, stop in row.ranges)
    ranges = ", ".join(layer_range(*each) for each in row.ranges)
    words = "all" if held == layers else "none" if not held else ranges
    return Content.assemble(fit(row.name, _NAME - 1) + " ", (cells, tint), f" {words}", (row.coming, DIM))


def layer_cells(ranges: tuple[tuple[int, int], ...], layers: int, width: int) -> list[bool]:
    """For each of `width` cells, whether all its layers are in the half-open `ranges`."""
    there = {layer for start, stop in ranges for layer in range(start, stop)}
    spans = [
        (cell * layers // width, max(cell * layers // width + 1, (cell + 1) * layers // width)) for cell in range(width)
    ]
    return [all(layer in there for layer in range(*span)) for span in spans]
