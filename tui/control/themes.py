"""The themes of macluster. Textual's own stay in the palette, with their text made readable.

Texture distinguishes stages first; their colours are blue, orange and grey-violet, never red against green.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from textual.color import Color
from textual.theme import Theme

DARK = Theme(
    name="macluster-dark",
    primary="#5AA9E6",
    secondary="#7C8DA6",
    accent="#F2A65A",
    warning="#F2C54E",
    error="#F27A7A",
    success="#7BD88F",
    foreground="#DDE3EA",
    background="#10141A",
    surface="#10141A",
    panel="#1F2429",
    dark=True,
    variables={
        "stage-1": "#5AA9E6",
        "stage-2": "#F2A65A",
        "stage-3": "#B7A6F0",
        "stage-4": "#9FB3C8",
        "frame": "#3A4656",
        "text-muted": "#8D9AAA",
        "text-success": "#7BD88F",
        "text-warning": "#F2C54E",
        "text-error": "#FF9D9D",
    },
)

# Okabe and Ito's palette: distinct with every common form of colour blindness; good is blue, bad is vermilion
COLOUR_BLIND = Theme(
    name="macluster-colour-blind",
    primary="#56B4E9",
    secondary="#8A9BB0",
    accent="#E69F00",
    warning="#F0E442",
    error="#E8763A",
    success="#56B4E9",
    foreground="#E6E6E6",
    background="#0E1116",
    surface="#0E1116",
    panel="#1F2429",
    dark=True,
    variables={
        "stage-1": "#56B4E9",
        "stage-2": "#E69F00",
        "stage-3": "#CC9BBC",
        "stage-4": "#C8C8C8",
        "frame": "#44505F",
        "text-muted": "#98A4B3",
        "text-success": "#6EC1F0",
        "text-warning": "#F0E442",
        "text-error": "#F5935F",
    },
)

LIGHT = Theme(
    name="macluster-light",
    primary="#1B64A8",
    secondary="#3F5F87",
    accent="#A04A00",
    warning="#6B6000",
    error="#B3261E",
    success="#1C6B33",
    foreground="#1D2530",
    background="#FAFBFC",
    surface="#FAFBFC",
    panel="#E9EDF2",
    dark=False,
    variables={
        "stage-1": "#1B64A8",
        "stage-2": "#A04A00",
        "stage-3": "#6A4FB3",
        "stage-4": "#4F4F4F",
        "frame": "#B4BFCC",
        "text-muted": "#5A5F66",
        "text-success": "#1C6B33",
        "text-warning": "#6B6000",
        "text-error": "#B3261E",
    },
)

OWN_THEMES = (DARK, LIGHT, COLOUR_BLIND)

# text in these colours is readable on each background: WCAG 2 requires this contrast
_INKS = (
    *("foreground", "primary", "accent", "warning", "error", "success"),
    *(f"text-{name}" for name in ("muted", "primary", "secondary", "accent", "success", "warning", "error")),
    *(f"stage-{number}" for number in range(1, 5)),
)
_GROUNDS = ("background", "panel", "block-cursor-background")
_CURSOR_PART = 0.3  # share of the first colour in the row of a cursor
CONTRAST = 4.5
_STEP = 0.04

# Textual's themes lack these, so they get another colour of the theme
_STAND_INS = {
    "stage-1": "primary",
    "stage-2": "accent",
    "stage-3": "secondary",
    "stage-4": "foreground",
    "frame": "panel-lighten-2",
}


def own_variables(theme: Theme) -> dict[str, str]:
    colours = {**theme.to_color_system().generate(), **theme.variables}
    return {ours: colours.get(theirs, colours["foreground"]) for ours, theirs in _STAND_INS.items()}


def legible(colours: Mapping[str, str]) -> dict[str, str]:
    """Cursor backgrounds and text colours with enough contrast; a theme of the terminal's own colours is unchanged."""
    if colours["background"].startswith("ansi"):
        return {}
    background, panel, primary = (Color.parse(colours[name]) for name in ("background", "panel", "primary"))
    cursor = background.blend(primary, _CURSOR_PART)
    inks = {name: _parsed(colours[name], colours) for name in _INKS if name in colours}
    lifted = {name: _lifted(ink, (background, panel, cursor)).hex for name, ink in inks.items()}
    return {**lifted, **_of_cursors(lifted["foreground"], background.hex, panel.hex, cursor.hex)}


def _of_cursors(ink: str, background: str, panel: str, cursor: str) -> dict[str, str]:
    inks = ("block-cursor-foreground", "block-cursor-blurred-foreground", "input-selection-foreground")
    return {
        **dict.fromkeys(inks, ink),
        "block-cursor-background": cursor,
        "block-cursor-blurred-background": panel,
        "input-selection-background": cursor,
        "input-cursor-background": ink,
        "input-cursor-foreground": background,
    }


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    parts = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour.normalized)
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def _parsed(text: str, colours: Mapping[str, str]) -> Color:
    if not text.startswith("auto"):
        return Color.parse(text)
    part = float(text.removeprefix("auto").strip().rstrip("%") or 100) / 100
    return Color.parse(colours["background"]).blend(Color.parse(colours["foreground"]), part)


def _lifted(ink: Color, grounds: Sequence[Color]) -> Color:
    ends = (Color(255, 255, 255), Color(0, 0, 0))
    end = max(ends, key=lambda end: min(contrast(end, ground) for ground in grounds))
    steps = (ink.blend(end, _STEP * n) for n in range(round(1 / _STEP)))
    return next((c for c in steps if all(contrast(c, ground) >= CONTRAST for ground in grounds)), end)


@contextmanager
def no_color_kept() -> Iterator[None]:
    """Restore NO_COLOR, even an empty one: Textual's App removes it, but child processes need the variable."""
    value = os.environ.pop("NO_COLOR", "")
    if value:
        os.environ["NO_COLOR"] = value
    yield
    if value:
        os.environ["NO_COLOR"] = value
