"""Macs with parts of a hub model compare them with the hub's hash before any part is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from core.errors import BadModel, TransferError
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_map
from core.models.files.block_writer import BlockWriter
from core.models.files.compared_hashes import COMPARED_NAME, check_compared, doubtful, read_compared, write_compared
from core.models.files.hub_origin import HubOrigin, write_origin
from core.node.base.node_message import NodeMessage
from core.node.disks.block_serving import BlockReader
from core.node.disks.byte_links import RunRequest
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.messages import FalseFile
from tests.support.copies import Mac, held_model_named
from tests.support.maker import make_model
from tests.support.models import fingerprint

NAME = "model-00001-of-00001.safetensors"
ORIGIN = HubOrigin(repo="acme/toy", commit="f" * 40)


class PartialMac:
    """A Mac with some blocks of the weights, and all settings."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        folder = cluster.folder / name
        folder.mkdir()
        self.cluster, self.name, self.directory = cluster, name, folder / "toy"
        self.mac = Mac(name, folder, cluster.numbers)
        self.mac.others = cluster.by_name
        cluster.by_name[name], cluster.ones[name] = self.mac, self
        inventory: Any = SimpleNamespace(
            own_id=name,
            models=self.mac.copying._models,
            find=lambda _: cluster.model,
            others_with=self._others,
            look=nothing,
        )
        coming: Any = SimpleNamespace(held=nullcontext)
        journal: Any = SimpleNamespace(info=lambda _: None, warn=lambda _: None)
        self.comparison = HubComparison(inventory, self.mac.copying, self, coming, journal)  # type: ignore[arg-type]

    def has(self, blocks: Collection[int], flipped: int = -1) -> None:
        """Put only these blocks on this disk, one of them changed."""
        self.directory.mkdir(exist_ok=True)
        writer = BlockWriter(self.directory, self.cluster.facts)
        for name, data in self.cluster.data.items():
            for block in blocks if name == NAME else self.cluster.facts[name].blocks:
                piece = data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
                bad = name == NAME and block == flipped
                writer.put(name, block, piece[:-1] + bytes([piece[-1] ^ 1]) if bad else piece)
        writer.close()
        write_origin(self.directory, ORIGIN)

    def _others(self, _: str) -> list[str]:
        ones = self.cluster.ones.items()
        return [name for name, one in ones if one.directory.exists() and name != self.name]

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        assert isinstance(message, FalseFile)
        await self.cluster.ones[device_id].comparison.drop(self.name, message)
        return True

    async def ensure(self) -> None:
        await self.comparison.ensure(self.directory, self.cluster.model.fingerprint)

    @property
    def map(self) -> BlockMap:
        found = read_map(self.directory)
        assert found
        return found

    @property
    def compared(self) -> Mapping[str, bytes]:
        return read_compared(self.directory, self.cluster.facts)


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder, self.numbers = folder, dict[str, int]()
        self.by_name, self.ones = dict[str, Mac](), dict[str, PartialMac]()
        whole = folder / "whole"
        make_model(whole, "llama", layers=2, hidden=256, intermediate=512, files=1)
        self.data = {file.name: file.read_bytes() for file in whole.iterdir()}
        self.facts = {
            name: FileFacts(size=len(data), sha256=hashlib.sha256(data).hexdigest()) for name, data in self.data.items()
        }
        self.model = msgspec.structs.replace(held_model_named("toy"), fingerprint=fingerprint(whole))
        self.blocks = self.facts[NAME].blocks
        self.given: list[tuple[str, RunRequest]] = []


async def nothing(*_: object) -> None:
    """Stand-in for a look at the disk."""


@pytest.fixture
def macs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Macs whose given blocks are recorded."""
    made, real = Cluster(tmp_path), BlockReader.read

    def given(self: BlockReader, run: RunRequest) -> memoryview:
        made.given.append((self._served.directory.parent.name, run))
        return real(self, run)

    monkeypatch.setattr(BlockReader, "read", given)
    return made


@pytest.mark.promise("P39")
async def test_one_mac_reads_all_of_a_file_once_and_the_others_take_the_list_from_it(macs: Cluster) -> None:
    one, two, three = (PartialMac(macs, name) for name in ("one", "two", "three"))
    third = len(macs.blocks) // 3
    one.has(macs.blocks[: third + 1])
    two.has({0, *macs.blocks[third : 2 * third]})
    three.has({0, *macs.blocks[2 * third :]})
    for each in (one, two, three):
        assert NAME in doubtful(each.directory).uncompared
        with pytest.raises(BadModel, match="of acme/toy was not compared"):
            check_compared(each.directory)
    await one.ensure()
    asked = [block for _, run in macs.given for block in range(run.first, run.first + run.count)]
    assert sorted(asked) == list(macs.blocks[third + 1 :]), "each block that is not here once"
    assert one.map.missing_bytes > 0, "and none of them is kept"
    await two.ensure()
    await three.ensure()
    assert len(macs.given) == len({run for _, run in macs.given}), "nobody else asked for a block"
    for each in (one, two, three):
        check_compared(each.directory)
        assert each.compared == one.compared


async def test_a_file_that_is_not_the_hubs_goes_from_every_disk_and_the_error_names_both(macs: Cluster) -> None:
    one, two = PartialMac(macs, "one"), PartialMac(macs, "two")
    half = len(macs.blocks) // 2
    one.has(macs.blocks[:half])
    two.has({0, *macs.blocks[half:]}, flipped=half + 1)
    with pytest.raises(TransferError, match=rf"{NAME} differs from acme/toy on the hub"):
        await one.ensure()
    assert (one.map.hashes[NAME], two.map.hashes[NAME]) == ({}, {})
    assert one.map.hashes["config.json"], "what was compared by itself stays"
    one.has(macs.blocks[:half])
    two.has({0, *macs.blocks[half:]})
    await one.ensure()
    await two.ensure()
    check_compared(two.directory)


@pytest.mark.promise("P39")
async def test_a_block_that_two_macs_fetched_and_only_one_of_them_as_it_is_goes_from_the_other(macs: Cluster) -> None:
    one, two = PartialMac(macs, "one"), PartialMac(macs, "two")
    one.has(macs.blocks[:-1])
    two.has({0, 1, macs.blocks[-1]}, flipped=1)
    await one.ensure()
    with pytest.raises(TransferError, match=r"from acme/toy don't match"):
        await two.ensure()
    assert set(two.map.hashes[NAME]) == {0, macs.blocks[-1]}, "the next load fetches it anew"
    check_compared(two.directory)
    two.has({0, 1, macs.blocks[-1]}, flipped=1)
    with pytest.raises(BadModel, match="does not match the hub's hash"):
        check_compared(two.directory)
    with pytest.raises(TransferError, match="from acme/toy don't match"):
        await two.ensure()
    check_compared(two.directory)


async def test_what_no_mac_has_comes_from_the_hub_first(macs: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = PartialMac(macs, "one"), PartialMac(macs, "two")
    one.has(macs.blocks[:3])
    two.has({0, *macs.blocks[4:]})
    asked = []

    async def fetch(sources: Any, model: Any, told: Any, parts: Any) -> None:
        asked.extend(parts)
        one.has([3])

    monkeypatch.setattr(one.mac.copying, "fetch", fetch)
    await one.ensure()
    assert [(part.begin, part.end) for part in asked] == [(3 * BLOCK_BYTES, 4 * BLOCK_BYTES)]
    check_compared(one.directory)


@pytest.mark.promise("P39")
async def test_no_mac_can_have_another_throw_away_what_was_compared_or_is_whole(macs: Cluster) -> None:
    one, two = PartialMac(macs, "one"), PartialMac(macs, "two")
    one.has(macs.blocks[:3])
    two.has({0, *macs.blocks[2:]})
    await one.ensure()
    before = one.map.hashes
    for name in (NAME, "config.json", "../one"):
        await one.comparison.drop("two", FalseFile(fingerprint=macs.model.fingerprint, name=name))
    await one.comparison.drop("two", FalseFile(fingerprint="0" * 64, name=NAME))
    assert one.map.hashes == before


def test_a_list_that_is_damaged_or_of_other_files_is_none(macs: Cluster, tmp_path: Path) -> None:
    hashes = bytes(32 * len(macs.blocks))
    write_compared(tmp_path, macs.facts, {NAME: hashes})
    assert read_compared(tmp_path, macs.facts) == {NAME: hashes}
    other = FileFacts(size=macs.facts[NAME].size, sha256="0" * 64)
    assert read_compared(tmp_path, {NAME: other}) == {}
    whole = (tmp_path / COMPARED_NAME).read_bytes()
    for damaged in (b"", b"{}", whole[:-1], b"\xff" + whole):
        (tmp_path / COMPARED_NAME).write_bytes(damaged)
        assert read_compared(tmp_path, macs.facts) == {}
