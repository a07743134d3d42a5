"""Files that open and can't be read, as on a dying disk: the reader names them, and nothing else breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from core.address import Place
from core.engine.sessions import list_sessions, reading, writing
from core.errors import (
    BadModel,
    IdentityError,
    MaclusterError,
    PairingError,
    RosterError,
    SealError,
    SessionError,
    TrustError,
)
from core.models.files.catalog import BrokenModel, Catalog, read_model
from core.models.files.manifest import Manifests
from core.models.text.tokenizer import Tokens
from core.node.answers.token_log import AnswerRecord, TokenLog, forget_shared, read_token_log, unfinished
from core.node.disks.conversations import Conversations
from core.node.peers.addresses import read_proven, write_proven
from core.node.ring.throughput_history import read_curves, write_curves
from core.plan.cost_curve import Point
from core.requests.conversations import ChatOptions, Conversation, ConversationId
from core.trust.identity import load_or_create
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs
from tests.support.disks import make_unreadable
from tests.support.macs import bundle, chain, mac
from tests.support.maker import make_model
from tests.support.session_files import SESSION
from tui.control import preferences

SECRET = b"s" * 32
ONE, OTHER = "1" * 32, "2" * 32

Read = Callable[[], object]


def kept(folder: Path) -> None:
    """Write one file of every kind that a node keeps."""
    RosterStore(folder / "rosters").adopt(bundle(chain(2), *(mac(n).certificate_der for n in range(2))))
    load_or_create(folder / "identity", use_keychain=False)
    SeenMacs(folder / "seen").save()
    seen = SeenMacs(folder / "seen")
    seen.note(mac(1).device_id, 5.0)
    seen.save()
    PairingAttempts(folder / "attempts").count()
    for name in (ONE, OTHER):
        record = AnswerRecord(request_id=name, model="m", fingerprint="f", prompt=[1], max_tokens=9, macs=("a",))
        TokenLog(folder / "tokens", SECRET, record).close()
        asyncio.run(Conversations(folder / "chats", SECRET).write(conversation(name)))
        with writing(folder / "sessions" / f"{name}.mcs", SECRET, SESSION) as put:
            put(0, b"x" * 200_000)


def conversation(name: str) -> Conversation:
    return Conversation(id=name, title="t", model="m", created_at=1.0, changed_at=1.0, options=ChatOptions(), turns=())


def whole_session(path: Path) -> None:
    for _ in reading(path, SECRET)[1]:
        pass


READERS: dict[str, tuple[str, type[MaclusterError], Callable[[Path], object]]] = {
    "roster": ("rosters/00000002.roster", RosterError, lambda f: RosterStore(f / "rosters")),
    "epoch": ("rosters/epoch", RosterError, lambda f: RosterStore(f / "rosters")),
    "key": ("identity/identity.pem", IdentityError, lambda f: load_or_create(f / "identity", use_keychain=False)),
    "leaf": ("identity/identity.crt", IdentityError, lambda f: load_or_create(f / "identity", use_keychain=False)),
    "passphrase": ("identity/passphrase", IdentityError, lambda f: load_or_create(f / "identity", use_keychain=False)),
    "seen": ("seen", TrustError, lambda f: SeenMacs(f / "seen").save()),
    "attempts": ("attempts", PairingError, lambda f: PairingAttempts(f / "attempts").check()),
    "log": (f"tokens/{ONE}.mct", SealError, lambda f: read_token_log(f / "tokens" / f"{ONE}.mct", SECRET)),
    "session": (f"sessions/{ONE}.mcs", SessionError, lambda f: whole_session(f / "sessions" / f"{ONE}.mcs")),
    "conversation": (
        f"chats/{ONE}.mcv",
        SessionError,
        lambda f: asyncio.run(Conversations(f / "chats", SECRET).read(ConversationId(id=ONE))),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_the_disk_does_not_give_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, error, read = READERS[name]
    kept(tmp_path)
    read(tmp_path)
    make_unreadable(monkeypatch, tmp_path / file)
    with pytest.raises(error, match=r"cannot be read: Input/output error\.") as refused:
        read(tmp_path)
    assert str(tmp_path / file) in refused.value.what
    assert "disk" in refused.value.fix


async def test_one_that_cannot_be_read_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncio.to_thread(kept, tmp_path)
    files = [tmp_path / name for name in (f"tokens/{ONE}.mct", f"chats/{ONE}.mcv", f"sessions/{ONE}.mcs")]
    make_unreadable(monkeypatch, *files)
    assert [written.record.request_id for written in unfinished(tmp_path / "tokens", SECRET)] == [OTHER]
    assert forget_shared(tmp_path / "tokens", SECRET, ["a"]) == 1
    told = {each.id: each.problem for each in await Conversations(tmp_path / "chats", SECRET).all()}
    saved = {each.name: each.problem for each in list_sessions(tmp_path / "sessions", SECRET)}
    for problems in (told, saved):
        assert problems[OTHER] is None
        assert "cannot be read" in str(problems[ONE])


def test_what_only_spares_time_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, curves, theme = tmp_path / "addresses", tmp_path / "throughput", tmp_path / "tui.json"
    write_proven(places, {mac(1).text_id: (Place("10.0.0.1", 7),)})
    write_curves(curves, {"lead": (Point(1.0, 2.0),)})
    preferences.remember_theme(theme, "nord")
    config = tmp_path / "config.toml"
    config.write_text("[look]\n")
    assert read_proven(places)
    assert read_curves(curves)
    assert preferences.read(config, theme).remembered == "nord"
    make_unreadable(monkeypatch, places, curves, theme, config)
    assert read_proven(places) == {}
    assert read_curves(curves) == {}
    found = preferences.read(config, theme)
    assert (found.remembered, found.complaints) == ("", ("config.toml can't be read: Input/output error.",))


MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_model_of_which_a_file_cannot_be_read_is_refused_by_name_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bad, good = tmp_path / "models" / "bad", tmp_path / "models" / "good"
    for directory in (bad, good):
        make_model(directory, "llama")
    file = next(iter(sorted(bad.glob(name.replace(".safe", "*.safe")))))
    make_unreadable(monkeypatch, file)
    if name == "tokenizer.json":
        with pytest.raises(BadModel, match="cannot be read"):
            Tokens.load(bad)
    for look in (Manifests(tmp_path / "hashes").of, read_model):
        with pytest.raises(BadModel, match="cannot be read"):
            look(bad)
        assert look(good)
    found = {each.name: each for each in Catalog([tmp_path / "models"]).survey()}
    assert isinstance(found["bad"], BrokenModel)
    assert not isinstance(found["good"], BrokenModel)
