"""Two Macs compare the contents of their files; an unchanged file is read once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import BadModel, ModelError, ModelNotFound
from core.models.files.manifest import PIECE_BYTES, Manifests, differing
from core.models.files.safetensors import INDEX_NAME
from core.node.disks.local_models import LocalModels
from core.settings import MIB
from tests.support.home_files import in_format
from tests.support.maker import make_model

SHARDS = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    make_model(tmp_path / "m", "llama", layers=2)
    (tmp_path / "m" / "README.md").write_text("decides nothing")
    return tmp_path / "m"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hashes.json"


def counting() -> tuple[list[int], Callable[[], bool]]:
    """A `stop` that never stops, and its number of calls: one for every hashed piece."""
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return False

    return asked, stop


def flip_last_byte(file: Path) -> None:
    with file.open("r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))


def test_a_manifest_holds_what_decides_and_nothing_else(model: Path, cache: Path) -> None:
    manifest = Manifests(cache).of(model)
    beside = {"config.json", INDEX_NAME, "generation_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert manifest.keys() == beside | set(SHARDS)
    assert all(manifest[name] == hashlib.sha256((model / name).read_bytes()).hexdigest() for name in manifest)


def test_one_flipped_byte_names_its_file(model: Path, cache: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(model, tmp_path / "other"))
    manifests = Manifests(cache)
    ours = manifests.of(model)
    assert differing(ours, manifests.of(other)) is None
    flip_last_byte(other / SHARDS[1])
    assert differing(ours, manifests.of(other)) == SHARDS[1]


def test_the_first_file_that_differs_or_is_missing_is_named() -> None:
    assert differing({"a": "1", "b": "2"}, {"a": "1", "b": "2"}) is None
    assert differing({"a": "1", "b": "2"}, {"a": "1"}) == "b"
    assert differing({"b": "2"}, {"a": "1", "b": "3"}) == "a"


def test_an_unchanged_file_is_read_once_even_by_the_next_node(model: Path, cache: Path) -> None:
    manifests = Manifests(cache)
    first = manifests.of(model)
    for again in (manifests, Manifests(cache)):
        asked, stop = counting()
        assert again.of(model, stop) == first
        assert asked == []
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600


@pytest.mark.parametrize("restore", [False, True])
def test_a_changed_file_is_read_again(model: Path, cache: Path, restore: bool) -> None:
    manifests = Manifests(cache)
    first = manifests.of(model)
    before = (model / SHARDS[0]).stat()
    flip_last_byte(model / SHARDS[0])
    if restore:  # a copy that keeps times
        os.utime(model / SHARDS[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert differing(first, manifests.of(model)) == SHARDS[0]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"{}", in_format(b"[]"), in_format(b'{"/x": {"size": "a"}}'), b"\xff" * 100]
)
def test_a_corrupt_cache_is_ignored_and_written_anew(model: Path, cache: Path, content: bytes) -> None:
    cache.write_bytes(content)
    cache.chmod(0o600)
    manifest = Manifests(cache).of(model)
    assert len(json.loads(cache.read_bytes())["content"]) == len(manifest)


def test_a_cache_that_others_could_write_is_not_believed(model: Path, cache: Path, tmp_path: Path) -> None:
    honest = Manifests(cache).of(model)
    forged = cache.read_bytes().replace(honest[SHARDS[0]].encode(), b"0" * 64)
    cache.write_bytes(forged)
    cache.chmod(0o666)
    assert Manifests(cache).of(model) == honest
    cache.write_bytes(forged)
    moved = cache.rename(tmp_path / "elsewhere")
    cache.symlink_to(moved)
    assert Manifests(cache).of(model) == honest


def test_what_is_gone_is_forgotten(model: Path, cache: Path, tmp_path: Path) -> None:
    manifests = Manifests(cache)
    manifests.of(model)
    shutil.move(model, tmp_path / "moved")
    manifests.of(tmp_path / "moved")
    assert {Path(path).parent.name for path in json.loads(cache.read_bytes())["content"]} == {"moved"}


def test_hashing_stops_when_asked_and_keeps_what_it_has(model: Path, cache: Path) -> None:
    with (model / SHARDS[2]).open("ab") as file:
        file.truncate(64 * MIB)
    calls = iter(range(1_000_000))
    with pytest.raises(ModelError, match="stopped"):
        Manifests(cache).of(model, lambda: next(calls) > 20)
    assert next(calls) < 64 * MIB // PIECE_BYTES
    asked, stop = counting()
    Manifests(cache).of(model, stop)
    assert len(asked) == 64


def test_without_room_for_the_cache_it_still_works(model: Path, tmp_path: Path) -> None:
    assert SHARDS[0] in Manifests(tmp_path / "no" / "such" / "folder").of(model)


def test_a_missing_model_or_shard_is_named(model: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFound, match="nowhere"):
        Manifests(cache).of(tmp_path / "nowhere")
    (model / SHARDS[1]).unlink()
    with pytest.raises(BadModel, match=SHARDS[1]):
        Manifests(cache).of(model)
    os.mkfifo(model / SHARDS[1])
    with pytest.raises(BadModel, match=SHARDS[1]):
        Manifests(cache).of(model)


@pytest.mark.slow
async def test_two_at_once_agree_and_a_cancelled_one_ends(model: Path, cache: Path) -> None:
    with (model / SHARDS[2]).open("ab") as file:
        file.truncate(256 * MIB)
    models = LocalModels([model], cache)
    given_up = asyncio.create_task(models.manifest(model))
    first, second = (asyncio.create_task(models.manifest(model)) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert await first == await second
    assert hashlib.sha256((model / SHARDS[2]).read_bytes()).hexdigest() == (await first)[SHARDS[2]]
