"""Remember strangers met before, for the level "seen": a hint for users that grants nothing."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from core.errors import IdentityError, MaclusterError
from core.settings import Home
from core.trust.file_formats import JsonFile
from core.trust.identity import parse_text_id, text_id

MAX_SEEN: Final = 256

_FILE: Final = JsonFile[list[tuple[str, float]]](
    Home.seen, list[tuple[str, float]], cure="Remove it: `rm {path}`; it only remembers strangers."
)


class SeenMacs:
    """First sightings (seconds since the epoch) of at most 256 device ids; the one not met for longest goes first."""

    def __init__(self, path: Path) -> None:
        """A newer file counts as empty, and so does one with a `problem`: damaged, or not private."""
        self._path = path
        self.problem: MaclusterError | None = None
        self._first: dict[bytes, float] = {}
        try:
            if os.path.lexists(path) and not _FILE.is_newer(path):
                self._first = _read(path)
        except MaclusterError as error:
            self.problem = error
        self._before = frozenset(self._first)
        self._saved = list(self._first)

    def met_before(self, device_id: bytes) -> bool:
        """Whether this Mac was met before this node started, with the same key: an id is the hash of a key."""
        return device_id in self._before

    def note(self, device_id: bytes, now_s: float, members: Collection[bytes] = ()) -> None:
        """Note that a Mac is here. Beyond the limit, drop one that is no member."""
        self._first[device_id] = self._first.pop(device_id, now_s)
        if len(self._first) > MAX_SEEN:
            del self._first[next((i for i in self._first if i not in members), device_id)]

    def save(self) -> None:
        """Write the file if it changed. Raises TrustError, also for the `problem` that the file had."""
        if self.problem:
            raise self.problem
        if self._saved != list(self._first):
            lines = [(text_id(i), first) for i, first in self._first.items()]
            _FILE.write(self._path, lines)
            self._saved = list(self._first)


def _read(path: Path) -> dict[bytes, float]:
    try:
        return {parse_text_id(text): first for text, first in _FILE.read(path)[-MAX_SEEN:]}
    except IdentityError as error:
        raise _FILE.damaged(path) from error
