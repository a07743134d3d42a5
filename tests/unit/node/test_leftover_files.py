"""Partial files of a killed node are deleted at the next start; files that may still be useful stay."""

from __future__ import annotations

import os
from pathlib import Path

from core.node.disks.leftover_files import BEING_WRITTEN_S, GIVEN_UP_S, sweep
from core.settings import Home

NOW = 2_000_000_000.0


def written(path: Path, ago_s: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 64)
    for each in (path, path.parent):
        os.utime(each, (NOW - ago_s, NOW - ago_s))
    return path


def test_stale_partial_files_are_swept_and_nothing_else(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    old, fresh = BEING_WRITTEN_S + 1, BEING_WRITTEN_S - 1
    elsewhere = written(tmp_path / "elsewhere", 10 * old)
    stale = [
        written(folder / "some.json.tmp", old)
        for folder in (
            home.root,
            home.rosters,
            home.tokens,
            home.conversations,
            home.sessions,
            home.split_profiles,
            home.references,
        )
    ]
    given_up = written(home.models / ".partial" / ("a" * 64) / "config.json", GIVEN_UP_S + 1)
    kept = [
        written(home.root / "look.json.tmp", fresh),
        written(home.tokens / "answer.mct", 10 * old),
        written(home.models / "model.tmp", 10 * old),
        written(home.models / ".partial" / ("b" * 64) / "config.json", GIVEN_UP_S - 1),
        elsewhere,
    ]
    (home.root / "link.tmp").symlink_to(elsewhere)
    sweep(home, NOW)
    assert not [each for each in stale if each.exists()]
    assert not given_up.parent.exists()
    assert all(each.read_bytes() == b"x" * 64 for each in kept)


def test_there_may_be_nothing_to_sweep(tmp_path: Path) -> None:
    sweep(Home(tmp_path / "none"), NOW)
