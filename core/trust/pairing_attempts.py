"""Count failed pairing attempts across windows and restarts: each is one guess for an attacker in the middle."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from core.errors import PairingError
from core.trust.pairing import ATTEMPTS, WINDOW_S
from core.trust.private_files import read_private, write_private


class PairingAttempts:
    """Allows three failed attempts in two minutes. If `clock` (epoch seconds) is set back, later ones count."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Raises PairingError if the file is damaged or not private."""
        self._path, self._clock = path, clock
        self._made = _read(path) if os.path.lexists(path) else []

    def check(self) -> None:
        now = self._clock()
        self._made = [min(at, now) for at in self._made if at > now - WINDOW_S]
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
        self._write()

    def ended_well(self) -> None:
        """Don't count the last attempt: it led to a pairing. Raises PairingError."""
        self._made = self._made[:-1]
        self._write()

    def _write(self) -> None:
        write_private(self._path, msgspec.json.encode(self._made), PairingError)


def _read(path: Path) -> list[float]:
    try:
        return msgspec.json.decode(read_private(path, PairingError), type=list[float])
    except msgspec.MsgspecError as error:
        raise PairingError(f"{path} is damaged.", f"Remove it: `rm {path}`; it only counts attempts.") from error
