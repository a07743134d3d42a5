"""Today's version reads what every release wrote and said, and raises a number where it differs from the last one."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.events import decode_event
from core.settings import Home
from tests.releases import home
from tests.releases.__main__ import FRAME, HERE
from tests.releases.shapes import dump, routes
from tests.support.node_messages import from_frame

RELEASES = sorted(HERE.glob("[0-9]*"), key=lambda folder: [int(part) for part in folder.name.split(".")])
RULE = "If the last release has no tag yet, `python -m tests.releases --write` records it again instead."


def raises(last: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Numbers to raise: a sentence for each group of shapes that differs under the same number."""
    groups = {"wire": ["messages"], "local": ["events", "requests", "replies"]}
    for number, names in groups.items():
        changed = [each for name in names for each in _changed(last[name], now[name])]
        if changed and last[number] == now[number]:
            yield f"Raise {number.upper()} in core/version.py: {', '.join(changed)}. {RULE}"
    for name in _changed(last["files"], now["files"]):
        was, is_now = (found["files"].get(name, {"format": 0}) for found in (last, now))
        if was["format"] >= is_now["format"]:
            yield f"Raise the format of {name} in core/settings.py. {RULE}"


def _changed(last: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return sorted(name for name in last.keys() | now.keys() if last.get(name) != now.get(name))


def test_what_differs_from_the_last_release_has_another_number() -> None:
    last = json.loads((RELEASES[-1] / "shapes.json").read_text())
    assert list(raises(last, dump())) == []


def test_a_difference_names_the_number_to_raise() -> None:
    now = dump()
    last = json.loads(json.dumps(now))
    last["messages"]["Bye"] = last["events"]["LogLine"] = last["files"]["seen.json"]["shapes"] = "other"
    wire, local, file = raises(last, now)
    assert wire.startswith("Raise WIRE in core/version.py: Bye.")
    assert local.startswith("Raise LOCAL in core/version.py: LogLine.")
    assert file.startswith("Raise the format of seen.json in core/settings.py.")
    assert list(raises(last | {"wire": 0, "local": 0}, now)) == [file]


@pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name)
def test_a_home_of_a_release_is_read(release: Path, tmp_path: Path) -> None:
    with tarfile.open(release / "home.tar.gz") as archive:
        archive.extraction_filter = lambda member, _: member  # also the modes of folders
        archive.extractall(tmp_path)
    home.check(Home(tmp_path / "home"))


@pytest.mark.parametrize("release", RELEASES, ids=lambda folder: folder.name)
def test_messages_events_and_requests_of_a_release_are_understood(release: Path) -> None:
    frames, at = (release / "frames.bin").read_bytes(), 0
    while at < len(frames):
        kind, length = FRAME.unpack_from(frames, at)
        at += FRAME.size + length
        assert from_frame(kind, frames[at - length : at])
    for line in (release / "events.jsonl").read_bytes().splitlines():
        assert decode_event(line)
    taken = routes()
    for line in (release / "requests.jsonl").read_bytes().splitlines():
        name, body = msgspec.json.decode(line)
        if body is not None and (kind := taken[name]):
            assert msgspec.convert(body, kind, strict=False)
