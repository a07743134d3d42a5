"""Count failed pairing attempts across windows and restarts: each is one guess for an attacker in the middle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.errors import PairingError
from core.settings import Home
from core.trust.file_formats import JsonFile
from core.trust.pairing import ATTEMPTS, WINDOW_S

_FILE: Final = JsonFile[list[float]](
    Home.pairing_attempts, list[float], PairingError, "Remove it: `rm {path}`; it only counts attempts."
)


class PairingAttempts:
    """Allows three failed attempts in two minutes. If `clock` (epoch seconds) is set back, later ones count."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._made: list[float] = []

    def check(self) -> None:
        """Raises PairingError after too many attempts, or if the file is newer, damaged or not private."""
        now = self._clock()
        made = _FILE.read(self._path) if os.path.lexists(self._path) else []
        self._made = [min(at, now) for at in made if at > now - WINDOW_S]
        if len(self._made) >= ATTEMPTS:
            wait_s = self._made[-ATTEMPTS] + WINDOW_S - now
            raise PairingError(
                f"{ATTEMPTS} attempts at pairing this Mac failed in the last two minutes.",
                f"Try again in {max(1, round(wait_s))} s; if it happens again, somebody on this network disturbs it.",
            )

    def count(self) -> None:
        """Count an attempt before the other end can learn its digits. Raises PairingError."""
        self.check()
        self._made.append(self._clock())
        _FILE.write(self._path, self._made)

    def ended_well(self) -> None:
        """Don't count the last attempt: it led to a pairing. Raises PairingError."""
        self._made = self._made[:-1]
        _FILE.write(self._path, self._made)
