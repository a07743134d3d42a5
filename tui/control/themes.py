"""The two themes of macluster. Textual's own stay available in the palette.

Stages are told apart by texture first; their colours are blue, orange and grey-violet, never red against green.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

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
        "input-selection-background": "#5AA9E6 35%",
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
        "input-selection-background": "#56B4E9 35%",
    },
)

OWN_THEMES = (DARK, COLOUR_BLIND)

# Textual's themes know nothing of these, so they get the colour of something else there
_STAND_INS = {
    "stage-1": "primary",
    "stage-2": "accent",
    "stage-3": "secondary",
    "stage-4": "foreground",
    "frame": "panel-lighten-2",
}


def own_variables(theme: Theme) -> dict[str, str]:
    """The colours of ours that `theme` does not have."""
    colours = {**theme.to_color_system().generate(), **theme.variables}
    return {ours: colours.get(theirs, colours["foreground"]) for ours, theirs in _STAND_INS.items()}


@contextmanager
def no_color_kept() -> Iterator[None]:
    """For the time in which Textual's App is made: it takes any NO_COLOR, also an empty one, and removes it.

    An empty one means nothing by its own rules, and children of this process need the other.
    """
    value = os.environ.pop("NO_COLOR", "")
    if value:
        os.environ["NO_COLOR"] = value
    yield
    if value:
        os.environ["NO_COLOR"] = value
