"""Files that are forced to disk, on Linux and by the commands of macOS."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable

import pytest

from core.trust.private_files import before_later, to_disk

FULL, BARRIER = 51, 85


@pytest.mark.parametrize(
    ("sync", "command"), [pytest.param(to_disk, FULL, id="flushed"), pytest.param(before_later, BARRIER, id="in order")]
)
@pytest.mark.parametrize("knows", [True, False])
def test_macos_is_told_how_far_what_is_written_has_to_go(
    sync: Callable[[int], None], command: int, knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that knows no such command gets a plain fsync, and so does Linux."""
    told: list[object] = []

    def tell(fd: int, what: int) -> None:
        told.append(what)
        if not knows:
            raise OSError(45, "Operation not supported")

    monkeypatch.setattr(os, "fsync", lambda fd: told.append("fsync"))
    sync(9)
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", tell)
    sync(9)
    assert told == ["fsync", command, *(() if knows else ("fsync",))]
