"""A paired Mac that turned hostile, and its attacks on copies, lists and tests."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import aclosing, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from core.errors import BadModel, Busy, LinkError, LinkLost, ProtocolError, TransferError
from core.events import Transfer
from core.link.frames import FrameType
from core.models.files.block_map import FileFacts
from core.models.files.catalog import Catalog
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.message_table import MessageTable
from core.node.base.node_message import NodeMessage, to_frame
from core.node.base.tasks import Tasks
from core.node.disks.block_serving import MAX_PORTS, BlockReader
from core.node.disks.byte_links import RUN_BYTES, FileList, HashesRequest, RunRequest, read_request
from core.node.disks.copy_checks import MAX_BEGUN, PARTIAL
from core.node.disks.messages import (
    BytesReady,
    BytesRequest,
    CopyChange,
    CopyProgress,
    FalseFile,
    Holds,
    HoldsRequest,
    PeerCopyRequest,
)
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.room import DisksRoom
from core.node.disks.transfers import Transfers
from core.node.peers.messages import LinkProbe, LogReply, LogRequest, PeerSpeedRequest, SpeedResultSent
from core.node.peers.room import PeersRoom
from core.requests.disks import CopyRequest
from core.settings import MIB, Home
from tests.support.contexts import context_of
from tests.support.copies import Links, Pair, held_model_named, pair
from tests.support.maker import make_model
from tests.support.node_messages import FOUND, from_frame
from tests.support.plans import mac_id, plan_of
from tests.support.rooms import room_of
from tests.support.tasks import tasks_of
from tests.support.waiting import until
from tui.state.disks import transfer_words

__all__ = ["pair"]  # fixtures


OWN, OTHER, THIRD = (mac_id(n) for n in range(3))
FLOOD = 500
SYSTEM_BYTES = 64 * MIB  # more than a system holds of one connection


class Deaf:
    """A link whose other end asks and does not read until `heard`; `sent` lies in this Mac's memory."""

    def __init__(self) -> None:
        self.contacts: dict[str, object] = {OTHER: object()}
        self.sent: list[NodeMessage] = []
        self.heard = asyncio.Event()

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        self.sent.append(message)
        await self.heard.wait()
        return device_id in self.contacts


@pytest.mark.promise("P28")
async def test_who_asks_for_blocks_or_hashes_and_does_not_read_makes_a_mac_hold_few(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, room = 0, memoryview(bytes(RUN_BYTES))

    def answer(*_: object) -> memoryview:
        nonlocal answered
        answered += 1
        return room

    monkeypatch.setattr(BlockReader, "answer", answer)
    asked = BytesRequest(number=1000, fingerprint=pair.model.fingerprint)
    await pair.sender.take("asker", asked)
    ready = pair.sender.sent[-1]
    assert isinstance(ready, BytesReady)
    links = Links("asker", pair.numbers)
    link = await asyncio.to_thread(links.dial, "sender", links.ways("sender"), ready.port or 0, asked)
    with closing(link.receiver()):
        for _ in range(FLOOD):
            link.sender().send(FrameType.COPY, parts=[msgspec.msgpack.encode(HashesRequest("config.json", 0, False))])
        await until(lambda: answered > 0)
        await asyncio.sleep(0.2)
        assert answered * RUN_BYTES < SYSTEM_BYTES, "one answer, and what the system holds of those before it"


@pytest.mark.promise("P28")
async def test_who_asks_for_doors_again_and_again_has_few(pair: Pair) -> None:
    await pair.copy()
    serving, before = pair.sender.copying.serving, threading.active_count()
    for number in range(50):
        await serving.open_port("asker", BytesRequest(number=number, fingerprint=pair.model.fingerprint))
    doors = list(serving._ports["asker"])
    assert len(doors) == MAX_PORTS
    await until(lambda: threading.active_count() <= before + MAX_PORTS)
    pair.sender.copying.gone("asker")
    await until(lambda: not any(door._thread.is_alive() for door in doors))
    for door in doors:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", door.port))


@pytest.mark.promise("P28")
async def test_a_door_for_bytes_opens_for_who_asked_and_for_what_he_asked_alone(pair: Pair) -> None:
    await pair.copy()
    asked, given = BytesRequest(number=1000, fingerprint=pair.model.fingerprint), pair.blocks_given
    await pair.sender.take("asker", asked)
    ready = pair.sender.sent[-1]
    assert isinstance(ready, BytesReady)
    assert ready.port
    pair.mac("third", pair.asker.folder)

    weights = next((pair.sender.folder / "solo").glob("*.safetensors")).name

    def block(who: str, what: BytesRequest) -> object:
        links = Links(who, pair.numbers)
        link = links.dial("sender", links.ways("sender"), ready.port or 0, what)
        with closing(link.receiver()) as receiver:
            link.sender().send(FrameType.COPY, parts=[msgspec.msgpack.encode(RunRequest(weights, 0, 1))])
            return receiver.recv(30.0)

    for who, number in (("third", 1000), ("asker", 1001)):
        with pytest.raises(LinkError):
            await asyncio.to_thread(block, who, msgspec.structs.replace(asked, number=number))
    assert pair.blocks_given == given
    await asyncio.to_thread(block, "asker", asked)
    assert pair.blocks_given == given + 1


@pytest.mark.parametrize(
    "ask",
    [
        ("RunRequest", "model.safetensors", 0, 17),
        ("RunRequest", "model.safetensors", -1, 1),
        ("HashesRequest", "model.safetensors", -1, False),
        ("HashesRequest", "x" * 300, 0, False),
        ("Other",),
        (),
        "x",
    ],
)
@pytest.mark.promise("P28")
def test_a_request_for_blocks_that_cannot_be_is_refused(ask: Any) -> None:
    with pytest.raises(ProtocolError):
        read_request(msgspec.msgpack.encode(ask))


@pytest.mark.promise("P28")
async def test_who_asks_again_and_again_for_a_model_is_answered_one_at_a_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, hashed, serving = Deaf(), 0, pair.sender.copying.serving
    serving._sender = link  # type: ignore[assignment]
    manifest = pair.sender.copying._models.manifest

    async def counted(directory: Path) -> dict[str, str]:
        nonlocal hashed
        hashed += 1
        return await manifest(directory)

    monkeypatch.setattr(pair.sender.copying._models, "manifest", counted)
    asks = [BytesRequest(number=number, fingerprint=pair.model.fingerprint) for number in range(FLOOD)]
    flood = asyncio.gather(*(serving.open_port(OTHER, ask) for ask in asks))
    await until(lambda: bool(link.sent))
    assert len(serving._ports[OTHER]) == 1
    del link.contacts[OTHER]
    link.heard.set()
    await flood
    assert hashed <= 2
    assert not serving._ports, "nothing is kept for one that is gone"


async def test_as_many_links_as_a_mac_asks_for_at_once_are_opened(pair: Pair) -> None:
    asks = [BytesRequest(number=number, fingerprint=pair.model.fingerprint) for number in range(MAX_PORTS)]
    await asyncio.gather(*(pair.sender.copying.serving.open_port("asker", ask) for ask in asks))
    ready = [message.number for message in pair.sender.sent if isinstance(message, BytesReady) and message.port]
    assert ready == list(range(MAX_PORTS))
    pair.sender.copying.gone("asker")


async def test_who_asks_again_and_again_what_a_mac_holds_is_told_once_more(pair: Pair) -> None:
    link = Deaf()
    holdings = ModelInventory(OWN, pair.sender.copying._models, link, Bus())  # type: ignore[arg-type]
    flood = asyncio.gather(*(holdings.handle_message(OTHER, HoldsRequest()) for _ in range(FLOOD)))
    await until(lambda: bool(link.sent))
    link.heard.set()
    await flood
    assert len(link.sent) == 2


async def test_what_a_mac_told_before_it_looked_is_no_answer(pair: Pair) -> None:
    link, other, plan = Deaf(), mac_id(1), plan_of(2)
    link.contacts = {other: object()}
    link.heard.set()
    holdings = ModelInventory(mac_id(0), pair.sender.copying._models, link, Bus())  # type: ignore[arg-type]
    await holdings.handle_message(other, Holds(models=()))
    checking = asyncio.ensure_future(holdings.renew(plan))
    await until(lambda: HoldsRequest(number=1) in link.sent)
    await holdings.handle_message(other, Holds(models=(), broken=("half",)))
    await asyncio.sleep(0.05)
    assert not checking.done()
    assert other in holdings.holdings(plan.fingerprint).missing(plan)
    has = msgspec.structs.replace(held_model_named(plan.model), fingerprint=plan.fingerprint)
    await holdings.handle_message(other, Holds(models=(has,), answers=1))
    await checking
    assert other not in holdings.holdings(plan.fingerprint).missing(plan)


async def test_nobody_litters_a_disk_with_copies_that_never_end(pair: Pair) -> None:
    begun = pair.asker.folder / PARTIAL
    for number in range(MAX_BEGUN):
        (begun / f"{number:064x}").mkdir(parents=True)
    begun.chmod(0o700)
    with pytest.raises(TransferError, match="copied to that Mac only in part"):
        await pair.copy()
    assert len(list(begun.iterdir())) == MAX_BEGUN
    (begun / f"{0:064x}").rmdir()
    await pair.copy()
    assert len(list(begun.iterdir())) == MAX_BEGUN - 1


async def test_weights_that_are_none_are_thrown_away(pair: Pair) -> None:
    nothing = FileFacts(size=0, sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    pair.sender.listed = lambda _: FileList({"model.safetensors": nothing}, is_whole=True)
    with pytest.raises(BadModel, match="The copied model cannot be used"):
        await pair.copy()
    assert list((pair.asker.folder / PARTIAL).iterdir()) == []


@pytest.mark.promise("P26")
async def test_what_comes_never_answers_to_the_name_of_a_model_of_this_mac(pair: Pair) -> None:
    mine = pair.asker.folder / "models--acme--solo" / "snapshots" / "main"
    make_model(mine, "llama", layers=3)
    await pair.copy()
    found = Catalog([pair.asker.folder])
    assert found.find("solo").path == str(mine)
    assert found.find(f"solo-{pair.model.fingerprint[:8]}").fingerprint == pair.model.fingerprint


@pytest.mark.promise("P26")
async def test_a_partial_file_that_is_a_link_is_not_followed(pair: Pair, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    partial = pair.asker.folder / PARTIAL / pair.model.fingerprint
    partial.mkdir(parents=True)
    for folder in (partial.parent, partial):
        folder.chmod(0o700)
    (partial / "config.json").symlink_to(victim)
    await pair.copy()
    assert victim.read_bytes() == b"mine"


@pytest.mark.promise("P33")
async def test_a_mac_that_is_revoked_in_the_middle_gets_no_more(pair: Pair) -> None:
    def revoked(_: RunRequest, data: bytes) -> bytes:
        pair.sender.copying.gone("asker")
        return data

    pair.sender.blocks = revoked
    with pytest.raises(LinkLost):
        await pair.copy()
    assert pair.blocks_given == 1
    assert not (pair.asker.folder / "solo").exists()


@pytest.mark.promise("P33")
async def test_a_copy_from_a_mac_that_is_revoked_in_the_middle_ends_at_once(pair: Pair) -> None:
    loop = asyncio.get_running_loop()

    def revoked(_: RunRequest, data: bytes) -> bytes:
        if len(pair.sender.given) == 3:
            loop.call_soon_threadsafe(pair.asker.copying.gone, "sender")
        return data

    pair.sender.blocks = revoked
    with pytest.raises(LinkLost):
        await pair.copy()
    assert not (pair.asker.folder / "solo").exists()


# ---- copies that a Mac makes for another one, and reports of them


def transfers(folder: Path, pair: Pair, link: Any, bus: Bus) -> tuple[Transfers, Tasks]:
    tasks = tasks_of(Journal(folder / "log", "node", bus))
    holdings = ModelInventory(OWN, pair.asker.copying._models, link, bus)
    node = context_of(own_id=OWN, config={"home": Home(folder)}, bus=bus, tasks=tasks, journal=tasks._journal)
    return Transfers(node, holdings, pair.asker.copying, link, folder), tasks


@pytest.mark.promise("P28")
async def test_no_mac_speaks_of_a_copy_that_nobody_wanted_or_of_another_model(pair: Pair, tmp_path: Path) -> None:
    bus, link = Bus(), Deaf()
    made, tasks = transfers(tmp_path, pair, link, bus)
    lie = Transfer(model="x" * 400, fingerprint="b" * 64, mac=THIRD, source=THIRD, state="running", done=1, total=2)
    made.note_progress(OTHER, CopyProgress(transfer=lie))
    assert not bus.now.transfers
    bus.publish(Transfer(model="toy", fingerprint="a" * 64, mac=OTHER, source=OWN, state="asking"))
    made.note_progress(THIRD, CopyProgress(transfer=lie))
    made.note_progress(OTHER, CopyProgress(transfer=lie))
    (shown,) = bus.now.transfers
    assert (shown.model, shown.fingerprint, shown.mac, shown.source) == ("toy", "a" * 64, OTHER, OWN)
    assert shown.done == 1
    await tasks.stop()


@pytest.mark.parametrize(
    ("field", "value"), [("done", -1), ("total", 1 << 60), ("bytes_per_s", -1.0), ("bytes_per_s", 1e300)]
)
def test_figures_that_no_copy_has_are_refused(field: str, value: float) -> None:
    fine = Transfer(model="toy", mac=OTHER, state="running", done=1, total=2)
    with pytest.raises(ProtocolError):
        from_frame(*to_frame(CopyProgress(transfer=msgspec.structs.replace(fine, **{field: value}))))


def test_a_copy_that_would_take_for_ever_can_be_shown() -> None:
    slow = Transfer(
        model="toy", mac=OTHER, source=OWN, state="running", done=0, total=(1 << 53) - 1, bytes_per_s=5e-324
    )
    _, words = transfer_words(slow, Bus().now, 120)
    assert "left" not in words


def test_a_speed_that_no_test_has_can_be_shown_or_is_refused() -> None:
    assert msgspec.structs.replace(FOUND, seconds=5e-324).bytes_per_s == 0.0
    body = msgspec.json.encode({"type": "SpeedTold", "test": 1, "result": msgspec.structs.asdict(FOUND)})
    endless = body.replace(b'"bytes":98304', b'"bytes":1' + b"0" * 400)
    assert endless != body
    with pytest.raises(ProtocolError):
        from_frame(FrameType.SPEED_TEST, endless)


async def test_a_mac_that_has_others_copy_what_never_comes_waits_between(pair: Pair, tmp_path: Path) -> None:
    bus, link = Bus(), Deaf()
    link.heard.set()
    made, tasks = transfers(tmp_path, pair, link, bus)
    model = held_model_named("evil")
    made._inventory._others[OTHER] = SimpleNamespace(models=(model,), broken=())  # type: ignore[assignment]
    pair.asker.others.clear()  # its question for the files finds no Mac
    for _ in range(FLOOD):
        await made.copy_for(OTHER, PeerCopyRequest(fingerprint=model.fingerprint))
        await made.own.ended()
    logged = (tmp_path / "log").read_text().count("Transfer of ")
    assert logged == 1
    last = [m.transfer for m in link.sent if isinstance(m, CopyProgress)][-1]
    assert last.problem
    assert last.problem.kind == Busy.__name__
    await tasks.stop()


@pytest.mark.promise("P28")
async def test_only_the_mac_that_wants_a_copy_pauses_or_limits_it(pair: Pair, tmp_path: Path) -> None:
    bus, link = Bus(), Deaf()
    made, tasks = transfers(tmp_path, pair, link, bus)
    made._inventory._others[OTHER] = SimpleNamespace(models=(pair.model,), broken=())  # type: ignore[assignment]
    await made.copy_for(OTHER, PeerCopyRequest(fingerprint=pair.model.fingerprint))
    for mac, fingerprint in ((THIRD, pair.model.fingerprint), (OTHER, "a" * 64)):
        made.change_for(mac, CopyChange(fingerprint=fingerprint, what="limit", bytes_per_s=1))
        made.change_for(mac, CopyChange(fingerprint=fingerprint, what="stop"))
    (under_way,) = bus.now.transfers
    assert under_way.limit_bytes_per_s == 0
    made.change_for(OTHER, CopyChange(fingerprint=pair.model.fingerprint, what="stop"))
    await made.own.ended()
    assert not bus.now.transfers
    await tasks.stop()


# ---- a fork


class Handlers:
    """A part whose methods, and those of its parts, note the message that they get."""

    def __init__(self) -> None:
        self.heard: list[NodeMessage] = []

    def __getattr__(self, name: str) -> Handlers:
        return self

    def __call__(self, _: str, message: NodeMessage) -> None:
        self.heard.append(message)


@pytest.mark.parametrize(
    "message",
    [
        BytesRequest(number=1, fingerprint="a" * 64),
        BytesReady(number=1, port=50_000),
        PeerCopyRequest(fingerprint="a" * 64),
        CopyChange(fingerprint="a" * 64, what="pause"),
        LinkProbe(number=1, size=0),
        PeerSpeedRequest(test=1, target=THIRD),
        SpeedResultSent(test=1, result=FOUND),
        LogRequest(run=1, after=0),
        LogReply(run=1, last=0, now=1.0),
        FalseFile(fingerprint="a" * 64, name="model.safetensors"),
    ],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.promise("P14")
async def test_while_the_roster_is_forked_nobody_gets_files_tests_or_logs(message: NodeMessage) -> None:
    store, part = SimpleNamespace(forked=False), Handlers()
    node: Any = SimpleNamespace(tasks=SimpleNamespace(spawn=lambda *_: None))
    table = MessageTable(lambda: store.forked)
    peers: Any = SimpleNamespace(node=node, mesh=SimpleNamespace(messages=tuple), speed=part, logs=part)
    disks = room_of(DisksRoom, node=node, transfers=part, copies=part, inventory=part, comparison=part)
    table.add_rows([*PeersRoom.messages(peers), *disks.messages()])
    for is_forked, count in ((True, 0), (False, 1)):
        store.forked = is_forked
        await table.handle(OTHER, message)
        assert len(part.heard) == count


async def test_a_copy_of_what_a_mac_has_as_a_whole_ends_at_once_for_whoever_waits(pair: Pair, tmp_path: Path) -> None:
    bus, link = Bus(), Deaf()
    made, tasks = transfers(tmp_path, pair, link, bus)
    model = held_model_named("toy")
    made._inventory._others[OTHER] = SimpleNamespace(models=(model,), broken=())  # type: ignore[assignment]
    async with aclosing(bus.follow()) as events, asyncio.timeout(5):
        await anext(events)
        await made.copy(CopyRequest(fingerprint=model.fingerprint, to=(OTHER,)))
        shown = await anext(events)
    assert isinstance(shown, Transfer)
    assert (shown.mac, shown.model, shown.state) == (OTHER, "toy", "done")
    await tasks.stop()
