"""Bytes of JSON files of a home."""

from __future__ import annotations


def in_format(content: bytes, number: int = 1) -> bytes:
    """A file of that format around `content`, which need not be JSON."""
    return b'{"format":%d,"content":%s}' % (number, content)
