"""Appearance and frame rate, by the user's settings and the terminal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tui.control.preferences import Preferences
from tui.control.themes import DARK

FULL_FPS: Final = 30
SSH_FPS: Final = 15
SLOW_FPS: Final = 5
COMPLAINT_S: Final = 20.0


def frames_per_s(preferences: Preferences, environ: Mapping[str, str]) -> int:
    """How often a growing text is drawn; over SSH every repaint crosses the network."""
    if preferences.slow_link:
        return SLOW_FPS
    return SSH_FPS if environ.get("SSH_CONNECTION") else FULL_FPS


def theme_of(preferences: Preferences, known: Collection[str]) -> str:
    return next((name for name in (preferences.theme, preferences.remembered) if name in known), DARK.name)


def config_complaints(preferences: Preferences, known: Collection[str]) -> tuple[str, ...]:
    if not preferences.theme or preferences.theme in known:
        return preferences.complaints
    return (*preferences.complaints, f"Unknown theme {preferences.theme!r}. The palette lists all themes.")
