"""The SHA-256 of a file whose blocks come in any order, made while they come: nothing is read again in the end."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from core.models.files.block_map import FileFacts

Data = bytes | memoryview


class WholeHash:
    """Threads tell it which blocks came. `read` gives one that came out of turn."""

    def __init__(self, facts: FileFacts, read: Callable[[int], Data]) -> None:
        self._facts, self._read = facts, read
        self._digest = hashlib.sha256()
        self._next = 0
        self._came = set[int]()
        self._turn, self._is_busy, self._is_of_use = threading.Lock(), False, True

    def add(self, block: int, data: Data) -> None:
        """A block is on disk, and is hashed as soon as all before it are: by the thread that brought the last of them,
        while the others bring more. Raises OSError.
        """
        with self._turn:
            self._is_of_use &= block not in self._came  # it may be another one
            self._came.add(block)
            if self._is_busy or block != self._next:
                return
            self._is_busy = True
        while True:
            self._digest.update(data)
            with self._turn:
                self._next += 1
                if self._next not in self._came:
                    self._is_busy = False
                    return
            data = self._read(self._next)

    @property
    def sha256(self) -> str | None:
        """Hex, where all blocks have come by this, each once."""
        return self._digest.hexdigest() if self._is_of_use and self._next == len(self._facts.blocks) else None
