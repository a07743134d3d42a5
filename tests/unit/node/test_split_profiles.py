"""A model is examined once; the result is stored, and checked before use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from core.errors import ModelNotFound, UnsupportedModel
from core.models.files.catalog import ModelEntry
from core.node.ring.split_profiles import SplitProfiles
from tests.support.maker import make_model
from tests.support.models import read_entry


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "toy"
    make_model(directory, "llama", layers=4)
    return directory


@pytest.fixture
def entry(model: Path, tmp_path: Path) -> ModelEntry:
    """A copy of its own, which a test may break."""
    return read_entry(Path(shutil.copytree(model, tmp_path / "toy")))


def children() -> list[psutil.Process]:
    """The examining children of this process that have begun and not ended."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "core.models.slicing.examine" in child.cmdline():
                found.append(child)
    return found


async def test_what_was_found_outlives_the_model_and_the_node(entry: ModelEntry, tmp_path: Path) -> None:
    first = SplitProfiles(tmp_path / "home" / "split-profiles")
    assert first.known(entry) is None
    found = await first.of(entry)
    assert (found.layers, found.cuts) == (4, (1, 2, 3))
    (file,) = (tmp_path / "home" / "split-profiles").iterdir()
    assert entry.fingerprint in file.name
    assert [p.stat().st_mode & 0o777 for p in (file, file.parent, file.parent.parent)] == [0o600, 0o700, 0o700]
    shutil.rmtree(entry.path)  # a new child would fail now
    assert await first.of(entry) == found
    assert await SplitProfiles(tmp_path / "home" / "split-profiles").of(entry) == found


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut short": lambda f: f.write_bytes(f.read_bytes()[:-9]),
    "garbage": lambda f: f.write_bytes(b"\xff" * 200_000),
    "readable by others": lambda f: f.chmod(0o644),
    "other layers": lambda f: f.write_text(changed(f, layers=5)),
    "disordered cuts": lambda f: f.write_text(changed(f, cuts=[3, 2])),
    "cuts at the ends": lambda f: f.write_text(changed(f, cuts=[0, 4])),
    "caches of fewer layers": lambda f: f.write_text(changed(f, caches=[])),
    "a negative cache": lambda f: f.write_text(f.read_text().replace('"window":0', '"window":-1')),
    "of before caches were measured": lambda f: f.write_text(changed(f, caches=None)),
}


def changed(file: Path, **fields: object) -> str:
    """The file with other fields; a field that is None is left out."""
    whole = json.loads(file.read_text())
    profile = {**whole["content"], **fields}
    return json.dumps({**whole, "content": {name: value for name, value in profile.items() if value is not None}})


@pytest.mark.slow
async def test_a_damaged_memory_counts_for_nothing_and_is_asked_anew(entry: ModelEntry, tmp_path: Path) -> None:
    found = await SplitProfiles(tmp_path / "home").of(entry)
    (file,) = (tmp_path / "home").iterdir()
    whole = file.read_bytes()
    for name, damage in DAMAGES.items():
        assert SplitProfiles(tmp_path / "home").known(entry) == found, name
        damage(file)
        assert SplitProfiles(tmp_path / "home").known(entry) is None, name
        file.write_bytes(whole)
        file.chmod(0o600)
    file.write_bytes(b"{}")
    assert await SplitProfiles(tmp_path / "home").of(entry) == found
    assert SplitProfiles(tmp_path / "home").known(entry) == found


@pytest.mark.slow
async def test_two_who_ask_at_once_start_one_child(entry: ModelEntry, tmp_path: Path) -> None:
    profiles = SplitProfiles(tmp_path / "home")
    asked = asyncio.gather(*(profiles.of(entry) for _ in range(3)))
    most = 0
    while not asked.done():
        most = max(most, len(children()))
        await asyncio.sleep(0.01)
    assert len(set(map(msgspec.json.encode, asked.result()))) == 1
    assert most == 1


async def test_a_question_that_is_given_up_ends_its_child(entry: ModelEntry, tmp_path: Path) -> None:
    asked = asyncio.create_task(SplitProfiles(tmp_path / "home").of(entry))
    while not (begun := children()):
        assert not asked.done()
        await asyncio.sleep(0.005)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    _, alive = await asyncio.to_thread(psutil.wait_procs, begun, 10)
    assert alive == []


async def test_a_model_that_mlx_lm_does_not_know_is_refused_each_time(entry: ModelEntry, tmp_path: Path) -> None:
    config = Path(entry.path) / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": "no_such_family"}))
    profiles = SplitProfiles(tmp_path / "home")
    with pytest.raises(UnsupportedModel, match="no_such_family"):
        await profiles.of(entry)
    assert profiles.known(entry) is None


async def test_a_model_that_went_away_is_told(entry: ModelEntry, tmp_path: Path) -> None:
    shutil.rmtree(entry.path)
    with pytest.raises(ModelNotFound):
        await SplitProfiles(tmp_path / "home").of(entry)
