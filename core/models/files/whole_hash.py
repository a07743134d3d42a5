"""The SHA-256 of a file whose blocks come in any order, made while they come: nothing is read again in the end."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Final

from core.models.files.block_map import BLOCK_BYTES, FileFacts

STRIDE: Final = 4  # blocks that are read and hashed in one go: as much as a core's cache holds


class WholeHash:
    """Threads tell it which blocks came. `read` fills what it is given from a block on that came out of turn, and says
    how many bytes there were.
    """

    def __init__(self, facts: FileFacts, read: Callable[[int, memoryview], int]) -> None:
        self._facts, self._read = facts, read
        self._digest = hashlib.sha256()
        self._next = 0
        self._came = set[int]()
        self._turn, self._is_busy, self._is_of_use = threading.Lock(), False, True

    def add(self, block: int, data: bytes | memoryview) -> None:
        """A block is on disk, and is hashed as soon as all before it are: by the thread that brought the last of them,
        while the others bring more. Raises OSError.
        """
        with self._turn:
            self._is_of_use &= block not in self._came  # it may be another one
            self._came.add(block)
            if self._is_busy or block != self._next:
                return
            self._is_busy = True
        self._digest.update(data)
        room: memoryview | None = None
        count = self._hashed(1)
        while count:
            room = room or memoryview(bytearray(STRIDE * BLOCK_BYTES))
            stretch = room[: min(count * BLOCK_BYTES, self._facts.size - self._next * BLOCK_BYTES)]
            if self._read(self._next, stretch) < len(stretch):  # it was written to by somebody else
                self._is_of_use = False
                return
            self._digest.update(stretch)
            count = self._hashed(count)

    def _hashed(self, count: int) -> int:
        """So many more are hashed; how many of those behind them are here, as far as one goes at a time."""
        with self._turn:
            self._next += count
            more = 0
            while more < STRIDE and self._next + more in self._came:
                more += 1
            self._is_busy = more > 0
            return more

    @property
    def sha256(self) -> str | None:
        """Hex, where all blocks have come by this, each once."""
        return self._digest.hexdigest() if self._is_of_use and self._next == len(self._facts.blocks) else None
