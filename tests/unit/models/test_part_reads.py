"""Reads of parts of tensors."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.models.slicing import part_reads


def test_no_read_is_longer_than_the_system_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.preadv

    def allowed(fd: int, rooms: Sequence[memoryview], at: int) -> int:
        if sum(map(len, rooms)) > 4:
            raise OSError(errno.EINVAL, "Invalid argument")
        return read(fd, rooms, at)

    monkeypatch.setattr(os, "preadv", allowed)
    monkeypatch.setattr(part_reads, "MAX_READ_BYTES", 4)
    (tmp_path / "f").write_bytes(b"0123456789")
    room = bytearray(9)
    with (tmp_path / "f").open("rb") as file:
        part_reads._fill(file.fileno(), memoryview(room), 1)
    assert room == b"123456789"
