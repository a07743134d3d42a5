"""ASCII look for screen readers and terminals without the glyphs: a character for a character, no frames.

Every drawn line passes here last, so no widget knows of it. Words next to the glyphs say what they mean.
"""

from __future__ import annotations

from typing import Final

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_EDGES = {"▏▎▍▌▐▕▊▉": "|"}
_BARS = {"█": "#", "▓": "%", "▒": "=", "░": ":", "▁▔": "_", "▂": ".", "▃": ":", "▄▀": "-", "▅": "=", "▆": "+", "▇": "*"}
_STATES = {"●◉◆": "*", "○◇": "-", "▲△": "!", "✗✘": "x", "✓✔": "+", "◌◍◐◑◒◓↻": "~"}
_MARKS = {
    "→▶▸›⏎": ">",
    "↳": " ",
    "←◀‹↩": "<",
    "↑▴": "^",
    "↓▼▾": "v",
    "·–—−": "-",
    "…": ".",
    "≈": "~",
    "•": "*",
    "×": "x",
}


def _table() -> dict[int, str]:
    # lines and corners mean nothing to a listener; glyphs with a shape follow
    table = dict.fromkeys(range(0x2500, 0x2580), " ") | dict.fromkeys(range(0x2580, 0x25A0), "#")
    table |= dict.fromkeys(range(0x2800, 0x2900), ".")
    table |= {ord("①") + n: str(n + 1) for n in range(9)}
    for kind in (_EDGES, _BARS, _STATES, _MARKS):
        table |= {ord(glyph): plain for glyphs, plain in kind.items() for glyph in glyphs}
    return table


ASCII: Final = _table()


class PlainGlyphs(LineFilter):
    """Replaces the glyphs of a line; glyph and replacement are one cell wide each."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text.translate(ASCII), style, control) for text, style, control in segments]
