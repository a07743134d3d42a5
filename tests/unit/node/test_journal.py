from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from core.node.base.bus import Bus
from core.node.base.journal import FILE_LIMIT, LINE_LIMIT, Journal
from core.snapshot import LOG_LINES_KEPT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "node.log"


def test_lines_are_clean_ascii_json_on_disk_and_events_for_readers(path: Path) -> None:
    bus = Bus()
    journal = Journal(path, "studio", bus)
    journal.info("Müller\u202e ist da \x1b]52;c;aGk=\x07\x9b31m")
    journal.warn("x" * 2 * LINE_LIMIT)
    journal.error('two\nlines "quoted"\n')
    raw = path.read_bytes()
    assert raw.isascii()
    assert not {b for b in raw if b < 0x20} - {0x0A}
    lines = [json.loads(line) for line in raw.splitlines()]
    assert [(x["level"], x["source"]) for x in lines] == [("INFO", "studio"), ("WARN", "studio"), ("ERROR", "studio")]
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


def test_who_asks_later_gets_the_next_lines_of_those_that_are_kept(path: Path) -> None:
    journal = Journal(path, "studio", Bus())
    assert journal.after(0, 3) == (0, ())
    for number in range(1, LOG_LINES_KEPT + 6):
        journal.info(f"{number}")
    for asked, most, last, texts in (
        (LOG_LINES_KEPT, 2, LOG_LINES_KEPT + 2, [f"{LOG_LINES_KEPT + 1}", f"{LOG_LINES_KEPT + 2}"]),
        (LOG_LINES_KEPT + 4, 9, LOG_LINES_KEPT + 5, [f"{LOG_LINES_KEPT + 5}"]),
        (0, 2, 7, ["6", "7"]),  # the first five are gone
        (10**15, 9, 10**15, []),
    ):
        told, lines = journal.after(asked, most)
        assert (told, [line.text for line in lines]) == (last, texts)
