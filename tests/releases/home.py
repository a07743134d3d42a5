"""A small home with one file of every kind: made by a release, read by every later one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from core.address import Place
from core.engine.sessions import reading, writing
from core.models.files import manifest
from core.models.files.block_map import BlockMap, FileFacts, read_map, write_map
from core.models.files.compared_hashes import read_compared, write_compared
from core.models.files.hub_origin import HubOrigin, read_origin, write_origin
from core.models.slicing.split_profile import SplitProfile
from core.node.answers.token_log import AnswerRecord, TokenLog, read_token_log
from core.node.base import last_run
from core.node.base.last_run import LastRun, read_last_run
from core.node.disks import current_transfer
from core.node.disks.conversations import Conversations
from core.node.disks.transfer_progress import QueuedTransfer
from core.node.peers.addresses import read_proven, write_proven
from core.node.ring import split_profiles
from core.node.ring.disk_trimming import HeldLayers, read_stages, write_stages
from core.node.ring.throughput_history import read_curves, write_curves
from core.plan.cost_curve import Point
from core.requests.conversations import Conversation, ConversationId
from core.settings import Home
from core.trust.api_keys import ApiKeys
from core.trust.identity import load_or_create, text_id
from core.trust.pairing_attempts import PairingAttempts
from core.trust.private_files import private_folder
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs
from tests.releases.shapes import sample
from tests.support.macs import bundle, chain, mac
from tests.support.session_files import SESSION
from tui.cli import typed_lines
from tui.control.preferences import read, remember_theme

ONE, KEY, SECRET, MAC = "1" * 32, "k" * 32, b"s" * 32, b"m" * 16
FACTS = {"config.json": FileFacts(size=2, sha256="f" * 64)}
HASHES = {"config.json": {0: bytes(32)}}


def make(home: Home) -> None:
    """Write one file of every kind into an empty folder."""
    private_folder(home.root)
    load_or_create(home.identity, use_keychain=False)
    RosterStore(home.rosters).adopt(bundle(chain(2), *(mac(n).certificate_der for n in range(2))))
    last_run._FILE.write(home.last_run, LastRun(at=1.0, pid=1, led="m"))
    log = TokenLog(home.tokens, SECRET, msgspec.convert(sample(AnswerRecord), AnswerRecord))
    log.append(7)
    log.join(["b"])
    log.say("hello")
    log.close("stop")
    with writing(home.sessions / "s.mcs", SECRET, SESSION) as put:
        put(0, b"kv")
    asyncio.run(Conversations(home.conversations, SECRET).write(_chat()))
    private_folder(home.split_profiles)
    split_profiles._FILE.write(home.split_profiles / "p.json", msgspec.convert(sample(SplitProfile), SplitProfile))
    PairingAttempts(home.pairing_attempts, lambda: 1.0).count()
    ApiKeys(home.api_keys).add("k", 1.0, KEY)
    typed_lines._FILE.write(home.typed, ["hello"])
    seen = SeenMacs(home.seen)
    seen.note(MAC, 1.0)
    seen.save()
    write_proven(home.addresses, {text_id(MAC): (Place("10.0.0.1", 7),)})
    write_curves(home.throughput, {"lead": (Point(1.0, 2.0),)})
    write_stages(home.stages, {"f" * 64: msgspec.convert(sample(HeldLayers), HeldLayers)})
    current_transfer._FILE.write(home.paused, msgspec.convert(sample(QueuedTransfer), QueuedTransfer))
    manifest._FILE.write(home.hashes, {"m": msgspec.convert(sample(manifest._Seen), manifest._Seen)})
    remember_theme(home.theme, "nord")
    model = home.models / "m"
    private_folder(home.models)
    private_folder(model)
    write_map(model, BlockMap(FACTS, HASHES))
    write_compared(model, FACTS, {"config.json": bytes(32)})
    write_origin(model, HubOrigin(repo="a/b", commit="f" * 40))


def check(home: Home) -> None:
    """Read every file of a home that `make` wrote; raises where one is lost."""
    assert load_or_create(home.identity, use_keychain=False).text_id
    roster = RosterStore(home.rosters).current
    assert roster is not None
    assert roster.epoch == 2
    last = read_last_run(home)
    assert last is not None
    assert last.led == "m"
    written = read_token_log(next(home.tokens.iterdir()), SECRET)
    assert (written.tokens, written.text, written.ended, "b" in written.macs) == ([7], "hello", "stop", True)
    session, caches = reading(home.sessions / "s.mcs", SECRET)
    assert (session.tokens, list(caches)) == ([1], [(0, b"kv")])
    chat = asyncio.run(Conversations(home.conversations, SECRET).read(ConversationId(id=ONE)))
    assert chat.turns[0].text == "x"
    assert split_profiles._FILE.read(home.split_profiles / "p.json").layers == 1
    attempts = PairingAttempts(home.pairing_attempts, lambda: 1.0)
    attempts.check()
    assert attempts._made == [1.0]
    assert ApiKeys(home.api_keys).owner(KEY) == "k"
    assert typed_lines._remembered(home.typed) == ["hello"]
    assert SeenMacs(home.seen).met_before(MAC)
    assert read_proven(home.addresses) == {text_id(MAC): (Place("10.0.0.1", 7),)}
    assert read_curves(home.throughput) == {"lead": (Point(1.0, 2.0, (2.0,)),)}
    assert read_stages(home.stages)["f" * 64].stop == 1
    assert current_transfer._FILE.read(home.paused).first.model == "x"
    assert manifest._FILE.read(home.hashes)["m"].size == 1
    assert read(Path("none"), home.theme).remembered == "nord"
    model = home.models / "m"
    found = read_map(model)
    assert found is not None
    assert (found.files, found.hashes) == (FACTS, HASHES)
    assert read_compared(model, FACTS) == {"config.json": bytes(32)}
    assert read_origin(model) == HubOrigin(repo="a/b", commit="f" * 40)


def _chat() -> Conversation:
    return msgspec.structs.replace(msgspec.convert(sample(Conversation), Conversation), id=ONE, keep=0)
