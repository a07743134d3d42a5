"""A model with only a part on disk: blocks in the map are on disk, and missing ones are named and never loaded."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import BadModel, ModelNotFound, TransferError
from core.models.files import block_map
from core.models.files.block_map import MAP_NAME, BlockMap, FileFacts, read_map
from core.models.files.block_writer import BlockWriter
from core.models.files.layers_on_disk import layers_text
from core.models.files.manifest import Manifests
from core.models.files.model_folder import read_folder
from core.models.files.parts import Part, ranges
from core.models.slicing.loading import load_slice, slice_parts
from tests.support.maker import make_model
from tests.support.models import fingerprint, read_entry

BLOCK = 4096
LAYERS = 4


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_map, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr("core.models.files.manifest.BLOCK_BYTES", BLOCK)


def facts_of(directory: Path) -> dict[str, FileFacts]:
    found = {file.name: file.read_bytes() for file in directory.iterdir() if file.suffix}
    return {n: FileFacts(size=len(data), sha256=hashlib.sha256(data).hexdigest()) for n, data in found.items()}


def put(whole: Path, writer: BlockWriter, part: Part) -> None:
    data = (whole / part.file).read_bytes()
    for block in block_map.blocks_of(part):
        writer.put(part.file, block, data[block * BLOCK : (block + 1) * BLOCK])


def fetched(whole: Path, into: Path, start: int, stop: int) -> Path:
    """The part of a model with the layers [start, stop), its settings and headers."""
    into.mkdir()
    facts = facts_of(whole)
    writer = BlockWriter(into, facts)
    small = [Part(file=n, begin=0, end=each.size) for n, each in facts.items() if not n.endswith(".safetensors")]
    ends = {"embed": start == 0, "output": stop == LAYERS}
    for part in (*small, *slice_parts(read_folder(whole), start, stop, **ends)):
        put(whole, writer, part)
    writer.close()
    return into


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "solo"
    make_model(directory, "llama", layers=LAYERS)
    return directory


@given(
    there=st.sets(st.integers(0, 9)),
    size=st.integers(1, 10 * BLOCK),
    edges=st.lists(st.tuples(st.integers(0, 10 * BLOCK), st.integers(0, 10 * BLOCK)), max_size=3),
)
def test_what_lacks_is_just_what_no_block_holds(there: set[int], size: int, edges: list[tuple[int, int]]) -> None:
    facts = FileFacts(size=size, sha256="a" * 64)
    here = BlockMap({"f": facts}, {"f": {b: b"" for b in there if b in facts.blocks}})
    parts = [Part(file="f", begin=min(min(e), size), end=min(max(e), size)) for e in edges]
    for part in parts:
        lacking = here.lacking([part])
        expected = {at for at in range(part.begin, part.end) if at // BLOCK not in there}
        assert {at for lack in lacking for at in range(lack.begin, lack.end)} == expected
        assert all(lack.nbytes > 0 for lack in lacking)
        assert all(one.end < other.begin for one, other in pairwise(lacking))
    assert here.missing_bytes == sum(lack.nbytes for lack in here.lacking([Part(file="f", begin=0, end=size)]))


def test_a_slice_that_is_there_runs_and_one_that_is_not_says_which_layers_lack(whole: Path, tmp_path: Path) -> None:
    part = fetched(whole, tmp_path / "solo", 1, 3)
    entry = read_entry(part)
    assert entry.fingerprint == fingerprint(whole)
    assert (entry.layers_here, read_entry(whole).layers_here) == (((1, 3),), ((0, LAYERS),))
    assert entry.missing_bytes > 0 == read_entry(whole).missing_bytes
    assert load_slice(read_folder(part), 1, 3, embed=False, output=False).weight_bytes > 0
    with pytest.raises(ModelNotFound, match=r"only partly on this Mac: \d+\.\d MB of layer 3 are missing"):
        load_slice(read_folder(part), 1, 4, embed=False, output=False)
    with pytest.raises(ModelNotFound, match="only partly"):
        load_slice(read_folder(part), 1, 3, embed=False, output=True)


def test_what_is_not_there_takes_no_room(tmp_path: Path) -> None:
    facts = {"model.safetensors": FileFacts(size=1 << 30, sha256="a" * 64)}
    writer = BlockWriter(tmp_path, facts)
    writer.put("model.safetensors", 7, b"x" * BLOCK)
    writer.close()
    there = (tmp_path / "model.safetensors").stat()
    assert there.st_size == 1 << 30
    assert there.st_blocks * 512 < 1 << 20


@pytest.mark.promise("P39")
def test_the_manifest_of_a_part_is_that_of_the_whole_and_looks_at_every_block(whole: Path, tmp_path: Path) -> None:
    part, manifests = fetched(whole, tmp_path / "solo", 1, 3), Manifests(tmp_path / "hashes")
    assert manifests.of(part) == Manifests(tmp_path / "other").of(whole)
    there = read_map(part)
    assert there
    name = next(name for name, known in there.hashes.items() if known and name.endswith(".safetensors"))
    with (part / name).open("r+b") as file:
        file.seek(min(there.hashes[name]) * BLOCK)
        file.write(b"\xff")
    with pytest.raises(BadModel, match="has changed since its download"):
        manifests.of(part)


def test_a_block_that_has_gone_bad_since_is_fetched_again(tmp_path: Path) -> None:
    facts = {"model.safetensors": FileFacts(size=3 * BLOCK, sha256="a" * 64)}
    for _ in range(2):
        writer = BlockWriter(tmp_path, facts)
        for block in set(facts["model.safetensors"].blocks) - set(writer.map.hashes["model.safetensors"]):
            writer.put("model.safetensors", block, bytes([block + 1]) * BLOCK)
        writer.close()
        with (tmp_path / "model.safetensors").open("r+b") as file:
            file.seek(BLOCK + 7)
            file.write(b"\xff")
    assert content(tmp_path) == {"model.safetensors": {0, 1, 2}}
    assert BlockWriter(tmp_path, facts).map.missing_bytes == BLOCK


def test_a_part_whose_map_is_removed_does_not_pass_for_the_whole(whole: Path, tmp_path: Path) -> None:
    part, manifests = fetched(whole, tmp_path / "solo", 1, 3), Manifests(tmp_path / "hashes")
    expected = manifests.of(part)
    (part / MAP_NAME).unlink()
    assert manifests.of(part) != expected


def content(directory: Path) -> Mapping[str, frozenset[int]]:
    found = read_map(directory)
    assert found
    return {name: frozenset(known) for name, known in found.hashes.items()}


def test_a_map_that_is_torn_or_bent_anywhere_claims_no_block_that_is_not_there(tmp_path: Path) -> None:
    facts = {n: FileFacts(size=20 * BLOCK, sha256="a" * 64) for n in ("model-a.safetensors", "model-b.safetensors")}
    writer, chosen = BlockWriter(tmp_path, facts), random.Random(5)
    for name in facts:
        for block in chosen.sample(range(20), 9):
            writer.put(name, block, os.urandom(BLOCK))
    writer.close()
    honest, data = content(tmp_path), (tmp_path / MAP_NAME).read_bytes()
    for _ in range(300):
        bent, at = bytearray(data), chosen.randrange(len(data))
        bent[at] ^= 1 << chosen.randrange(8)
        (tmp_path / MAP_NAME).write_bytes(bent[: chosen.choice((len(data), at + 1))])
        try:
            found = content(tmp_path)
        except BadModel:
            continue
        assert all(blocks <= honest.get(name, frozenset()) for name, blocks in found.items())


def test_writing_goes_on_behind_a_torn_record_and_begins_anew_for_other_files(tmp_path: Path) -> None:
    facts = {"model.safetensors": FileFacts(size=9 * BLOCK - 5, sha256="a" * 64)}
    for blocks in ((0, 3), (8,)):
        writer = BlockWriter(tmp_path, facts)
        for block in blocks:
            writer.put("model.safetensors", block, os.urandom(facts["model.safetensors"].length(block)))
        writer.close()
        with (tmp_path / MAP_NAME).open("ab") as file:
            file.write(b"torn")
    assert content(tmp_path) == {"model.safetensors": {0, 3, 8}}
    other = {"model.safetensors": FileFacts(size=9 * BLOCK - 5, sha256="b" * 64)}
    BlockWriter(tmp_path, other).close()
    assert content(tmp_path) == {"model.safetensors": frozenset()}
    assert not any((tmp_path / "model.safetensors").read_bytes())


def test_all_blocks_make_the_model_and_a_file_with_another_hash_is_thrown_away(whole: Path, tmp_path: Path) -> None:
    part, facts = tmp_path / "solo", facts_of(whole)
    part.mkdir()
    writer = BlockWriter(part, facts)
    for each in block_map.whole_parts(facts):
        put(whole, writer, each)
    writer.put("config.json", 0, b"\0" * min(BLOCK, facts["config.json"].size))
    writer.close()
    assert writer.map.missing_bytes == 0
    with pytest.raises(TransferError, match=r"config\.json is damaged"):
        writer.finish()
    writer = BlockWriter(part, facts)
    assert writer.map.missing_bytes == facts["config.json"].size
    put(whole, writer, Part(file="config.json", begin=0, end=facts["config.json"].size))
    writer.close()
    writer.finish()
    assert facts_of(part) == facts


def test_a_map_that_no_program_of_ours_wrote_is_refused(whole: Path, tmp_path: Path) -> None:
    part = Path(shutil.copytree(whole, tmp_path / "solo"))
    for line in (b"", b"{}\n", b'{"format": 1}\n', b"\xff\n"):
        (part / MAP_NAME).write_bytes(line)
        with pytest.raises(BadModel, match="damaged"):
            read_entry(part)
    (part / MAP_NAME).unlink()
    (part / MAP_NAME).symlink_to("/dev/zero")
    with pytest.raises(BadModel):
        read_entry(part)


def test_layers_are_told_as_people_write_them() -> None:
    assert [layers_text(ranges(each)) for each in ([3], [0, 1, 2], [0, 1, 4], [1, 2, 7, 9, 10])] == [
        "layer 3",
        "layers 0–2",
        "layers 0–1 and 4",
        "layers 1–2, 7 and 9–10",
    ]
