"""A Mac's name in signed data."""

from __future__ import annotations

from typing import Final

MAX_NAME: Final = 32


def name_bytes(name: str) -> bytes:
    """UTF-8, cut to 32 bytes between two characters."""
    return name.encode("utf-8", "ignore")[:MAX_NAME].decode("utf-8", "ignore").encode()
