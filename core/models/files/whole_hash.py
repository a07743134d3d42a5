"""SHA-256 of a whole file whose blocks arrive in any order, computed while they arrive."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Final

from core.models.files.block_map import BLOCK_BYTES, FileFacts

STRIDE: Final = 4  # blocks read and hashed at once; fits a core's cache


class WholeHash:
    """Hashes a file from its blocks. Thread-safe. `read(block, into)` rereads blocks that arrived out of order and
    returns the number of bytes read.
    """

    def __init__(self, facts: FileFacts, read: Callable[[int, memoryview], int]) -> None:
        self._facts, self._read = facts, read
        self._digest = hashlib.sha256()
        self._next = 0
        self._came = set[int]()
        self._turn, self._is_busy, self._is_of_use = threading.Lock(), False, True

    def add(self, block: int, data: bytes | memoryview) -> None:
        """Report a block on disk. Hashes it once all earlier blocks are there, in the thread that brought the last of
        them, while other threads continue. Raises OSError.
        """
        with self._turn:
            self._is_of_use &= block not in self._came  # a second version may differ
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
            if self._read(self._next, stretch) < len(stretch):  # another program changed the file
                self._is_of_use = False
                return
            self._digest.update(stretch)
            count = self._hashed(count)

    def _hashed(self, count: int) -> int:
        """Count `count` hashed blocks; returns how many of the next STRIDE blocks have arrived."""
        with self._turn:
            self._next += count
            more = 0
            while more < STRIDE and self._next + more in self._came:
                more += 1
            self._is_busy = more > 0
            return more

    @property
    def sha256(self) -> str | None:
        """Hex digest once each block has arrived exactly once; else None."""
        return self._digest.hexdigest() if self._is_of_use and self._next == len(self._facts.blocks) else None
