"""The power fails in the middle of each kind of write.

The next start reads the old content or the new, or reports the damage.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from core.address import Place
from core.engine.sessions import SessionFile, delete_session, list_sessions, prefix_hash, writing
from core.errors import RosterFork, SealError
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_written
from core.models.files.block_writer import BlockWriter
from core.models.files.freeing_blocks import let_go
from core.models.files.manifest import Manifests
from core.node.answers.token_log import AnswerRecord, TokenLog, read_token_log, unfinished
from core.node.disks.conversations import Conversations
from core.node.peers.addresses import read_proven, write_proven
from core.node.ring.throughput_history import read_curves, write_curves
from core.plan.cost_curve import Point
from core.requests.conversations import ChatOptions, Conversation, ConversationId, KeptTurn
from core.trust.identity import load_or_create
from core.trust.pairing_attempts import PairingAttempts
from core.trust.private_files import read_private, write_private
from core.trust.roster.changes import rename
from core.trust.roster.store import RosterStore
from core.trust.sealed_files import forget, read_sealed, write_sealed
from core.trust.seen_macs import SeenMacs
from tests.support.macs import bundle, chain, mac
from tests.support.maker import make_model
from tests.support.power import power_cuts
from tui.control import preferences

SECRET = b"s" * 32
DAMAGED = "it says what is damaged"
ONE = "1" * 32
LEAVES = tuple(mac(number).certificate_der for number in range(4))
OURS = rename(chain(4)[-1], mac(0), mac(1).device_id, "ours")
FIRST = rename(chain(4)[-1], mac(0), mac(1).device_id, "theirs")
THEIRS = (FIRST, rename(FIRST, mac(0), mac(2).device_id, "theirs too"))


def conversation(title: str) -> Conversation:
    return Conversation(id=ONE, title=title, model="m", created_at=1.0, changed_at=1.0, options=ChatOptions(), turns=())


def asked(keep: int) -> Conversation:
    turns = (KeptTurn(role="user", text="why?", at=1.0),)
    return msgspec.structs.replace(conversation(f"{keep} kept"), turns=turns, keep=keep, since=float(keep))


def session(folder: Path, tokens: list[int]) -> None:
    said = SessionFile(
        model="m",
        fingerprint="f",
        mlx_lm="1",
        kv_bits=None,
        tokens=tokens,
        prefix_hash=prefix_hash(tokens),
        caches=1,
        messages=(),
        created_at=1.0,
    )
    with writing(folder / "s.mcs", SECRET, said) as put:
        put(0, b"x" * 1000)


def log(folder: Path) -> TokenLog:
    return TokenLog(
        folder, SECRET, AnswerRecord(request_id=ONE, model="m", fingerprint="f", prompt=[1], max_tokens=9, macs=("a",))
    )


def begun(folder: Path) -> None:
    first = log(folder)
    for token in range(3):
        first.append(token)
    first.close()


def gone_on(folder: Path) -> None:
    (written,) = unfinished(folder, SECRET)
    more = TokenLog.going_on(folder, SECRET, written.record, written.tokens, "so far")
    more.join(("b",))
    more.append(3)
    more.close("length")


def tokens(folder: Path) -> object:
    found = [*folder.glob(f"{ONE}*.mct")]  # its name says when it has ended
    return read_token_log(found[0], SECRET).tokens if found else None


def written_anew(folder: Path) -> None:
    fresh = log(folder)
    for token in range(3):
        fresh.append(token)
        fresh.say("word")
    fresh.close("stop")


def sealed(folder: Path) -> object:
    return b"".join(read_sealed(folder / "sealed", SECRET, "p")) if (folder / "sealed").exists() else None


def kept(folder: Path) -> object:
    chats = Conversations(folder, SECRET)
    return [DAMAGED if each.problem else each.title for each in asyncio.run(chats.all())]


def saved(folder: Path) -> object:
    return [DAMAGED if each.problem else each.tokens for each in list_sessions(folder, SECRET)]


def seen(folder: Path, number: int) -> None:
    macs = SeenMacs(folder / "seen")
    macs.note(mac(number).device_id, 5.0)
    macs.save()


def attempts_made(folder: Path) -> int:
    attempts = PairingAttempts(folder / "a")
    attempts.check()
    return len(attempts._made)


def is_seen(folder: Path) -> object:
    return [SeenMacs(folder / "seen").met_before(mac(number).device_id) for number in range(2)]


def adopt(folder: Path, upto: int) -> None:
    RosterStore(folder).adopt(bundle(chain(upto), *LEAVES[:upto]))


def roster(folder: Path) -> object:
    store = RosterStore(folder)
    if store.current is None:
        return 0
    assert {m.device_id for m in store.current.members} == store.cluster().certificates.keys()
    return store.current.epoch


def forked(folder: Path) -> None:
    store = RosterStore(folder)
    store.adopt(bundle((*chain(4), OURS), *LEAVES))
    with pytest.raises(RosterFork):
        store.adopt(bundle(THEIRS, *LEAVES))


def history(folder: Path) -> object:
    store = RosterStore(folder)
    assert store.current
    return store.current.hash, store.forked is not None


def deleted(folder: Path) -> None:
    asyncio.run(Conversations(folder, SECRET).delete(ConversationId(id=ONE)))


class Writer(NamedTuple):
    """One kind of write.

    `before` prepares the folder; `write` is cut. `read` runs after the cut: it returns one of `between`, or the result
    from before or after the write, or raises one of `says`.
    """

    before: Callable[[Path], object]
    write: Callable[[Path], object]
    read: Callable[[Path], object]
    says: tuple[type[Exception], ...] = ()
    between: tuple[object, ...] = ()


def nothing(_: Path) -> None:
    pass


@cache
def _models() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="power-")


def tiny() -> Path:
    """A model, made once."""
    directory = Path(_models().name) / "tiny"
    if not directory.exists():
        make_model(directory, "llama")
    return directory


BLOCKS = [bytes([number]) * BLOCK_BYTES for number in (1, 2, 3)]
FILE = {"model.safetensors": FileFacts(size=3 * BLOCK_BYTES, sha256=hashlib.sha256(b"".join(BLOCKS)).hexdigest())}


def fetch(folder: Path, *blocks: int) -> BlockWriter:
    writer = BlockWriter(folder, FILE)
    for block in blocks:
        writer.put("model.safetensors", block, BLOCKS[block])
    writer.close()
    return writer


def let_go_of(folder: Path, *blocks: int) -> None:
    there = read_written(folder)
    assert there
    known = there.hashes["model.safetensors"]
    kept = BlockMap(FILE, {"model.safetensors": {b: sha256 for b, sha256 in known.items() if b not in blocks}})
    let_go(folder, there, kept, lambda: True)


def blocks_there(folder: Path) -> object:
    """The blocks in the map; check that they are on disk."""
    if (found := read_written(folder)) is None:
        return None
    data, there = (folder / "model.safetensors").read_bytes(), sorted(found.hashes["model.safetensors"])
    assert all(data[b * BLOCK_BYTES : (b + 1) * BLOCK_BYTES] == BLOCKS[b] for b in there)
    return there


def put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: write_private(folder / name, data)


WRITERS = {
    "a private file": Writer(put("p", b"old"), put("p", b"new, and longer"), lambda f: read_private(f / "p")),
    "a sealed file": Writer(
        lambda f: write_sealed(f / "sealed", [b"old"], SECRET, "p"),
        lambda f: write_sealed(f / "sealed", [b"new" * 50_000], SECRET, "p"),
        sealed,
    ),
    "a sealed file that is forgotten": Writer(
        lambda f: write_sealed(f / "sealed", [b"old"], SECRET, "p"),
        lambda f: forget(f / "sealed"),
        sealed,
        says=(SealError,),
    ),
    "a token log": Writer(nothing, written_anew, tokens, says=(SealError,), between=([], [0], [0, 1], [0, 1, 2])),
    "a token log that goes on": Writer(begun, gone_on, tokens, between=([0, 1, 2], [0, 1, 2, 3])),
    "a conversation": Writer(
        lambda f: asyncio.run(Conversations(f, SECRET).write(conversation("old"))),
        lambda f: asyncio.run(Conversations(f, SECRET).write(conversation("new"))),
        kept,
    ),
    "a change of a conversation": Writer(
        lambda f: asyncio.run(Conversations(f, SECRET).write(asked(0))),
        lambda f: asyncio.run(Conversations(f, SECRET).write(asked(1))),
        kept,
    ),
    "a session": Writer(lambda f: session(f, [1]), lambda f: session(f, [1, 2]), saved),
    "a session that is deleted": Writer(
        lambda f: session(f, [1]), lambda f: delete_session(f, "s"), saved, between=([DAMAGED],)
    ),
    "a conversation that is deleted": Writer(
        lambda f: asyncio.run(Conversations(f, SECRET).write(conversation("old"))),
        deleted,
        kept,
        between=([DAMAGED],),
    ),
    "the hashes of a model": Writer(
        nothing,
        lambda f: Manifests(f / "hashes").of(tiny()),
        lambda f: Manifests(f / "hashes").of(tiny()),
    ),
    "blocks of a model": Writer(nothing, lambda f: fetch(f, 0), blocks_there, between=([],)),
    "more blocks of a model": Writer(lambda f: fetch(f, 1), lambda f: fetch(f, 0, 2), blocks_there, between=([0, 1],)),
    "blocks that are let go of": Writer(lambda f: fetch(f, 0, 1, 2), lambda f: let_go_of(f, 0, 2), blocks_there),
    "blocks of a whole model": Writer(lambda f: fetch(f, 0, 1, 2).finish(), lambda f: let_go_of(f, 1), blocks_there),
    "a first identity": Writer(
        nothing,
        lambda f: load_or_create(f / "identity", use_keychain=False),
        lambda f: len(load_or_create(f / "identity", use_keychain=False).text_id),
    ),
    "Macs that were seen": Writer(lambda f: seen(f, 0), lambda f: seen(f, 1), is_seen),
    "attempts at pairing": Writer(
        lambda f: PairingAttempts(f / "a").count(),
        lambda f: PairingAttempts(f / "a").count(),
        attempts_made,
    ),
    "addresses": Writer(
        lambda f: write_proven(f / "a", {mac(1).text_id: (Place("10.0.0.1", 7),)}),
        lambda f: write_proven(f / "a", {mac(1).text_id: (Place("10.0.0.2", 7),)}),
        lambda f: read_proven(f / "a"),
    ),
    "what was measured": Writer(
        lambda f: write_curves(f / "c", {"lead": (Point(1.0, 2.0),)}),
        lambda f: write_curves(f / "c", {"lead": (Point(1.0, 3.0),)}),
        lambda f: read_curves(f / "c"),
    ),
    "the theme": Writer(
        lambda f: preferences.remember_theme(f / "tui.json", "nord"),
        lambda f: preferences.remember_theme(f / "tui.json", "gruvbox"),
        lambda f: preferences.read(f / "none", f / "tui.json").remembered,
    ),
    "rosters that come": Writer(lambda f: adopt(f, 2), lambda f: adopt(f, 4), roster, between=(3,)),
    "the first rosters": Writer(nothing, lambda f: adopt(f, 2), roster, between=(1,)),
    "a fork": Writer(lambda f: adopt(f, 4), forked, history, between=((OURS.hash, False),)),
    "the other side of a fork": Writer(
        forked,
        lambda f: RosterStore(f).resolve(THEIRS[-1].hash),
        history,
        between=(),
    ),
}


def outcome(writer: Writer, folder: Path) -> object:
    """The content read, or DAMAGED."""
    with suppress(*writer.says):
        return writer.read(folder)
    return DAMAGED


@pytest.mark.parametrize("name", WRITERS)
def test_after_a_cut_anywhere_in_a_write_the_old_or_the_new_is_read(tmp_path: Path, name: str) -> None:
    writer, folder = WRITERS[name], tmp_path / "real"
    folder.mkdir(mode=0o700)
    writer.before(folder)
    with power_cuts(folder) as cuts:
        writer.write(folder)
    assert len(cuts.states) > 2
    ends = []
    found = tmp_path / "found"
    for state in (cuts.states[0], *cuts.states):
        cuts.restore(state, found)
        ends.append((outcome(writer, found), state))
    allowed = [ends[0][0], outcome(writer, folder), *writer.between, *([DAMAGED] if writer.says else [])]
    wrong = [(what, [(n, len(c)) for n, c in state]) for what, state in ends if what not in allowed]
    assert not wrong
