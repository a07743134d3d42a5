"""All layers of a model as one bar: a texture and a colour for each Mac, and a line at each boundary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from textual.content import Content

from tui.state.bars import TEXTURES, TINTS, shares
from tui.state.format import DIM

BOUNDARY = "┃"


def part_starts(layers: Sequence[int], width: int) -> list[int]:
    """The first cell of each part, and the cell after the bar and its next boundary."""
    return list(accumulate((cells + 1 for cells in _cells(layers, width)), initial=0))


def layer_bar(layers: Sequence[int], width: int) -> Content:
    """One bar of `width` cells; `layers` are counts per Mac, in layer order."""
    parts = [
        Content.styled(TEXTURES[i % len(TEXTURES)] * cells, TINTS[i % len(TINTS)])
        for i, cells in enumerate(_cells(layers, width))
    ]
    return Content.styled(BOUNDARY, DIM).join(parts)


def marked(line: Content, cell: int, glyph: str, style: str) -> Content:
    """Replace one character of `line`, if it has that cell; all characters are one cell wide."""
    if not 0 <= cell < len(line):
        return line
    return line[:cell] + Content.styled(glyph, style) + line[cell + 1 :]


def _cells(layers: Sequence[int], width: int) -> list[int]:
    return shares(layers, width - len(layers) + 1)
