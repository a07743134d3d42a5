"""A model of the hub by ranges: the first files, the bytes of a slice, and the faults of a hub."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from core.errors import BadModel, TransferError
from core.models.files import hub_download, hub_download_parts, hub_reader
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_map, whole_parts
from core.models.files.block_writer import BlockWriter
from core.models.files.byte_rate_limit import ByteRateLimit
from core.models.files.catalog import Catalog, read_model
from core.models.files.compared_hashes import write_compared
from core.models.files.hub_download_messages import BeginOrder, Fetched, FetchOrder, PartsOrder
from core.models.files.hub_download_parts import Run, runs_of
from core.models.files.hub_origin import HubOrigin, read_origin
from core.models.files.manifest import Manifests
from core.models.files.model_folder import read_folder
from core.models.files.parts import Part
from core.models.slicing.loading import slice_parts
from tests.support.hub import COMMIT, Hub, point_at, running_hub
from tests.support.maker import make_model
from tests.support.models import fingerprint

REPO = "acme/toy"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of some MB, so that a layer has blocks of its own."""
    folder = tmp_path_factory.mktemp("hub") / "repo"
    make_model(folder, "llama", layers=4, hidden=256, intermediate=1024, files=2)
    return folder


class Asker:
    """A download in this process."""

    def __init__(self, hub: Hub, below: Path) -> None:
        self.hub, self.below = hub, below
        self.told: list[Fetched] = []

    async def begin(self) -> Path:
        order = BeginOrder(repo=REPO, revision="main", below=str(self.below))
        await asyncio.to_thread(hub_download_parts.begin, order, self.told.append)
        return Path(self.told[-1].place)

    async def bring(self, place: Path, parts: Sequence[Part] = ()) -> None:
        there = read_map(place)
        assert there
        origin = HubOrigin(repo=REPO, commit=COMMIT)
        order = PartsOrder(
            folder=str(place), files=dict(there.files), origin=origin, parts=tuple(parts) or whole_parts(there.files)
        )
        await asyncio.to_thread(hub_download_parts.bring, order, self.told.append, ByteRateLimit())


@pytest.fixture
async def asker(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Asker]:
    async with running_hub(made, REPO) as hub:
        point_at(monkeypatch, hub)
        monkeypatch.setattr(hub_reader, "FIRST_WAIT_S", 0.01)
        yield Asker(hub, tmp_path / "models")


def weights(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def test_a_slice_comes_alone_and_the_rest_makes_it_whole(asker: Asker, made: Path) -> None:
    place = await asker.begin()
    entry, layout = read_model(place)
    assert (entry.fingerprint, entry.layers_here) == (fingerprint(made), ())
    assert layout.total_bytes == read_model(made)[1].total_bytes
    assert read_origin(place) == HubOrigin(repo=REPO, commit=COMMIT)
    begun = sum(asker.hub.served.values())
    settings = size_of(made) - sum(map(len, weights(made).values()))
    assert begun <= settings + 2 * BLOCK_BYTES, "settings, and a block of each file of weights"
    parts = slice_parts(read_folder(made), 1, 3, embed=False, output=False)
    await asker.bring(place, parts)
    came = sum(asker.hub.served.values()) - begun
    assert came <= sum(part.nbytes for part in parts) + 2 * len(parts) * BLOCK_BYTES
    assert read_model(place)[0].layers_here == ((1, 3),)
    both = Catalog([place.parent, made.parent])
    assert [each.path for each in both.survey()] == [str(made)], "a part of what is here as a whole is not listed"
    last = asker.told[-1]
    assert last.done == last.total > 0
    await asker.bring(place)
    assert sum(asker.hub.served.values()) == size_of(made), "nothing came twice"
    assert read_map(place) is None
    assert weights(place) == weights(made)


@pytest.mark.parametrize("fault", ["429", "503", "403", "cut", "range", "long"])
@pytest.mark.slow
async def test_what_goes_wrong_for_a_while_is_asked_for_again(asker: Asker, made: Path, fault: str) -> None:
    asker.hub.fault = lambda name, number: fault if number % 2 == 0 and name.endswith(".safetensors") else ""
    place = await asker.begin()
    await asker.bring(place)
    assert weights(place) == weights(made)
    whole = size_of(made)
    again = sum(asker.hub.served.values()) - whole
    assert again <= (whole if fault in ("range", "long") else len(asker.hub.ranges) * BLOCK_BYTES), (
        "from where it was cut"
    )


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("whole", "support range requests"),
        ("range", "sent other bytes"),
        ("pointer", "support range requests"),
        ("429", "429"),
    ],
)
async def test_what_goes_wrong_for_good_is_said_and_what_came_is_kept(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, fault: str, says: str
) -> None:
    monkeypatch.setattr(hub_reader, "TRIES", 2)
    place = await asker.begin()
    there = read_map(place)
    assert there
    asker.hub.fault = lambda name, number: fault
    with pytest.raises((TransferError, OSError), match=says):
        await asker.bring(place)
    kept = read_map(place)
    assert kept
    assert kept.there_bytes == there.there_bytes


@pytest.mark.slow
async def test_a_whole_download_outlasts_all_of_that_too(asker: Asker, made: Path, tmp_path: Path) -> None:
    faults = ("429", "cut", "range", "403", "long", "503", "")
    asker.hub.fault = lambda name, number: faults[min(number, 6)] if name.startswith("model-00001") else ""
    order = FetchOrder(repo=REPO, revision="main", cache=str(tmp_path / "cache"))
    await asyncio.to_thread(hub_download.fetch, order, asker.told.append, ByteRateLimit())
    (place,) = (tmp_path / "cache").glob("models--acme--toy/snapshots/*")
    assert (place.name, weights(place)) == (COMMIT, weights(made))
    assert (place.parent.parent / "refs" / "main").read_text() == COMMIT


@pytest.mark.promise("P39")
async def test_a_flipped_bit_throws_the_whole_file_away_and_what_comes_then_is_sound(asker: Asker, made: Path) -> None:
    asker.hub.fault = lambda name, number: "flip" if name.startswith("model-00002") and number == 1 else ""
    place = await asker.begin()
    with pytest.raises(TransferError, match="is damaged"):
        await asker.bring(place)
    kept = read_map(place)
    assert kept
    assert [bool(kept.hashes[name]) for name in sorted(weights(made))] == [True, False]
    await asker.bring(place)
    assert weights(place) == weights(made)


@pytest.mark.promise("P39")
async def test_a_whole_file_whose_hash_nobody_compared_is_refused_where_it_is_loaded(
    asker: Asker, made: Path, tmp_path: Path
) -> None:
    place = await asker.begin()
    there, name = read_map(place), "model-00002-of-00002.safetensors"
    assert there
    writer, data = BlockWriter(place, there.files), bytearray(weights(made)[name])
    data[-1] ^= 1
    for block in there.files[name].blocks:
        writer.put(name, block, bytes(data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]))
    writer.close()  # and the power was cut
    with pytest.raises(BadModel, match="differs from the downloaded file"):
        await asyncio.to_thread(Manifests(tmp_path / "hashes.json").of, place)


async def test_what_comes_later_has_to_be_of_the_file_that_was_compared(asker: Asker, made: Path) -> None:
    place = await asker.begin()
    there, name = read_map(place), "model-00002-of-00002.safetensors"
    assert there
    hashes = b"".join(
        hashlib.sha256(weights(made)[name][at : at + BLOCK_BYTES]).digest()
        for at in range(0, there.files[name].size, BLOCK_BYTES)
    )
    write_compared(place, there.files, {name: hashes})
    asker.hub.flipped = {name: 3 * BLOCK_BYTES}
    with pytest.raises(TransferError, match=f"The blocks of {name} from {REPO} do not match"):
        await asker.bring(place)
    left = read_map(place)
    assert left
    assert 3 not in left.hashes[name]
    asker.hub.flipped = {}
    await asker.bring(place)
    assert weights(place) == weights(made)


async def test_another_revision_meanwhile_is_no_part_of_it(asker: Asker, made: Path, tmp_path: Path) -> None:
    place = await asker.begin()
    shutil.copytree(made, tmp_path / "changed")
    asker.hub.change(tmp_path / "changed", "f" * 40)
    before = sum(asker.hub.served.values())
    with pytest.raises(TransferError, match="no longer on the hub"):
        await asker.bring(place)
    assert sum(asker.hub.served.values()) == before


async def test_a_pointer_is_no_weights(asker: Asker, tmp_path: Path, made: Path) -> None:
    shutil.copytree(made, tmp_path / "pointers")
    (tmp_path / "pointers" / "model-00001-of-00002.safetensors").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\n"
    )
    asker.hub.folder = tmp_path / "pointers"
    with pytest.raises((TransferError, BadModel), match=r"only a pointer|not a safetensors file"):
        await asker.begin()


def test_ranges_are_of_what_lacks_and_no_longer_than_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_download_parts, "RANGE_BLOCKS", 3)
    files = {"a": FileFacts(size=8 * BLOCK_BYTES, sha256="a" * 64), "b": FileFacts(size=10, sha256="b" * 64)}
    there = BlockMap(files, {"a": {1: b"", 6: b""}, "b": {}})
    wanted = [Part(file="b", begin=0, end=10), Part(file="a", begin=5, end=8 * BLOCK_BYTES)]
    assert list(runs_of(there, wanted)) == [
        Run("a", 0, 1), Run("a", 2, 5), Run("a", 5, 6), Run("a", 7, 8), Run("b", 0, 1)
    ]  # fmt: skip
