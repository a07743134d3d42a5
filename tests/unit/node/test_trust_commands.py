"""Trust on one node: levels of Macs with their reasons, commands of a person, and messages of other Macs."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from core.address import Place
from core.errors import HandshakeError, LinkError, LinkLost, ModelMismatch, NotPaired, RosterFork, UsageError, WrongKey
from core.events import Peer, Plan, TrustChanged
from core.link.control_link import ControlLink, dial_control, serve_control
from core.link.frames import FrameType
from core.link.tls import check_peer
from core.node.answers.answers import Answers
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.token_log import KEPT, AnswerRecord, TokenLog, forget_shared, old_logs
from core.node.answers.tokenizer import Tokenizer
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.node_message import in_pieces, to_frame
from core.node.peers.addresses import AddressBook
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.mesh import Mesh
from core.node.peers.peer_table import PeerTable
from core.node.peers.worker_state import WorkerState
from core.node.plans.driver import PlanDriver
from core.node.plans.orders import Lost
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planned
from core.node.ring.prefill_link import PrefillLink
from core.node.ring.stage_files import StageFiles
from core.node.trust.messages import KeyChange
from core.node.trust.roster_enforcement import PlanDistrusted, RosterEnforcement
from core.node.trust.trust_commands import fork_notes, trusted_macs, voucher
from core.plan.notes import EVERY_MAC_SEES, sees
from core.settings import Home
from core.trust.levels import LEVELS
from core.trust.name_matching import pick
from core.trust.roster.bundle import Cluster
from core.trust.roster.changes import affirm, promote, recover, rename, revoke, rotate, set_recovery
from core.trust.roster.format import Roster, encode
from core.trust.roster.key_rotation import ask_rotation, decode_rotation
from core.trust.roster.recovery_key import make_recovery_key
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs
from core.trust.trust_assessment import KnownFaults, TrustAssessment, Verdict, successor
from core.worker.messages import Load
from tests.support.contexts import context_of
from tests.support.dialler import ME as ME_AT
from tests.support.dialler import OTHER as OTHER_AT
from tests.support.dialler import PEER as PEER_AT
from tests.support.dialler import another_cluster, dialling_node, home_of
from tests.support.macs import bundle, certificate, chain, cluster, mac
from tests.support.meshes import MeshHarness
from tests.support.node_messages import from_frame
from tests.support.plan_machines import loading, of_kind
from tests.support.plans import mac_id, plan_of
from tests.support.tokenizers import read_here
from tests.support.waiting import until
from tui.cli import asking
from tui.cli import trust as commands

HOST = "127.0.0.1"
ME, PEER, THIRD, STRANGER = (mac(n).text_id for n in range(4))
ROSTERS = chain(3)


class PairedNode:
    """A Mac's assessment, with its inputs set by the tests."""

    def __init__(self, folder: Path) -> None:
        self.store = RosterStore(folder / "rosters")
        self.seen = SeenMacs(folder / "seen.json")
        self.faults = KnownFaults()
        self.assessment = TrustAssessment(self.store, self.seen, self.faults, ME, folder)

    def adopt(self, *rosters: Roster) -> PairedNode:
        self.store.adopt(bundle(rosters, *(mac(n).certificate_der for n in range(3))))
        return self

    def fork(self, one: Roster, other: Roster) -> None:
        self.adopt(one)
        with pytest.raises(RosterFork):
            self.adopt(other)


@pytest.fixture
def harness(tmp_path: Path) -> PairedNode:
    return PairedNode(tmp_path)


@pytest.fixture
def paired(harness: PairedNode) -> PairedNode:
    return harness.adopt(*ROSTERS)


def plan(*macs: str, notes: tuple[str, ...] = ()) -> Plan:
    whole = plan_of(len(macs))
    stages = tuple(msgspec.structs.replace(s, device_id=i) for s, i in zip(whole.stages, macs, strict=True))
    return msgspec.structs.replace(whole, stages=stages, output=macs[0], notes=notes)


# ---- levels and their reasons


def test_a_mac_that_was_never_paired_trusts_itself_and_nobody_else(harness: PairedNode) -> None:
    assert harness.assessment.of(ME) == Verdict("paired")
    assert harness.assessment.of(PEER).level == "unpaired"
    assert harness.assessment.fault(plan(ME)) is None
    fault = harness.assessment.fault(plan(ME, PEER))
    assert fault
    assert (fault.device_id, type(fault.error)) == (PEER, NotPaired)


def test_a_stranger_that_was_met_before_is_seen_and_no_more(tmp_path: Path) -> None:
    harness = PairedNode(tmp_path).adopt(*ROSTERS)
    harness.seen.note(mac(3).device_id, 1.0)
    harness.seen.save()
    again = PairedNode(tmp_path)
    assert again.assessment.of(STRANGER) == Verdict("seen", f"{STRANGER[:8]} is not paired.")
    assert again.assessment.fault(plan(ME, STRANGER))


def test_who_revoked_a_mac_and_when_is_told(paired: PairedNode) -> None:
    paired.adopt(revoke(ROSTERS[-1], mac(0), mac(1).device_id))
    name = paired.assessment.name(PEER)
    assert paired.assessment.of(PEER) == Verdict("blocked", f"{name} was revoked by founder in epoch 4.")
    fault = paired.assessment.fault(plan(ME, THIRD, PEER))
    assert fault
    assert (fault.device_id, fault.error.fix) == (PEER, "Load the model again without it.")
    assert paired.assessment.fault(plan(ME, THIRD)) is None


def test_a_mac_that_was_revoked_itself_says_so_and_how_it_comes_back(tmp_path: Path, paired: PairedNode) -> None:
    second = promote(ROSTERS[-1], mac(0), mac(1).device_id)
    paired.adopt(second, revoke(second, mac(1), mac(0).device_id))
    fault = paired.assessment.fault(plan(ME))
    assert fault
    assert fault.error.what.startswith("This Mac was revoked by mac ")
    assert str(tmp_path) in fault.error.fix


def test_a_new_key_is_no_revocation(paired: PairedNode) -> None:
    request = decode_rotation(ask_rotation(ROSTERS[-1], mac(1), mac(3)))
    paired.adopt(rotate(ROSTERS[-1], mac(0), request))
    assert successor(paired.store.history, mac(1).device_id) == mac(3).device_id
    assert "changed its key in epoch 4" in paired.assessment.of(PEER).reason
    assert paired.assessment.of(STRANGER).level == "paired"
    assert paired.assessment.name(STRANGER) == paired.assessment.name(PEER)


def test_a_mac_that_was_replaced_by_another_one_did_not_change_its_key(paired: PairedNode) -> None:
    gone = revoke(ROSTERS[-1], mac(0), mac(1).device_id)
    assert successor(paired.adopt(gone).store.history, mac(1).device_id) is None
    assert successor(paired.store.history, mac(2).device_id) is None
    assert successor([], mac(2).device_id) is None


def test_a_fork_blocks_every_member_and_names_both_sides(paired: PairedNode) -> None:
    base = promote(ROSTERS[-1], mac(0), mac(1).device_id)
    ours, theirs = rename(base, mac(0), mac(2).device_id, "left"), rename(base, mac(1), mac(2).device_id, "right")
    paired.adopt(base)
    paired.fork(ours, theirs)
    for device_id in (ME, PEER, THIRD):
        verdict = paired.assessment.of(device_id)
        assert verdict.level == "blocked"
        assert f"founder signed {ours.hash.hex()[:8]}, which this Mac holds" in verdict.reason
        assert theirs.hash.hex()[:8] in verdict.reason
    fault = paired.assessment.fault(plan(ME))
    assert fault
    assert (type(fault.error), "macluster trust resolve" in fault.error.fix) == (RosterFork, True)
    assert voucher(ours) == mac(0).device_id
    assert voucher(theirs) == mac(1).device_id, "one admin only vouches for a side, or it forks again"
    paired.store.resolve(ours.hash)
    assert paired.assessment.fault(plan(ME)) is None
    paired.store.advance(affirm(ours, mac(0)))


def test_a_fork_of_two_epochs_names_both_sides_and_what_each_did(paired: PairedNode) -> None:
    base = promote(ROSTERS[-1], mac(0), mac(1).device_id)
    ours = rename(base, mac(0), mac(1).device_id, "left")
    further = revoke(ours, mac(0), mac(2).device_id)
    theirs = rename(base, mac(1), mac(0).device_id, "right")
    last = rename(theirs, mac(1), mac(0).device_id, "righter")
    paired.adopt(base, ours)
    paired.adopt(further)
    with pytest.raises(RosterFork):
        paired.adopt(base, theirs, last)
    reason = paired.assessment.of(ME).reason
    assert reason.startswith(f"The roster of epoch 5 forked: founder signed {further.hash.hex()[:8]} of epoch 6, which")
    assert reason.endswith(f"signed {last.hash.hex()[:8]} of epoch 6.")
    fork, names = paired.store.forked, [m.name for m in base.members]
    assert fork
    assert fork_notes(paired.store.history, fork) == (
        f"epoch 6, signed by founder: revokes {names[2]}; changes left",
        f"epoch 6, signed by {names[1]}: changes righter",
    )


def test_somebody_vouches_for_a_roster_that_the_words_signed() -> None:
    key = make_recovery_key()
    with_key = set_recovery(ROSTERS[-1], mac(0), key.public)
    recovered = recover(with_key, key, mac(1).device_id, make_recovery_key().public)
    assert voucher(recovered) == mac(0).device_id


def test_another_key_and_another_model_block_a_mac_with_the_reason(paired: PairedNode) -> None:
    paired.faults.wrong_key[PEER] = "At 10.0.0.9:4717: another Mac answered."
    paired.faults.other_model[THIRD] = "model.safetensors of toy on third is not the same file as on me."
    assert paired.assessment.of(PEER) == Verdict("blocked", paired.faults.wrong_key[PEER])
    assert paired.assessment.of(THIRD) == Verdict("blocked", paired.faults.other_model[THIRD])
    assert paired.assessment.fault(plan(ME, PEER, THIRD)) is None, "only a roster takes a plan down"


def test_the_weakest_mac_is_named_and_why(paired: PairedNode) -> None:
    assert paired.assessment.of_all([(ME, "me"), (PEER, "peer")]) == TrustChanged(level="paired", weakest="peer")
    told = paired.assessment.of_all([(ME, "me"), (STRANGER, "new"), (PEER, "peer")])
    assert (told.level, told.weakest, told.reason) == ("unpaired", "new", f"{STRANGER[:8]} is not paired.")
    assert paired.assessment.of_all([]) == TrustChanged(level="unpaired")


def test_a_plan_fails_over_the_mac_whose_files_are_others() -> None:
    macs = loading(plan_of(2))
    macs.loaded(0)
    lost = of_kind(macs.loaded(1, fingerprint="e" * 64), Lost)
    lost += of_kind(loading(plan_of(2)).lose(1, ModelMismatch("toy here is another one.").problem), Lost)
    assert [(one.device_id, one.problem.kind) for one in lost] == [(mac_id(1), "ModelMismatch")] * 2


@pytest.mark.parametrize("ca", [True, False])
def test_a_wrong_key_is_told_from_a_failed_handshake(ca: bool) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    with pytest.raises(WrongKey):
        check_peer(certificate(Ed25519PrivateKey.generate(), ca=ca), cluster(3))
    with pytest.raises(WrongKey, match="was expected"):
        check_peer(mac(1).certificate_der, cluster(3), mac(2).device_id)
    assert issubclass(WrongKey, HandshakeError)


# ---- display of a Mac that is not linked


def test_an_advertisement_of_a_members_id_is_at_most_seen_and_a_revoked_one_is_blocked(
    tmp_path: Path, paired: PairedNode
) -> None:
    """T3: a rogue that uses a member's name and id on the Wi-Fi gains nothing."""
    harness = MeshHarness(tmp_path, 0, paired.store)
    sightings, bus = harness.sightings, harness.bus
    node = replace(harness.node, store=paired.store, assessment=paired.assessment, seen=paired.seen)
    peers = PeerTable(node, harness.own, harness.worker, sightings, harness.book, harness.mesh)
    for device_id in (PEER, THIRD):
        sightings.saw(device_id, "claimed", (Place(HOST, 1),))
        peers.refresh(device_id)
    assert {p.trust for p in bus.now.peers if not p.is_self} == {"seen"}
    assert all(p.name != "claimed" for p in bus.now.peers)
    assert peers.linked() == [p for p in bus.now.peers if p.is_self]
    paired.adopt(revoke(ROSTERS[-1], mac(0), mac(1).device_id))
    paired.faults.wrong_key[THIRD] = "At 127.0.0.1:1: another key."
    peers.refresh_all()
    assert {p.trust for p in bus.now.peers if not p.is_self} == {"blocked"}


async def test_another_key_at_a_members_place_is_told_until_the_right_one_answers(tmp_path: Path) -> None:
    async with dialling_node(tmp_path) as harness, home_of(PEER_AT) as (right, _):
        harness.pair()
        async with home_of(OTHER_AT, another_cluster) as (wrong, _):
            harness.sightings.saw(mac(PEER_AT).text_id, "studio", (wrong,))
            harness.dialling.reach(mac(PEER_AT).text_id)
            await until(lambda: bool(harness.faults.wrong_key.get(mac(PEER_AT).text_id)))
            assert str(wrong) in harness.faults.wrong_key[mac(PEER_AT).text_id]
        harness.book.by_hand(mac(PEER_AT).text_id, right)
        await until(lambda: mac(PEER_AT).text_id in harness.links)
        assert mac(PEER_AT).text_id not in harness.faults.wrong_key


async def test_a_mac_that_was_revoked_dials_nobody(tmp_path: Path) -> None:
    async with dialling_node(tmp_path) as harness, home_of(PEER_AT) as (place, server):
        rosters = chain(4)
        admin = next(n for n in range(4) if n not in (ME_AT, PEER_AT)) if ME_AT == 0 else 0
        second = promote(rosters[-1], mac(0), mac(admin).device_id) if admin else rosters[-1]
        gone = revoke(second, mac(admin), mac(ME_AT).device_id)
        harness.store.adopt(bundle((*rosters, *((second,) if admin else ()), gone)))
        harness.book.by_hand(mac(PEER_AT).text_id, place)
        harness.dialling.roster_changed()
        await asyncio.sleep(0)
        assert not [t for t in asyncio.all_tasks() if t.get_name() == "Dialling"]
        assert server.admission.counts["accepted"] == 0


def test_a_prompt_stays_here_while_a_mac_of_the_plan_is_below_paired(tmp_path: Path, paired: PairedNode) -> None:
    bus = Bus()
    journal = Journal(tmp_path / "log", "me", bus)
    node, worker = context_of(identity=mac(0), bus=bus, journal=journal, config={"home": Home(tmp_path)}), WorkerState()
    worker.led = plan(ME, PEER)
    tokenizer: ModelTokenizer[Tokenizer] = ModelTokenizer(read_here)  # type: ignore[arg-type]
    answers = Answers(node, worker, None, tokenizer)  # type: ignore[arg-type]
    reading: asyncio.Future[Tokenizer] = asyncio.Future(loop=asyncio.new_event_loop())
    tokenizer._reading = reading
    try:
        for level in LEVELS:
            bus.publish(TrustChanged(level=level, weakest="mini", reason="It was not compared."))
            if level == "paired":
                answers.opening.check(plan(ME, PEER), reading)
            else:
                with pytest.raises(NotPaired, match=f"while mini is {level}. It was not compared."):
                    answers.opening.check(plan(ME, PEER), reading)
    finally:
        reading.get_loop().close()


async def test_a_mac_that_is_revoked_while_a_load_begins_ends_the_plan(
    tmp_path: Path, paired: PairedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This Mac's own worker has not taken its stage yet."""

    class Member(PlanMember):
        async def prepare_own(self, load: Load, number: int) -> None:
            taken.set()
            await asyncio.Event().wait()

    class Files(StageFiles):
        async def is_compared(self, directory: Path) -> bool:
            return True

    harness, taken, told = MeshHarness(tmp_path, 0, paired.store), asyncio.Event(), list[PlanDistrusted]()
    member = Member.__new__(Member)
    files = Files.__new__(Files)
    peers = PeerTable(harness.node, harness.own, harness.worker, harness.sightings, harness.book, harness.mesh)
    enforcement = RosterEnforcement(harness.node, harness.book, harness.mesh, peers, harness.worker)
    harness.signals.on(PlanDistrusted, told.append)
    prefill = PrefillLink(harness.node, harness.mesh, member)
    others: Any = SimpleNamespace(stop=print, worker_died=print, under_way={}, stop_all=lambda *_, **__: None)
    driver = PlanDriver(
        harness.node, harness.mesh, peers, harness.worker, member, others, files, prefill, others, others
    )
    monkeypatch.setattr(harness.mesh, "send", AsyncMock(return_value=True))
    await driver._lead(Planned(plan(ME, PEER), tmp_path, verify=False))
    async with asyncio.timeout(60):
        await taken.wait()
    assert harness.worker.plan is None
    enforcement.enforce()
    assert told == []
    paired.adopt(revoke(ROSTERS[-1], mac(0), mac(1).device_id))
    enforcement.enforce()
    assert [each.device_id for each in told] == [PEER]
    await driver.distrusted(told[0].device_id, told[0].problem)
    enforcement.enforce()
    assert len(told) == 1, "it is judged on, and has ended"
    await harness.tasks.stop()


def test_the_addresses_of_a_mac_outlive_its_key(tmp_path: Path) -> None:
    told: list[object] = []
    book = AddressBook(AdvertisedMacs(lambda _: True), on_proof=told.append)
    book.by_hand(PEER, Place(HOST, 2))
    book.met(PEER, Place(HOST, 1))
    book.moved(PEER, STRANGER)
    assert (book.of(PEER), book.of(STRANGER)) == ((), (Place(HOST, 1), Place(HOST, 2)))
    assert told[-1] == {STRANGER: (Place(HOST, 1),)}


# ---- links


def mesh_of(folder: Path, store: RosterStore) -> Mesh:
    return MeshHarness(folder, 0, store).mesh


@pytest.fixture
async def mesh(tmp_path: Path, paired: PairedNode) -> AsyncIterator[Mesh]:
    mesh = mesh_of(tmp_path, paired.store)
    yield mesh
    await mesh.stop("The test is over.")
    if mesh._server:
        await mesh._server.wait_closed()


@asynccontextmanager
async def link_to(mesh: Mesh, known: Cluster) -> AsyncIterator[ControlLink]:
    """A link of mac 1 with this Mac, whose handshake began under the roster `known`."""
    links: list[ControlLink] = []

    async def take(link: ControlLink) -> None:
        links.append(link)
        await mesh._accepted(link)

    server = await serve_control(HOST, 0, identity=mac(0), cluster=lambda: known, on_link=take)
    try:
        links.append(await dialled(server.sockets[0].getsockname()[1]))
        yield links[-1]
    finally:
        server.close()
        await server.wait_closed()
        for link in links:
            link.close()
        await asyncio.gather(*(link.wait_closed() for link in links))


async def dialled(port: int) -> ControlLink:
    return await dial_control(HOST, port, identity=mac(1), cluster=cluster(3), peer_id=mac(0).device_id, timeout_s=60.0)


async def test_a_link_whose_mac_was_revoked_during_the_handshake_is_not_kept(mesh: Mesh, paired: PairedNode) -> None:
    """The roster came between the check of the key and the end of the handshake."""
    port, known = await mesh.start(HOST, 0), paired.store.cluster()
    paired.adopt(revoke(ROSTERS[-1], mac(0), mac(1).device_id))
    async with link_to(mesh, known) as link:
        with pytest.raises(LinkLost):
            await asyncio.wait_for(link.recv(), 5)
        assert mesh.contacts == {}
        with pytest.raises(LinkError):
            await dialled(port)


async def test_a_roster_that_came_during_the_handshake_is_passed_on(mesh: Mesh, paired: PairedNode) -> None:
    known = paired.store.cluster()
    paired.adopt(rename(ROSTERS[-1], mac(0), mac(2).device_id, "newer"))
    async with link_to(mesh, known) as link:
        assert (await asyncio.wait_for(link.recv(), 5))[0] is FrameType.GREETING
        kind, body = await asyncio.wait_for(link.recv(), 5)
        assert (kind, link.peer_stand.epoch) == (FrameType.ROSTER, 4)
        assert encode(paired.store.history[-1]) in body


def test_the_request_for_a_new_key_survives_the_limit_of_a_messages_texts() -> None:
    request = ask_rotation(ROSTERS[-1], mac(1), mac(3))
    message = from_frame(*to_frame(KeyChange(request=in_pieces(request))))
    assert isinstance(message, KeyChange)
    assert b"".join(message.request) == request


# ---- names that a person types and reads

MACS = [("abcdefgh", "studio"), ("abcdzzzz", "mini"), ("wxyzabcd", "Mini 2"), ("miniaaaa", "air")]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("abcde", "abcdefgh"),
        ("ABCDE", "abcdefgh"),
        ("STUDIO", "abcdefgh"),
        (" mini 2 ", "wxyzabcd"),
        ("air", "miniaaaa"),
    ],
)
def test_a_mac_is_named_by_its_name_or_by_the_beginning_of_its_id(typed: str, meant: str) -> None:
    assert pick(typed, MACS) == meant


@pytest.mark.parametrize("typed", ["", "abc", "mini", "abcd", "nobody", "stud", "\x1b[2J"])
def test_a_name_that_is_none_or_several_is_refused_with_the_names(typed: str) -> None:
    """A Mac whose name is the start of another's id is not revoked instead of it."""
    with pytest.raises(UsageError) as refused:
        pick(typed, MACS)
    assert "(abcdzzzz)" in refused.value.fix
    assert "\x1b" not in refused.value.what


def test_what_a_mac_sees_is_said_in_words() -> None:
    private = plan(ME, PEER, THIRD)
    assert sees(private, ME) == "token ids, logits"
    assert sees(private, THIRD) == "hidden states of layers 4–5"
    assert sees(private, STRANGER) == sees(None, ME) == ""
    short = msgspec.structs.replace(private.stages[1], stop=3)
    one_layer = msgspec.structs.replace(private, stages=(private.stages[0], short))
    assert sees(one_layer, PEER) == "hidden states of layer 2"
    telling = plan(ME, PEER, notes=(EVERY_MAC_SEES,))
    assert sees(telling, PEER) == "hidden states of layers 2–3, and could infer the prompt's tokens"
    assert sees(plan(ME), ME) == "token ids, logits"


def test_the_view_has_members_strangers_and_those_that_were_put_out_but_no_recovery_key(paired: PairedNode) -> None:
    key = make_recovery_key()
    with_key = set_recovery(ROSTERS[-1], mac(0), key.public)
    paired.adopt(with_key)
    paired.adopt(revoke(with_key, mac(0), mac(2).device_id))
    stranger = Peer(device_id=STRANGER, name="new here", trust="unpaired")
    rows = trusted_macs(paired.store, paired.assessment, [stranger], plan(ME, PEER), mac(0))
    assert [(m.device_id, m.role, m.level) for m in rows] == [
        (ME, "admin", "paired"),
        (PEER, "member", "paired"),
        (STRANGER, "stranger", "unpaired"),
        (THIRD, "revoked", "blocked"),
    ]
    assert [m.is_self for m in rows] == [True, False, False, False]
    assert [bool(m.fingerprint) for m in rows] == [True, True, False, True]
    assert rows[2].name == "new here"


async def test_what_cannot_be_undone_is_refused_where_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read) as nobody:
        monkeypatch.setattr("sys.stdin", nobody)
        with pytest.raises(UsageError, match="There is no terminal to confirm it") as refused:
            await asking.agreed(Namespace(yes=False), "mini is put out.")
        assert "--yes" in refused.value.fix
        assert await asking.agreed(Namespace(yes=True), "mini is put out.")


def test_a_side_of_a_fork_is_named_by_word_or_hash() -> None:
    fork = ("aa" * 32, "ab" * 32)
    assert commands._side("ours", fork) == commands._side("aa" * 5, fork) == fork[0]
    assert commands._side("theirs", fork) == fork[1]
    with pytest.raises(UsageError):
        commands._side("theirs", (*fork, "ac" * 32))
    for typed in ("a", "a" * 7, "cc" * 8, "our"):
        with pytest.raises(UsageError):
            commands._side(typed, fork)


# ---- stored answers


def log_of(folder: Path, number: int, *macs: str) -> Path:
    record = AnswerRecord(
        request_id=f"{number:032x}",
        model="m",
        fingerprint="f",
        prompt=[1],
        macs=macs,
    )
    log = TokenLog(folder, b"s" * 32, record)
    log.close()
    os.utime(log.path, ns=(number, number))
    return log.path


def test_the_newest_hundred_logs_are_kept(tmp_path: Path) -> None:
    paths = [log_of(tmp_path / "tokens", number) for number in range(KEPT + 3)]
    assert old_logs(tmp_path / "tokens") == paths[:3]
    assert old_logs(tmp_path / "none") == []


def test_the_logs_of_answers_with_a_revoked_mac_are_forgotten(tmp_path: Path) -> None:
    shared, kept = log_of(tmp_path, 1, ME, PEER), log_of(tmp_path, 2, ME, THIRD)
    (tmp_path / "damaged.mct").write_bytes(b"MCT1")
    assert forget_shared(tmp_path, b"s" * 32, {PEER}) == 1
    assert (shared.exists(), kept.exists()) == (False, True)
