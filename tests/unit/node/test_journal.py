from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from core.node.base.bus import Bus
from core.node.base.journal import FILE_LIMIT, LINE_LIMIT, Journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.log"


def test_lines_are_clean_ascii_json_on_disk_and_events_for_readers(path: Path) -> None:
    bus = Bus()
    journal = Journal(path, "studio", bus)
    journal.info("Müller\u202e ist da \x1b]52;c;aGk=\x07\x9b31m")
    journal.warn("x" * 2 * LINE_LIMIT)
    journal.write("ERROR", 'two\nlines "quoted"\n', source="worker")
    raw = path.read_bytes()
    assert raw.isascii()
    assert not {b for b in raw if b < 0x20} - {0x0A}
    lines = [json.loads(line) for line in raw.splitlines()]
    assert [(x["level"], x["source"]) for x in lines] == [("INFO", "studio"), ("WARN", "studio"), ("ERROR", "worker")]
    texts = [x["text"] for x in lines]
    assert texts == ["Müller ist da ]52;c;aGk=31m", "x" * LINE_LIMIT, 'two\nlines "quoted"']
    assert [line.text for line in bus.now.logs] == texts


def test_only_this_user_can_read_it(path: Path) -> None:
    Journal(path, "studio", Bus()).info("hello")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_makes_room_and_one_old_one_is_kept(path: Path, tmp_path: Path) -> None:
    journal = Journal(path, "studio", Bus())
    for turn in range(3):
        journal.info(f"turn {turn}")
        with path.open("r+b") as file:
            file.truncate(FILE_LIMIT + 1)
    journal.info("last")
    assert [json.loads(line)["text"] for line in path.read_bytes().splitlines()] == ["last"]
    old = tmp_path / "node.log.1"
    assert sorted(tmp_path.iterdir()) == [path, old]
    assert b"turn 2" in old.read_bytes()[:200]
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
