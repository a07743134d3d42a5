import contextlib
import hashlib
import os
import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import RosterError
from core.settings import MAX_CONTROL_BODY
from core.text import NAME_BYTES, name_bytes
from core.trust.identity import device_id_of
from core.trust.roster import format as rules
from core.trust.roster.acceptance import accept
from core.trust.roster.bundle import Cluster, decode_bundle, encode_bundle
from core.trust.roster.changes import add, found
from core.trust.roster.format import Member, Revoked, Role, Roster, decode, encode, verify
from tests.support.macs import CLUSTER_ID, bundle, chain, cluster, mac, member_of, signed
from tests.support.search import SEARCH


def test_the_bytes_are_those_of_the_specification() -> None:
    a, b = mac(0), mac(1)
    first, second = chain(2)
    expected = b"MCR1" + CLUSTER_ID + struct.pack("<Q", 2) + hashlib.sha256(encode(first)).digest() + b"\x01\x01"
    expected += struct.pack("<H", 2)
    expected += a.device_id + a.public + struct.pack("<BBQB", 1, 3, 1, 7) + b"founder"
    expected += b.device_id + b.public + struct.pack("<BBQB", 0, 3, 2, 8) + f"mac {b.text_id[:4]}".encode()
    expected += struct.pack("<H", 0) + a.device_id
    assert encode(second)[:-64] == expected
    verify(second, a.public)
    assert encode(second)[-64:] == a.sign(b"macluster/1 roster\0" + expected)
    assert decode(encode(second)) == second
    assert first.prev_hash == bytes(32)


def test_revoked_ids_travel() -> None:
    roster = signed(chain(2)[-1], mac(0), revoked=(Revoked(b"r" * 16, 3),))
    assert decode(encode(roster)) == roster
    assert encode(roster)[-64 - 16 - 24 - 2 : -64 - 16] == struct.pack("<H16sQ", 1, b"r" * 16, 3)


def test_the_founder_is_admin_and_newcomers_are_not() -> None:
    assert [m.role for m in chain(3)[-1].members] == [Role.ADMIN, Role.MEMBER, Role.MEMBER]


def test_a_hostile_name_is_signed_raw_and_shown_clean() -> None:
    def named(raw: bytes) -> str:
        return msgspec.structs.replace(member_of(mac(1), 1), raw_name=raw).name

    assert named(b"stu\x1b[2Jdio") == "stu[2Jdio"
    assert named(b"\xff\xfe") == mac(1).text_id[:8]


@given(st.text(max_size=80))
def test_a_name_is_cut_between_characters(name: str) -> None:
    raw = name_bytes(name)
    assert len(raw) <= NAME_BYTES
    assert name.encode("utf-8", "ignore").startswith(raw)
    raw.decode()


@given(st.binary(max_size=400))
def test_decode_raises_only_roster_errors(data: bytes) -> None:
    for candidate in (data, b"MCR1" + data, encode(chain(2)[-1])[: len(data)], encode(chain(2)[-1]) + data):
        with contextlib.suppress(RosterError):
            assert encode(decode(candidate)) == candidate


@given(st.integers(0, 10**9), st.integers(0, 7))
def test_one_flipped_bit_is_never_accepted(position: int, bit: int) -> None:
    one, two = chain(2)
    damaged = bytearray(encode(two))
    damaged[position % len(damaged)] ^= 1 << bit
    with pytest.raises(RosterError):
        accept(one, decode(bytes(damaged)))


def test_the_next_epoch_is_accepted_and_the_same_one_again() -> None:
    one, two = chain(2)
    assert accept(one, two) is two
    assert accept(two, msgspec.structs.replace(two)) is two
    assert accept(None, one) is one


def test_rollback_is_refused() -> None:
    with pytest.raises(RosterError, match="Rollback"):
        accept(chain(3)[2], chain(3)[1])


def test_fork_is_refused() -> None:
    one, two = chain(2)
    other = add(one, mac(0), member_of(mac(2), 2))
    with pytest.raises(RosterError, match="Fork"):
        accept(two, other)
    with pytest.raises(RosterError, match="Fork"):
        accept(two, add(other, mac(0), member_of(mac(3), 3)))


def test_gap_is_refused() -> None:
    with pytest.raises(RosterError, match="Gap"):
        accept(chain(3)[0], chain(3)[2])


def test_a_chain_begins_with_epoch_1() -> None:
    with pytest.raises(RosterError, match="begins with epoch 1"):
        accept(None, chain(2)[1])


def test_another_cluster_is_refused() -> None:
    with pytest.raises(RosterError, match="another cluster"):
        accept(chain(2)[0], chain(2, b"D" * 16)[1])


def test_a_signer_who_is_no_admin_is_refused() -> None:
    two = chain(2)[1]
    with pytest.raises(RosterError, match="not an admin"):
        accept(two, signed(two, mac(1)))
    with pytest.raises(RosterError, match="not an admin"):
        add(two, mac(1), member_of(mac(2), 3))


def test_nobody_makes_himself_admin_in_the_roster_that_he_signs() -> None:
    two = chain(2)[1]
    crowned = (two.members[0], member_of(mac(1), 2, Role.ADMIN))
    with pytest.raises(RosterError, match="not an admin"):
        accept(two, signed(two, mac(1), members=crowned))


def test_a_signature_by_the_wrong_key_is_refused() -> None:
    two = chain(2)[1]
    with pytest.raises(RosterError, match="not signed"):
        accept(two, signed(two, mac(1), signer_id=mac(0).device_id))


def test_a_revoked_mac_cannot_come_back_or_be_forgotten() -> None:
    two = chain(2)[1]
    out = accept(two, signed(two, mac(0), members=two.members[:1], revoked=(Revoked(mac(1).device_id, 3),)))
    with pytest.raises(RosterError, match="revoked"):
        add(out, mac(0), member_of(mac(1), 4))
    with pytest.raises(RosterError, match="forgets"):
        accept(out, signed(out, mac(0), revoked=()))


def test_an_id_that_is_not_its_keys_is_refused() -> None:
    two = chain(2)[1]
    wrong = msgspec.structs.replace(member_of(mac(2), 3), device_id=b"x" * 16)
    with pytest.raises(RosterError, match="under an id"):
        add(two, mac(0), wrong)
    with pytest.raises(RosterError, match="twice"):
        add(two, mac(0), member_of(mac(1), 3))


def test_unknown_suite_and_version_are_refused() -> None:
    two = chain(2)[1]
    for change in ({"suite": 2}, {"min_ver": 2}):
        with pytest.raises(RosterError, match="Update macluster"):
            accept(two, signed(two, mac(0), **change))


def test_a_level_that_no_mac_can_reach_is_refused() -> None:
    data = encode(chain(1)[0])
    at = data.index(mac(0).public) + 32 + 1  # after key and role
    assert data[at] == 3
    with pytest.raises(RosterError, match="level"):
        decode(data[:at] + b"\x04" + data[at + 1 :])


def test_size_is_bounded() -> None:
    def stranger() -> Member:
        public = os.urandom(32)
        return msgspec.structs.replace(member_of(mac(1), 2), public=public, device_id=device_id_of(public))

    two = chain(2)[1]
    crowd = signed(two, mac(0), members=(two.members[0], *(stranger() for _ in range(64))))
    with pytest.raises(RosterError, match="64"):
        accept(two, crowd)
    with pytest.raises(RosterError, match="64"):
        decode(encode(crowd))
    many = signed(two, mac(0), revoked=tuple(Revoked(bytes(16), n) for n in range(700)))
    with pytest.raises(RosterError, match="16384"):
        accept(two, many)
    with pytest.raises(RosterError, match="16384"):
        decode(encode(many))


@settings(max_examples=60 * SEARCH)
@given(st.lists(st.integers(0, 9), max_size=20))
@pytest.mark.promise("P19")
def test_roster_acceptance_is_monotone(order: list[int]) -> None:
    forked = add(chain(2)[0], mac(0), member_of(mac(2), 2))
    offers = [*chain(5), *chain(3, b"D" * 16), forked, add(forked, mac(0), member_of(mac(1), 3))]
    current: Roster | None = None
    for number in order:
        before = current
        try:
            current = accept(current, offers[number])
        except RosterError:
            continue
        if before is not None:
            assert current.cluster_id == before.cluster_id
            assert current == before or (current.epoch == before.epoch + 1 and current.prev_hash == before.hash)


@given(st.binary(max_size=200))
def test_bundles_raise_only_roster_errors(data: bytes) -> None:
    whole = bundle(chain(2), mac(0).certificate_der)
    for candidate in (data, whole[: len(data)], whole + data + b"x", whole[:40] + data):
        with contextlib.suppress(RosterError):
            for roster in decode_bundle(candidate).rosters:
                decode(roster)
    with pytest.raises(RosterError):
        decode_bundle(bytes(MAX_CONTROL_BODY + 1))


def test_a_cluster_crosses_a_pipe() -> None:
    assert Cluster.decode(cluster(3).encode()) == cluster(3)
    with pytest.raises(RosterError):
        Cluster.decode(encode_bundle(chain(2)[-1].stand, [encode(r) for r in chain(2)], []))


def test_founding_makes_a_chain_of_one() -> None:
    roster = found(mac(3), "ein sehr langer Name für einen kleinen Mac", b"E" * 16)
    assert (roster.epoch, roster.signer_id, len(roster.members)) == (1, mac(3).device_id, 1)
    assert rules.encode(roster) == encode(roster)
