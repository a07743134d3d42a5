"""Holes in files: made on this system, and requested in macOS's form."""

from __future__ import annotations

import fcntl
import struct
import sys
from pathlib import Path

import pytest

from core.mac.sparse_files import PAGE_BYTES, punch_hole

SIZE = 64 * PAGE_BYTES


@pytest.fixture
def full(tmp_path: Path) -> Path:
    file = tmp_path / "full"
    file.write_bytes(b"\1" * SIZE)
    return file


@pytest.mark.skipif(sys.platform != "linux", reason="fallocate is of Linux")
@pytest.mark.parametrize(
    ("begin", "end", "first", "last"),
    [(0, SIZE, 0, 64), (PAGE_BYTES, 3 * PAGE_BYTES, 1, 3), (1, 3 * PAGE_BYTES - 1, 1, 2), (5, 9, 0, 0)],
)
def test_whole_pages_are_let_go_of_and_nothing_else(full: Path, begin: int, end: int, first: int, last: int) -> None:
    with full.open("r+b") as file:
        punch_hole(file.fileno(), begin, end)
    expected = bytearray(b"\1" * SIZE)
    expected[first * PAGE_BYTES : last * PAGE_BYTES] = bytes((last - first) * PAGE_BYTES)
    assert full.read_bytes() == expected
    assert full.stat().st_blocks * 512 <= SIZE - (last - first) * PAGE_BYTES + PAGE_BYTES


def test_macos_is_asked_for_whole_pages(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, bytes]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "fcntl", lambda _, command, words: asked.append((command, words)))
    with full.open("r+b") as file:
        punch_hole(file.fileno(), 1, 3 * PAGE_BYTES + 1)
    ((command, words),) = asked
    assert (command, struct.unpack("=IIqq", words)) == (99, (0, 0, PAGE_BYTES, 2 * PAGE_BYTES))
