"""A model goes from one Mac's disk to another's: written parts, refused parts, and resumption."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from core.errors import BadModel, LinkLost, ModelMismatch, ProtocolError, TransferError
from core.link.frames import FrameType
from core.models.files.block_map import BLOCK_BYTES, MAP_NAME, WHOLE_NAME, FileFacts, read_map
from core.models.files.hub_origin import HubOrigin
from core.models.files.model_folder import read_folder
from core.models.files.parts import Part
from core.models.slicing.loading import slice_parts
from core.node.base.node_message import MAX_MODEL_NAME, NodeMessage, to_frame
from core.node.disks import byte_links
from core.node.disks.block_serving import BlockReader, ServedModel, served_model
from core.node.disks.byte_links import MAX_HASHES, FileList, HashesRequest, RunRequest
from core.node.disks.copy_checks import PARTIAL, check_names
from core.node.disks.messages import (
    MAX_BROKEN,
    MAX_HELD,
    BytesReady,
    BytesRequest,
    HeldModel,
    Holds,
)
from core.settings import GB, MAX_CONTROL_BODY
from tests.support.copies import Blocks, Mac, Pair, held_model_named, pair
from tests.support.models import fingerprint, read_entry
from tests.support.node_messages import from_frame
from tests.support.waiting import until

__all__ = ["pair"]  # fixtures

WAIT_S = 60.0
FACTS = FileFacts(size=10, sha256="a" * 64)
WEIGHTS = {"model.safetensors": FACTS}


def facts_of(directory: Path) -> dict[str, FileFacts]:
    found = {file.name: file.read_bytes() for file in directory.iterdir() if file.suffix}
    return {n: FileFacts(size=len(data), sha256=hashlib.sha256(data).hexdigest()) for n, data in found.items()}


async def test_all_files_arrive_as_they_are_and_the_model_gets_its_place(pair: Pair) -> None:
    await pair.copy()
    assert read_entry(pair.asker.folder / "solo").fingerprint == pair.model.fingerprint
    (pair.asker.folder / "solo" / WHOLE_NAME).unlink()
    for file in (pair.asker.folder / "solo").iterdir():
        assert file.read_bytes() == (pair.sender.folder / "solo" / file.name).read_bytes()
    states = [state for state, _, _ in pair.told]
    assert (states[0], states[-1]) == ("running", "checking")
    assert pair.told[-1][1] == pair.told[-1][2] > 0
    assert list((pair.asker.folder / PARTIAL).iterdir()) == []


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_was_fetched_is_given_on_without_hashing_it_anew(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    await pair.copy()
    third, hashed = pair.empty("third"), list[int]()
    pair.asker.others["third"] = third
    third.others = {"asker": pair.asker}
    if not is_known:
        (pair.asker.folder / "solo" / WHOLE_NAME).write_bytes(b"torn")

    def sha256(data: bytes) -> object:
        hashed.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr("core.node.disks.block_serving.hashlib", SimpleNamespace(sha256=sha256))
    await pair.copy(sources=("asker",), to=third)
    assert facts_of(third.folder / "solo") == facts_of(pair.sender.folder / "solo")
    assert (hashed == []) == is_known


async def test_after_a_lost_link_it_goes_on_where_it_stopped(pair: Pair) -> None:
    pair.sender.lives_for = 5
    with pytest.raises(LinkLost):
        await pair.copy()
    first, pair.sender.lives_for = pair.blocks_given, 1 << 30
    done = pair.told[-1][1]
    assert done > 0
    pair.told.clear()
    await pair.copy()
    assert pair.told[0][1] == done
    there = done // BLOCK_BYTES
    assert pair.blocks_given - first <= blocks_of_all(pair) - there, "what was there was not asked for again"
    assert read_entry(pair.asker.folder / "solo").fingerprint == pair.model.fingerprint


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("../config.json", id="up"),
        pytest.param("/etc/config.json", id="absolute"),
        pytest.param("x/config.json", id="folder"),
        pytest.param("model/../../x.safetensors", id="weights-up"),
        pytest.param("model\\..\\x.safetensors", id="backslash"),
        pytest.param(".config.json", id="hidden"),
        pytest.param("modeling.py", id="python"),
        pytest.param("pytorch_model.bin", id="pickle"),
        pytest.param("model.safetensors.py", id="python-weights"),
        pytest.param("model\n.safetensors", id="newline"),
        pytest.param("..", id="dots"),
    ],
)
@pytest.mark.promise("P25")
async def test_no_name_of_another_mac_leads_out_of_the_folder_or_brings_code(pair: Pair, name: str) -> None:
    with pytest.raises(TransferError, match="does not belong to a model"):
        check_names({**WEIGHTS, name: FACTS})
    pair.sender.listed = lambda _: FileList({**WEIGHTS, name: FACTS}, is_whole=True)
    before = sorted(pair.asker.folder.parent.rglob("*"))
    with pytest.raises(TransferError):
        await pair.copy()
    assert sorted(pair.asker.folder.parent.rglob("*")) == sorted({*before, pair.sender.folder.parent / "sender.json"})


@pytest.mark.parametrize(
    ("files", "says"),
    [
        pytest.param({"config.json": FACTS}, "without weights", id="no-weights"),
        pytest.param({"model.safetensors": FileFacts(size=1 << 50, sha256="a" * 64)}, "bytes", id="endless"),
        pytest.param({**WEIGHTS, "config.json": FileFacts(size=1 << 30, sha256="a" * 64)}, "bytes", id="config"),
    ],
)
@pytest.mark.promise("P25")
def test_sizes_that_no_model_has_are_refused(files: dict[str, FileFacts], says: str) -> None:
    with pytest.raises(TransferError, match=says):
        check_names(files)


def flipped(_: RunRequest, data: bytes) -> bytes:
    """Change the last byte of outgoing data."""
    return data[:-1] + bytes([data[-1] ^ 1])


def blocks_of_all(pair: Pair) -> int:
    return sum(-(-f.stat().st_size // BLOCK_BYTES) for f in (pair.sender.folder / "solo").iterdir())


@pytest.mark.promise("P25")
async def test_a_damaged_block_is_found_and_fetched_again(pair: Pair) -> None:
    def once(run: RunRequest, data: bytes) -> bytes:
        return flipped(run, data) if len(pair.sender.given) == 3 else data

    pair.sender.blocks = once
    await pair.copy()
    assert pair.blocks_given == blocks_of_all(pair) + 1, "one block was asked for again"
    ((source, what),) = pair.warned
    assert (source, what.partition(" of ")[0][:5]) == ("sender", "block")
    assert read_entry(pair.asker.folder / "solo").fingerprint == pair.model.fingerprint


async def test_a_mac_that_sends_damaged_blocks_again_and_again_is_asked_no_more(pair: Pair) -> None:
    pair.sender.blocks = flipped
    with pytest.raises(TransferError, match="arrived damaged, again and again"):
        await pair.copy()
    assert not (pair.asker.folder / "solo").exists()
    pair.sender.blocks = lambda _, data: data
    await pair.copy()
    assert read_entry(pair.asker.folder / "solo").fingerprint == pair.model.fingerprint


async def test_what_changed_on_a_disk_after_it_was_fetched_comes_from_another_mac(pair: Pair) -> None:
    whole, helper = pair.sender.folder / "solo", pair.empty("helper")
    parts = slice_parts(read_folder(whole), 0, 1, embed=True, output=False)
    await pair.copy(parts=parts, to=helper)
    part = max(parts, key=lambda part: part.nbytes)
    right = (whole / part.file).read_bytes()

    def changed(files: FileList) -> FileList:
        with (helper.folder / "solo" / part.file).open("r+b") as content:
            content.seek(part.begin)
            content.write(bytes([right[part.begin] ^ 1]))
        return files

    asked = threading.Event()

    def given(run: RunRequest, data: bytes) -> bytes:
        if run.name == part.file and part.begin // BLOCK_BYTES in range(run.first, run.first + run.count):
            asked.set()
        return data

    helper.listed, helper.blocks = changed, given
    pair.sender.blocks = lambda _, data: data if asked.wait(WAIT_S) else b""
    await pair.copy(parts=parts, sources=("helper", "sender"))
    assert pair.warned == [("helper", f"block {part.begin // BLOCK_BYTES} of {part.file}")]
    came = (pair.asker.folder / "solo" / part.file).read_bytes()
    assert came[part.begin : part.end] == right[part.begin : part.end]
    with pytest.raises(TransferError, match="can't send it"):
        await pair.copy(sources=("helper",))


async def test_a_slice_is_copied_alone_and_grows_where_it_lies(pair: Pair) -> None:
    whole = pair.sender.folder / "solo"
    first, second = (slice_parts(read_folder(whole), n, n + 1, embed=n == 0, output=n == 1) for n in (0, 1))
    await pair.copy(parts=first)
    there = read_entry(pair.asker.folder / "solo")
    assert (there.fingerprint, there.layers_here) == (pair.model.fingerprint, ((0, 1),))
    wanted = sum(part.nbytes for part in first)
    settings = sum(f.stat().st_size for f in whole.iterdir() if f.suffix != ".safetensors")
    assert wanted <= pair.told[-1][2] - settings <= wanted + 2 * len(first) * BLOCK_BYTES
    given = pair.blocks_given
    await pair.copy(parts=second)
    grown = read_entry(pair.asker.folder / "solo")
    assert (grown.path, grown.missing_bytes, grown.layers_here) == (there.path, 0, ((0, 2),))
    assert not (whole.parent.parent / "asker" / "solo" / MAP_NAME).exists()
    assert pair.blocks_given == blocks_of_all(pair) > given, "nothing came twice"


async def test_two_macs_that_have_a_model_both_give_of_it_and_one_may_go(pair: Pair) -> None:
    helper = pair.helper()
    gave: dict[Mac, threading.Event] = {helper: threading.Event(), pair.sender: threading.Event()}

    def in_turn(own: Mac, other: Mac) -> Blocks:
        def given(_: RunRequest, data: bytes) -> bytes:
            gave[own].set()
            return data if gave[other].wait(WAIT_S) else b""

        return given

    helper.blocks, pair.sender.blocks = in_turn(helper, pair.sender), in_turn(pair.sender, helper)
    await pair.copy(sources=("sender", "helper"))
    assert min(helper.blocks_given, pair.sender.blocks_given) > 1
    assert pair.blocks_given == blocks_of_all(pair)
    shutil.rmtree(pair.asker.folder / "solo")
    helper.lives_for = len(helper.given) + 1
    await pair.copy(sources=("sender", "helper"))
    assert read_entry(pair.asker.folder / "solo").fingerprint == pair.model.fingerprint


async def test_macs_of_which_each_has_a_part_make_one_of_them_whole(pair: Pair) -> None:
    whole = pair.sender.folder / "solo"
    first, second = (slice_parts(read_folder(whole), n, n + 1, embed=n == 0, output=n == 1) for n in (0, 1))
    helper = pair.empty("helper")
    await pair.copy(parts=first)
    await pair.copy(parts=second, to=helper)
    assert read_entry(helper.folder / "solo").layers_here == ((1, 2),)
    given = pair.blocks_given
    del pair.asker.others["sender"]
    await pair.copy(sources=("helper",))
    grown = read_entry(pair.asker.folder / "solo")
    assert (grown.fingerprint, grown.missing_bytes) == (pair.model.fingerprint, 0)
    weights = sum(-(-f.stat().st_size // BLOCK_BYTES) for f in whole.glob("*.safetensors"))
    assert pair.blocks_given - given < weights, "only what it lacked"


async def test_what_nobody_has_ends_a_copy_with_what_there_is(pair: Pair) -> None:
    helper = pair.empty("helper")
    await pair.copy(
        parts=slice_parts(read_folder(pair.sender.folder / "solo"), 0, 1, embed=True, output=False),
        to=helper,
    )
    with pytest.raises(TransferError, match="GB of it are on no linked Mac"):
        await pair.copy(sources=("helper",))
    (begun,) = (pair.asker.folder / PARTIAL).iterdir()
    there = read_map(begun)
    assert there
    assert 0 < there.missing_bytes < there.there_bytes + there.missing_bytes
    await pair.copy(sources=("helper", "sender"))
    assert read_entry(pair.asker.folder / "solo").missing_bytes == 0


async def test_what_is_here_is_asked_of_nobody(pair: Pair) -> None:
    part = slice_parts(read_folder(pair.sender.folder / "solo"), 0, 1, embed=True, output=False)
    await pair.copy(parts=part)
    asked = len(pair.asker.sent)
    await pair.copy(parts=part)
    assert len(pair.asker.sent) == asked


async def test_a_mac_with_other_weights_under_the_same_settings_does_not_help(pair: Pair) -> None:
    helper = pair.helper()
    weights = next((helper.folder / "solo").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x55")
    await pair.copy(sources=("sender", "helper"))
    assert helper.given == []


@pytest.mark.parametrize("part", [("config.jso", 0, 1), ("config.json", 5, 4), ("config.json", 0, 1 << 40)])
async def test_a_part_that_is_in_no_file_is_refused(pair: Pair, part: tuple[str, int, int]) -> None:
    with pytest.raises(TransferError, match="is not in the model"):
        await pair.copy(parts=(Part(file=part[0], begin=part[1], end=part[2]),))
    assert pair.blocks_given == 0


@pytest.mark.promise("P25")
async def test_another_model_than_the_one_that_was_asked_for_is_thrown_away(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = msgspec.structs.replace(pair.model, fingerprint="b" * 64)

    async def found(*_: str) -> Path:
        return pair.sender.folder / "solo"

    monkeypatch.setattr(pair.sender.copying._models, "find_same", found)
    with pytest.raises(ModelMismatch):
        await pair.copy(other)
    assert [p.name for p in pair.asker.folder.iterdir()] == [PARTIAL]


@pytest.mark.promise("P24")
async def test_what_arrives_is_examined_before_it_lies_among_the_models(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pair.sender.folder / "solo" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": 10**400}))
    real = fingerprint(pair.sender.folder / "solo")
    facts = facts_of(pair.sender.folder / "solo")
    served = served_model(pair.sender.folder / "solo", {name: each.sha256 for name, each in facts.items()})

    async def found(*_: str) -> ServedModel:
        return served

    monkeypatch.setattr(pair.sender.copying.serving, "_served", found)
    with pytest.raises(BadModel, match="The copied model cannot be used"):
        await pair.copy(msgspec.structs.replace(pair.model, fingerprint=real))
    assert [each.name for each in pair.asker.folder.rglob("*")] == [".partial"]


async def test_only_files_of_a_model_that_was_asked_for_are_given(pair: Pair) -> None:
    await pair.sender.take("asker", BytesRequest(number=1, fingerprint="a" * 64))
    (refused,) = pair.sender.sent
    assert isinstance(refused, BytesReady)
    assert refused.port is None, "that Mac has no such model"
    await pair.copy()
    served = pair.sender.copying.serving._last
    assert served
    answers = BlockReader(served)
    for request in (
        RunRequest("../../secret", 0, 1),
        RunRequest("config.json", 1, 1),
        HashesRequest("../../secret", 0, compared=False),
        HashesRequest("config.json", 2, compared=False),
    ):
        with pytest.raises(ProtocolError):
            answers.answer(request)


async def test_more_hashes_than_were_asked_for_are_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = pair.empty("helper")
    part = slice_parts(read_folder(pair.sender.folder / "solo"), 0, 1, embed=True, output=False)
    await pair.copy(parts=part, to=helper)
    monkeypatch.setattr(BlockReader, "hashes", lambda *_: bytes(32 * MAX_HASHES + 1))
    with pytest.raises(ProtocolError, match="More hashes arrived"):
        await pair.copy(sources=("helper",))


async def test_blocks_are_hashed_for_the_first_mac_that_copies_them_and_anew_only_where_a_file_changed(
    pair: Pair,
) -> None:
    serving, whole, said = pair.sender.copying.serving, pair.sender.folder / "solo", []
    for change in (None, None, "model.safetensors.index.json"):
        if change:
            (whole / change).touch()
        await pair.copy()
        shutil.rmtree(pair.asker.folder / "solo")
        assert serving._last
        said.append(serving._last.hashes)
    assert said[1] is said[0]
    assert said[2] is not said[0]
    for name, hashes in said[0].items():
        data = (whole / name).read_bytes()
        blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
        assert bytes(hashes) == b"".join(hashlib.sha256(block).digest() for block in blocks)
    assert said[2] == said[0]


async def test_a_full_disk_is_told_before_anything_is_fetched(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.models.files.block_writer.shutil.disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(TransferError, match=r"this disk has 0\.0 GB free"):
        await pair.copy()
    assert pair.blocks_given == 0


async def test_a_disk_that_others_fill_meanwhile_ends_a_copy_with_what_there_is(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = count()

    def free(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=2 * GB if next(looked) < 4 else 0)

    monkeypatch.setattr("core.models.files.block_writer.shutil.disk_usage", free)
    with pytest.raises(TransferError, match=r"0\.5 GB too little"):
        await pair.copy()
    monkeypatch.undo()
    (begun,) = (pair.asker.folder / PARTIAL).iterdir()
    there = read_map(begun)
    assert there
    assert there.there_bytes > 0, "nothing is lost"


def test_what_another_mac_says_it_holds_is_bounded_and_clean() -> None:
    model = held_model_named("a\x1b]52;c;x\x07b")
    (heard,) = held(from_frame(*to_frame(Holds(models=(model,)))))
    assert heard.name == "a]52;c;xb"
    longest = "😀" * MAX_MODEL_NAME
    origin = HubOrigin(repo=f"{'o' * 96}/{'n' * 96}", commit="f" * 40)
    longest_model = msgspec.structs.replace(held_model_named(longest), hub=origin)
    most = Holds(models=(longest_model,) * MAX_HELD, broken=(longest,) * MAX_BROKEN)
    assert len(to_frame(most)[1]) < MAX_CONTROL_BODY
    for hostile in (
        Holds(models=(model,) * (MAX_HELD + 1)),
        Holds(models=(held_model_named("x" * (MAX_MODEL_NAME + 1)),)),
        Holds(models=(msgspec.structs.replace(model, fingerprint="../x"),)),
        Holds(models=(msgspec.structs.replace(model, total_bytes=-1),)),
        Holds(models=(msgspec.structs.replace(model, hub=HubOrigin(repo="../x", commit="f" * 40)),)),
    ):
        with pytest.raises(ProtocolError):
            from_frame(*to_frame(hostile))


def held(message: NodeMessage) -> tuple[HeldModel, ...]:
    assert isinstance(message, Holds)
    return message.models


async def test_a_defect_where_blocks_leave_ends_the_copy_and_is_logged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(*_: object) -> memoryview:
        raise KeyError("secret")

    monkeypatch.setattr(BlockReader, "read", of)
    with pytest.raises(LinkLost):
        await pair.copy()
    await until(lambda: bool(pair.sender.bus.now.logs))
    (line,) = pair.sender.bus.now.logs
    assert line.text.startswith("Giving blocks of a model failed by a defect: KeyError at ")
    assert "secret" not in line.text


async def test_a_defect_where_blocks_come_ends_the_copy_and_is_logged(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = byte_links.receive

    def received(receiver: Any, kind: FrameType, seconds: float | None) -> memoryview:
        if kind is FrameType.FILE_PART:
            raise KeyError("secret")
        return receive(receiver, kind, seconds)

    monkeypatch.setattr(byte_links, "receive", received)
    with pytest.raises(LinkLost):
        await pair.copy()
    await until(lambda: bool(pair.asker.bus.now.logs))
    assert {line.text.split(": ")[0] for line in pair.asker.bus.now.logs} == {
        "Fetching blocks of a model failed by a defect"
    }
