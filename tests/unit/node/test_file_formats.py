"""Files of a newer macluster: the node starts without them, says so, and leaves every byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from core.address import Place
from core.engine.sessions import reading, writing
from core.errors import BadModel, IdentityError, MaclusterError
from core.models.files.block_map import MAP_NAME, WHOLE_NAME, read_map, read_written
from core.models.files.block_writer import BlockWriter
from core.models.files.catalog import Catalog
from core.models.files.compared_hashes import COMPARED_NAME, read_compared, write_compared
from core.models.files.hub_origin import ORIGIN_NAME, HubOrigin, read_origin, write_origin
from core.models.files.manifest import Manifests
from core.node.answers.token_log import read_token_log, unfinished
from core.node.base.last_run import recording_run
from core.node.config import NodeConfig
from core.node.disks.conversations import Conversations
from core.node.peers.addresses import read_proven, write_proven
from core.node.peers.mesh import Mesh
from core.node.ring.disk_trimming import read_stages, write_stages
from core.node.ring.split_profiles import _FILE as PROFILE
from core.node.ring.throughput_history import read_curves, write_curves
from core.node.service import Node
from core.requests.conversations import ChatOptions, Conversation
from core.settings import GB, Home, HomeFile
from core.trust.api_keys import ApiKeys
from core.trust.file_formats import JsonFile
from core.trust.identity import load_or_create
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster.store import RosterStore
from core.trust.sealed_files import write_sealed
from core.trust.seen_macs import SeenMacs
from core.version import RELEASE
from tests.support.home_files import in_format
from tests.support.macs import bundle, chain, mac
from tests.support.session_files import SESSION
from tui.cli.typed_lines import Keyboard
from tui.control.preferences import read, remember_theme

SECRET, ONE = b"s" * 32, "1" * 32
WORDS = r"has format \d+; this version of macluster reads formats up to \d\. A newer macluster wrote it: use that one\."
CHAT = Conversation(id=ONE, title="t", model="m", created_at=1.0, changed_at=1.0, options=ChatOptions(), turns=())


def seen(home: Home) -> None:
    macs = SeenMacs(home.seen)
    macs.note(b"m" * 16, 1.0)
    macs.save()


def hashes(home: Home) -> None:
    for name in ("config.json", "model.safetensors"):
        put(home.models / "m" / name, b"{}")
    assert Manifests(home.hashes).of(home.models / "m")


def save(home: Home) -> None:
    with writing(home.sessions / "s.mcs", SECRET, replace(SESSION, caches=0)):
        pass


def typed(home: Home) -> None:
    with Keyboard(home.typed):
        pass


def seal(path: Path, content: bytes, purpose: str) -> None:
    path.parent.mkdir(0o700)
    write_sealed(path, [content], SECRET, purpose)


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)


# the writer of each file, and whether it refuses to write; the others keep nothing and say nothing
JSON: dict[str, tuple[Callable[[Home], object], bool]] = {
    "seen.json": (seen, True),
    "pairing-attempts.json": (lambda home: PairingAttempts(home.pairing_attempts).count(), True),
    "api-keys.json": (lambda home: ApiKeys(home.api_keys).add("k", 1.0), True),
    "addresses.json": (lambda home: write_proven(home.addresses, {mac(1).text_id: (Place("10.0.0.1", 7),)}), False),
    "measured-speeds.json": (lambda home: write_curves(home.throughput, {}), False),
    "layers-held.json": (lambda home: write_stages(home.stages, {}), False),
    "hashes.json": (hashes, False),
    "catalog.json": (lambda home: Catalog([home.models], home.catalog).survey(), False),
    "tui.json": (lambda home: remember_theme(home.theme, "nord"), True),
    "typed.json": (typed, False),
    "last-run.json": (lambda home: None, False),  # the node itself writes and removes these two
    "paused.json": (lambda home: None, False),
}
FOLDERS = {"identity", "rosters", "token-logs", "sessions", "conversations", "split-profiles", "models", "whole-logits"}
FORMATS = {file.name: file.format for file in vars(Home).values() if isinstance(file, HomeFile) and file.format}


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    home = Home(tmp_path / "h")
    home.root.mkdir(0o700)
    return NodeConfig(home=home, name="mac", host="127.0.0.1", port=0, budget_bytes=GB, multicast=False)


async def started(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> str:
    """The log of a node that starts, up to its local server, and ends."""
    with recording_run(config.home):
        node = Node(config)
        monkeypatch.setattr(Mesh, "start", AsyncMock())
        monkeypatch.setattr(type(node.parts.local_server), "start", AsyncMock(side_effect=KeyError("enough")))
        with pytest.raises(KeyError):
            await node.run()
    return "\n".join(line.text for line in node.parts.node.bus.now.logs)


def test_every_file_of_a_home_is_tried() -> None:
    assert set(FORMATS) == set(JSON) | FOLDERS


async def test_newer_files_are_left_and_named_and_the_node_starts(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = config.home
    RosterStore(home.rosters).adopt(bundle(chain(2), *(mac(n).certificate_der for n in range(2))))
    for name in JSON:
        put(home.root / name, in_format(b'{"new": 1}', FORMATS[name] + 1))
    put(home.rosters / "00000003.roster", b"MCR2" + bytes(60))
    put(home.tokens / "a.mct", b"MCT2" + bytes(60))
    before = {path: path.read_bytes() for path in home.root.rglob("*") if path.is_file()}
    log = await started(config, monkeypatch)
    for write, refuses in JSON.values():
        if refuses:
            with pytest.raises(MaclusterError, match=WORDS):
                await asyncio.to_thread(write, home)
        else:
            write(home)
    store = RosterStore(home.rosters)
    with pytest.raises(MaclusterError, match=WORDS):
        store.cluster()
    with pytest.raises(MaclusterError, match=WORDS):
        store.adopt(bundle(chain(1), mac(0).certificate_der))
    with pytest.raises(MaclusterError, match=WORDS):
        read_token_log(home.tokens / "a.mct", SECRET)
    assert (store.current, unfinished(home.tokens, SECRET)) == (None, []), "a part of a history would forget the rest"
    assert (read_proven(home.addresses), read_curves(home.throughput), read_stages(home.stages)) == ({}, {}, {})
    assert read(home.root / "none", home.theme).remembered == ""
    assert {path: path.read_bytes() for path in before} == before
    (said,) = (line for line in log.splitlines() if line.startswith("A newer macluster wrote"))
    assert all(name in said for name in (*JSON, "00000003.roster", "a.mct"))
    assert "damaged" not in log


async def test_a_newer_identity_ends_the_start_and_stays(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = config.home.identity
    load_or_create(folder, use_keychain=False)
    key = (folder / "identity.pem").read_bytes()
    (folder / "identity.pem").write_bytes(key.replace(b"Format: 1\n", b"Format: 2\n"))
    with pytest.raises(IdentityError, match=WORDS):
        await started(config, monkeypatch)
    assert (folder / "identity.pem").read_bytes() == key.replace(b"Format: 1\n", b"Format: 2\n")
    (folder / "identity.pem").write_bytes(key)
    assert load_or_create(folder)


@pytest.mark.parametrize("mark", [b"MCS2", None], ids=["seal", "content"])
async def test_sealed_files_are_not_written_over(config: NodeConfig, mark: bytes | None) -> None:
    home = config.home
    chats, chat, session = Conversations(home.conversations, SECRET), home.conversations / f"{ONE}.mcv", "s.mcs"
    seal(chat, b"MCV%c new" % (FORMATS["conversations"] + 1), "conversation")
    seal(home.sessions / session, b"MCK%c new" % (FORMATS["sessions"] + 1), "session")
    for path in (chat, home.sessions / session):
        if mark:
            path.write_bytes(mark + path.read_bytes()[4:])
        data = path.read_bytes()
        with pytest.raises(MaclusterError, match=WORDS):
            await chats.write(CHAT) if path is chat else save(home)
        assert path.read_bytes() == data
    (listed,) = await chats.all()
    assert listed.problem
    assert "has format" in listed.problem.what
    with pytest.raises(MaclusterError, match=WORDS):
        reading(home.sessions / session, SECRET)


def test_profiles_and_the_files_of_a_model_are_not_written_over(config: NodeConfig) -> None:
    folder = config.home.root
    head = b'{"format":%d,"new":{}}\n' % (FORMATS["models"] + 1)
    for name in (MAP_NAME, WHOLE_NAME, COMPARED_NAME, ORIGIN_NAME, "profile.json"):
        put(folder / name, head)
    for refused in (
        lambda: read_map(folder),
        lambda: read_map(folder, WHOLE_NAME),
        lambda: read_written(folder),
        lambda: BlockWriter(folder, {}),
        lambda: read_compared(folder, {}),
        lambda: write_compared(folder, {}, {}),
        lambda: write_origin(folder, HubOrigin(repo="a/b", commit="f" * 40)),
        lambda: PROFILE.read(folder / "profile.json"),
        lambda: PROFILE.write(folder / "profile.json", None),  # type: ignore[arg-type]
    ):
        with pytest.raises(MaclusterError, match=WORDS):
            refused()
    assert read_origin(folder) is None
    assert {path.read_bytes() for path in folder.iterdir()} == {head}
    with pytest.raises(BadModel):
        read_map(folder)


def test_an_older_file_is_migrated_and_copied_before_it_is_replaced(tmp_path: Path) -> None:
    was = JsonFile[list[str]](HomeFile("x.json", 1), list[str])
    steps = (lambda old: b'{"names":%s}' % old, lambda old: old.replace(b"names", b"macs"))
    now = JsonFile[dict[str, list[str]]](HomeFile("x.json", 3), dict[str, list[str]], migrations=steps)
    path, kept = tmp_path / "x.json", tmp_path / f"before-{RELEASE}"
    was.write(path, ["mini"])
    old = path.read_bytes()
    assert now.read(path) == {"macs": ["mini"]}
    kept.write_bytes(b"in the way")
    with pytest.raises(MaclusterError):
        now.write(path, {"macs": []})
    assert path.read_bytes() == old, "what can't be copied is not replaced"
    kept.unlink()
    for macs in (["a"], ["b"]):
        now.write(path, {"macs": macs})
        assert now.read(path) == {"macs": macs}
    assert was.read(kept / "x.json") == ["mini"]
    with pytest.raises(AssertionError):
        JsonFile(HomeFile("x.json", 2), dict)
