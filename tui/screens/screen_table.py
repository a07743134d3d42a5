"""Screens by name for the action `open`; imported when opened, since all imports would delay the first frame."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from textual.screen import Screen

from tui.screens.base import Sources


def make(app: Sources, name: str, **details: object) -> Screen[Any]:
    """The screen of that name: `tui/screens/hop.py` has the class HopScreen. `details` are for that one alone."""
    kind = getattr(import_module(f"tui.screens.{name}"), _class_of(name))
    screen: Screen[Any] = kind(app, **details)
    return screen


def is_open(screen: Screen[Any], name: str) -> bool:
    return type(screen).__name__ == _class_of(name)


def _class_of(name: str) -> str:
    return f"{name.title()}Screen"
