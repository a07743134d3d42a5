"""Freed blocks leave the map and the disk; all others stay unchanged, and needed ones are never freed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import Busy, TransferError
from core.mac import sparse_files
from core.models.files import freeing_blocks
from core.models.files.block_map import (
    BLOCK_BYTES,
    MAP_NAME,
    BlockMap,
    FileFacts,
    blocks_of,
    read_map,
    read_written,
)
from core.models.files.block_writer import BlockWriter
from core.models.files.compared_hashes import check_compared
from core.models.files.freeing_blocks import kept_of, let_go, taken_bytes
from core.models.files.hub_origin import HubOrigin, write_origin
from core.models.files.parts import Part

NAME = "model.safetensors"
BLOCKS = [bytes([number]) * BLOCK_BYTES for number in range(1, 6)]
DATA = b"".join(BLOCKS)[:-1000]
FACTS = {
    "config.json": FileFacts(size=2, sha256=hashlib.sha256(b"{}").hexdigest()),
    NAME: FileFacts(size=len(DATA), sha256=hashlib.sha256(DATA).hexdigest()),
}


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = tmp_path / "solo"
    folder.mkdir()
    writer = BlockWriter(folder, FACTS)
    writer.put("config.json", 0, b"{}")
    for block in FACTS[NAME].blocks:
        writer.put(NAME, block, DATA[block * BLOCK_BYTES :][:BLOCK_BYTES])
    writer.close()
    writer.finish()
    assert read_map(folder) is None
    return folder


def needed(*blocks: int) -> list[Part]:
    return [Part(file=NAME, begin=b * BLOCK_BYTES + 5, end=b * BLOCK_BYTES + 6) for b in blocks]


def check(folder: Path, stays: set[int]) -> None:
    there = read_map(folder)
    assert there
    assert there.hashes[NAME].keys() == stays
    assert there.hashes["config.json"].keys() == {0}
    data = (folder / NAME).read_bytes()
    for block in FACTS[NAME].blocks:
        piece = data[block * BLOCK_BYTES :][:BLOCK_BYTES]
        if block in stays:
            assert hashlib.sha256(piece).digest() == there.hashes[NAME][block]
        else:
            assert not any(piece[: len(piece) // sparse_files.PAGE_BYTES * sparse_files.PAGE_BYTES])
    slack = 2 * sparse_files.PAGE_BYTES
    assert taken_bytes(folder, [NAME]) <= len(stays) * BLOCK_BYTES + slack
    assert (folder / NAME).stat().st_size == len(DATA)


def test_blocks_go_and_come_again(whole: Path) -> None:
    for stays in ({0, 1, 4}, {1}):
        there = read_written(whole)
        assert there
        let_go(whole, there, kept_of(there, needed(*stays)), lambda: True)
        check(whole, stays)
    writer = BlockWriter(whole, FACTS)
    for block in set(FACTS[NAME].blocks) - {1}:
        writer.put(NAME, block, DATA[block * BLOCK_BYTES :][:BLOCK_BYTES])
    writer.close()
    writer.finish()
    assert (read_map(whole), (whole / NAME).read_bytes()) == (None, DATA)


def test_what_is_left_of_a_whole_model_of_the_hub_was_compared(whole: Path) -> None:
    write_origin(whole, HubOrigin(repo="acme/toy", commit="f" * 40))
    there = read_written(whole)
    assert there
    let_go(whole, there, kept_of(there, needed(0, 2)), lambda: True)
    check_compared(whole)


def test_what_one_that_was_killed_has_left_goes_with_the_next(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = read_written(whole)
    assert there

    def killed(file: Path, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(freeing_blocks, "_punch", killed)
        with pytest.raises(KeyboardInterrupt):
            let_go(whole, there, kept_of(there, needed(0, 2)), lambda: True)
    left = read_map(whole)
    assert left
    assert left.hashes[NAME].keys() == {0, 2}
    assert taken_bytes(whole, [NAME]) - left.there_bytes > 2 * BLOCK_BYTES
    let_go(whole, left, left, lambda: True)
    check(whole, {0, 2})


def test_where_somebody_comes_to_need_it_all_stays(whole: Path) -> None:
    there = read_written(whole)
    assert there
    with pytest.raises(Busy):
        let_go(whole, there, kept_of(there, needed(3)), lambda: False)
    found = read_map(whole)
    assert found
    assert found.hashes[NAME].keys() == set(FACTS[NAME].blocks)
    assert (whole / NAME).read_bytes() == DATA


def test_a_disk_that_makes_no_holes_keeps_everything(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, begin: int, end: int) -> None:
        raise OSError(95, os.strerror(95))

    there = read_written(whole)
    assert there
    monkeypatch.setattr(freeing_blocks, "punch_hole", refuse)
    with pytest.raises(TransferError, match="cannot free a part of a file"):
        let_go(whole, there, kept_of(there, needed(3)), lambda: True)
    assert not (whole / MAP_NAME).exists()


@given(
    there=st.sets(st.integers(0, 4)),
    edges=st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, len(DATA))), max_size=4),
)
@pytest.mark.promise("P27")
def test_whatever_is_needed_and_there_stays_and_nothing_else(there: set[int], edges: list[tuple[int, int]]) -> None:
    parts = [Part(file=NAME, begin=min(pair), end=max(pair)) for pair in edges]
    here = BlockMap(FACTS, {NAME: dict.fromkeys(there, b""), "config.json": {0: b""}})
    kept = kept_of(here, parts)
    wanted = {block for part in parts for block in blocks_of(part)}
    assert kept.hashes[NAME].keys() == wanted & there
    assert kept.hashes["config.json"].keys() == {0}
    assert kept.lacking(parts) == here.lacking(parts)
