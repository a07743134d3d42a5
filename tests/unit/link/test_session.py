import contextlib
import dataclasses
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import HandshakeError, OtherVersion, ProtocolError, SealError
from core.link.frames import HEADER, MAX_BODY, TAG_BYTES, Buffer, FrameHeader, FrameType
from core.link.seal import MAX_FRAMES_PER_KEY, Opener, Sealer
from core.link.session import AUTH_BYTES, HELLO, Acceptor, Dialler, Kind, LinkSession, node_link_kind
from core.trust.identity import device_id_of
from core.trust.roster.bundle import Cluster
from core.trust.roster.format import Member, Role, Roster, Stand
from tests.support.handshakes import agree, member, party
from tests.support.macs import cluster, mac
from tests.support.search import SEARCH

# ---- the vector of security.md §2.5


class Key:
    """The part of an Identity that the vector needs, with its made-up keys and certificates."""

    def __init__(self, seed: int, certificate: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.public = self._key.public_key().public_bytes_raw()
        self.device_id = device_id_of(self.public)
        self.certificate_der = certificate

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


class VectorRoster:
    """A roster whose hash is 32 times "R"."""

    cluster_id, epoch, hash = b"C" * 16, 7, b"R" * 32
    stand = Stand(7, b"R" * 32)


def fixed(*values: bytes) -> Callable[[int], bytes]:
    queue = list(values)
    return lambda length: queue.pop(0)


def vector() -> tuple[Acceptor, LinkSession, LinkSession]:
    a, b = Key(1, b"certA"), Key(2, b"certB")
    group = Cluster(VectorRoster(), {})  # type: ignore[arg-type]

    def as_member(key: Key) -> Member:
        return Member(
            device_id=key.device_id, public=key.public, role=Role.MEMBER, level="paired", added_epoch=1, raw_name=b""
        )

    dialler = Dialler(a, group, as_member(b), Kind.DATA, b"certB", fixed(b"\x03" * 32, b"a" * 16))  # type: ignore[arg-type]
    acceptor = Acceptor(b, group, as_member(a), Kind.DATA, b"certA", fixed(b"\x04" * 32, b"b" * 16))  # type: ignore[arg-type]
    auth, session_a = dialler.finish(acceptor.reply(dialler.hello))
    assert len(dialler.hello) == 152
    return acceptor, session_a, acceptor.finish(auth)


def test_the_specifications_vector_of_handshake_and_keys() -> None:
    acceptor, a, b = vector()
    assert b.peer_id.hex() == "21858474e8d6354f7bc873c7fdac405a"
    assert acceptor._agreed
    assert acceptor._agreed.transcript_hash.hex() == "eb9fcf0a239e16c1ad905748038911e791597d3b7364dcbcbbd693a113bbcf5d"
    assert a.sid.hex() == b.sid.hex() == "8658aeb8b2a406f55b65578ef51decdd"
    assert a.send_key.hex() == "a348f6d5cb77cd099ca18cb675cca0aa93576f6af6bab715fb9e72820f41ad69"
    assert (a.send_key, a.recv_key) == (b.recv_key, b.send_key)
    assert len(acceptor.hello) == 152


def test_the_specifications_vector_of_header_and_seal() -> None:
    # The vector was made when 0x10 was the number of an activation; DESIGN.md §4 gives 0x10 to compose.
    _, a, b = vector()
    frame = Sealer(a).seal(
        FrameType.COMPOSE,
        flags=1,
        dtype=2,
        pos=5,
        request_id=b"Q" * 16,
        layers=(0, 15),
        rows=1,
        plan_gen=1,
        parts=[bytes(range(64))],
    )
    assert frame[:48].hex() == (
        "4d43011001020000500000000500000000000000000000005151515151515151515151515151515100000f0001000100"
    )
    assert frame[48:].hex() == (
        "7b07dc121dee52c2c3de57bad004a680cd16c1ace67958252fffa189bc667da1786b86917b39ad31b3a581429067f3e5"
        "c6a3853546625d5a1daa8aaefbf8b2e38ad63f6704c7a7ecadf04367d438c73b"
    )
    assert bytes(Opener(b).open_frame(frame)[1]) == bytes(range(64))


# ---- the handshake


def test_both_sides_agree() -> None:
    a, b = agree()
    assert (a.peer_id, b.peer_id) == (mac(1).device_id, mac(0).device_id)
    assert (a.send_key, a.recv_key, a.sid) == (b.recv_key, b.send_key, b.sid)
    assert a.send_key != a.recv_key
    assert a.aad_prefix(outgoing=True) == b.aad_prefix(outgoing=False) != a.aad_prefix(outgoing=False)


def test_every_session_has_new_keys() -> None:
    assert agree()[0].send_key != agree()[0].send_key


def test_no_key_is_in_the_repr_of_a_session() -> None:
    session = agree()[0]
    assert repr(session.send_key) not in repr(session)


def test_a_peer_below_paired_is_refused() -> None:
    with pytest.raises(HandshakeError, match="not paired"):
        Dialler(mac(0), cluster(2), member(1, "seen"), Kind.DATA, mac(1).certificate_der, secrets.token_bytes)


def test_other_cluster_is_refused_before_anything_is_signed() -> None:
    stranger = party(0, 1, to=cluster(3, b"D" * 16))[0]
    with pytest.raises(HandshakeError, match="another cluster"):
        party(1, 0)[1].reply(stranger.hello)


def test_two_rosters_of_one_epoch_are_for_control_links_only() -> None:
    """No activation goes over a fork; but over a control link both sides find the proof of it."""
    roster = cluster(3).roster
    other: Roster = msgspec.structs.replace(roster, sig=bytes(64))
    forked = Cluster(other, cluster(3).certificates)
    with pytest.raises(HandshakeError, match="forked"):
        party(1, 0)[1].reply(party(0, 1, to=forked)[0].hello)
    dialler = party(0, 1, kind=Kind.CONTROL, to=forked)[0]
    acceptor = party(1, 0, kind=Kind.CONTROL)[1]
    auth, a = dialler.finish(acceptor.reply(dialler.hello))
    assert (a.peer_stand, acceptor.finish(auth).peer_stand) == (roster.stand, other.stand)


def test_unequal_epochs_are_for_control_links_only() -> None:
    with pytest.raises(HandshakeError, match="epoch 2"):
        party(1, 0)[1].reply(party(0, 1, to=cluster(2))[0].hello)
    dialler = party(0, 1, kind=Kind.CONTROL, to=cluster(2))[0]
    acceptor = party(1, 0, kind=Kind.CONTROL)[1]
    auth, a = dialler.finish(acceptor.reply(dialler.hello))
    assert (a.peer_stand, acceptor.finish(auth).peer_stand) == (cluster(3).roster.stand, cluster(2).roster.stand)


def test_a_link_that_measures_a_path_needs_one_roster() -> None:
    acceptor = party(1, 0, kind=Kind.PATH)[1]
    with pytest.raises(HandshakeError, match="epoch 2"):
        acceptor.reply(party(0, 1, kind=Kind.PATH, to=cluster(2))[0].hello)


def test_a_link_of_another_kind_is_refused() -> None:
    for asked in (Kind.DATA, Kind.PATH):
        with pytest.raises(HandshakeError, match="kind"):
            party(1, 0, kind=Kind.CONTROL)[1].reply(party(0, 1, kind=asked)[0].hello)


def test_a_node_takes_links_of_two_kinds_and_judges_the_rest_as_control() -> None:
    asked = {kind: party(0, 1, kind=kind)[0].hello for kind in Kind}
    assert {kind: node_link_kind(m1) for kind, m1 in asked.items()} == {
        Kind.CONTROL: Kind.CONTROL,
        Kind.DATA: Kind.CONTROL,
        Kind.PATH: Kind.PATH,
    }


def test_a_hello_for_another_mac_is_refused() -> None:
    with pytest.raises(HandshakeError, match="another Mac"):
        party(1, 0)[1].reply(party(0, 2)[0].hello)


def test_a_hello_by_another_mac_than_the_tls_leaf_is_refused() -> None:
    with pytest.raises(HandshakeError, match="another one"):
        party(1, 0)[1].reply(party(2, 1)[0].hello)


def test_reflection_of_the_handshake_is_refused() -> None:
    dialler = party(0, 1)[0]
    with pytest.raises(HandshakeError):
        dialler.finish(dialler.hello + bytes(AUTH_BYTES))
    acceptor = party(1, 0)[1]
    reply = acceptor.reply(party(0, 1)[0].hello)
    with pytest.raises(HandshakeError):
        acceptor.finish(reply[HELLO.size :])


def test_another_certificate_in_tls_breaks_the_session() -> None:
    """The channel binding ties the inner session to the TLS session: a relay shows each side its own leaf."""
    dialler = party(0, 1)[0]
    acceptor = Acceptor(mac(1), cluster(3), member(0), Kind.DATA, mac(2).certificate_der, secrets.token_bytes)
    with pytest.raises(HandshakeError):
        dialler.finish(acceptor.reply(dialler.hello))


def test_a_low_order_ephemeral_is_refused() -> None:
    hello = bytearray(party(0, 1)[0].hello)
    hello[104:136] = bytes(32)
    with pytest.raises(HandshakeError, match="known"):
        party(1, 0)[1].reply(bytes(hello))


@pytest.mark.parametrize(("at", "value"), [(0, 0x4E), (4, 0), (4, 2), (6, 2), (10, 1), (15, 1)])
def test_downgrade_and_reserved_bytes_are_refused(at: int, value: int) -> None:
    hello = bytearray(party(0, 1)[0].hello)
    hello[at] = value
    with pytest.raises(HandshakeError):
        party(1, 0)[1].reply(bytes(hello))


def test_a_flag_of_a_later_version_is_signed_and_otherwise_ignored() -> None:
    dialler, acceptor = party(0, 1)[0], party(1, 0)[1]
    dialler.hello = dialler.hello[:9] + b"\x80" + dialler.hello[10:]
    auth, a = dialler.finish(acceptor.reply(dialler.hello))
    assert acceptor.finish(auth).sid == a.sid


@pytest.mark.parametrize(("version", "older"), [(2, "this Mac"), (0, "studio")])
def test_a_hello_of_another_version_is_refused_with_both_versions(version: int, older: str) -> None:
    hello = party(0, 1)[0].hello
    with pytest.raises(OtherVersion) as refused:
        party(1, 0)[1].reply(hello[:4] + bytes([version]) + hello[5:])
    name = member(0).name
    assert refused.value.what == f"{name} begins links in version {version}, this Mac in version 1."
    assert refused.value.fix == f"Update macluster on {older.replace('studio', name)}."


@settings(max_examples=80 * SEARCH)
@given(st.integers(0, 10**6), st.integers(0, 7), st.sampled_from(["m1", "reply", "auth"]))
def test_one_flipped_bit_anywhere_in_the_handshake_is_fatal(position: int, bit: int, where: str) -> None:
    def maybe_flip(data: bytes, name: str) -> bytes:
        changed = bytearray(data)
        if name == where:
            changed[position % len(data)] ^= 1 << bit
        return bytes(changed)

    def shake_hands() -> None:
        dialler, acceptor = party(0, 1)[0], party(1, 0)[1]
        auth, _ = dialler.finish(maybe_flip(acceptor.reply(maybe_flip(dialler.hello, "m1")), "reply"))
        acceptor.finish(maybe_flip(auth, "auth"))

    with pytest.raises(HandshakeError):
        shake_hands()


@given(st.binary(max_size=300))
def test_strangers_bytes_raise_only_handshake_errors(data: bytes) -> None:
    hello = party(0, 1)[0].hello
    for candidate in (data, hello[: len(data) % 152], data + hello + b"x", hello[:20] + data.ljust(132, b"x")[:132]):
        with pytest.raises(HandshakeError):
            party(1, 0)[1].reply(candidate)
        with pytest.raises(HandshakeError):
            party(0, 1)[0].finish(candidate)


# ---- the seal


def pair() -> tuple[Sealer, Opener]:
    a, b = agree()
    return Sealer(a), Opener(b)


_PAIR = pair()


def frames(sealer: Sealer, count: int) -> list[bytes]:
    return [bytes(sealer.seal(FrameType.ACTIVATION, rows=1, parts=[b"frame %d" % n])) for n in range(count)]


def test_frames_of_many_sizes_and_parts() -> None:
    sealer, opener = pair()
    for size in (0, 1, 8192, 8192, 70_000, 3, 1 << 20, 64 * 1024):
        body = secrets.token_bytes(size)
        parts: list[Buffer] = [body[: size // 3], bytearray(body[size // 3 : size // 2]), memoryview(body)[size // 2 :]]
        header, text = opener.open_frame(sealer.seal(FrameType.KV, pos=size, parts=parts))
        assert (header.type, header.pos, bytes(text)) == (FrameType.KV, size, body)
    assert opener.open_frame(sealer.seal(FrameType.ACK))[0].body_len == TAG_BYTES


def test_a_body_that_was_left_stays_and_its_memory_takes_a_later_one() -> None:
    sealer, opener = pair()
    bodies = [secrets.token_bytes(size) for size in (5000, 5000, 5000, 200_000, 5000)]
    kept: list[memoryview] = []
    for body in bodies:
        kept.append(opener.open_frame(sealer.seal(FrameType.FILE_PART, parts=[body]))[1])
        opener.leave(None)
    assert [bytes(each) for each in kept] == bodies
    spare = kept[-1].obj
    assert isinstance(spare, bytearray)
    opener.leave(spare)
    text = opener.open_frame(sealer.seal(FrameType.FILE_PART, parts=[bodies[0]]))[1]
    assert text.obj is spare
    assert bytes(text) == bodies[0]
    opener.leave(bytearray(3))  # too short for the data
    assert bytes(opener.open_frame(sealer.seal(FrameType.FILE_PART, parts=[bodies[3]]))[1]) == bodies[3]


def test_a_frame_that_was_changed_leaves_a_body_that_was_kept_and_no_plaintext_of_its_own() -> None:
    sealer, opener = pair()
    secret = secrets.token_bytes(5000)
    kept = opener.open_frame(sealer.seal(FrameType.FILE_PART, parts=[secret]))[1]
    spare = bytearray(b"x" * opener._room)
    opener.leave(spare)
    changed = bytearray(sealer.seal(FrameType.FILE_PART, parts=[b"s" * 5000]))
    changed[-1] ^= 1
    with pytest.raises(SealError):
        opener.open_frame(changed)
    assert bytes(kept) == secret
    assert bytes(spare[:5000]) == bytes(5000), "wiped"


def test_the_largest_body_goes_and_one_byte_more_does_not() -> None:
    sealer, opener = pair()
    with pytest.raises(ProtocolError, match="beyond"):
        sealer.seal(FrameType.KV, parts=[bytes(MAX_BODY - TAG_BYTES + 1)])
    frame = sealer.seal(FrameType.KV, parts=[bytes(MAX_BODY - TAG_BYTES)])
    assert len(opener.open_frame(frame)[1]) == MAX_BODY - TAG_BYTES


def test_a_field_that_is_refused_costs_no_sequence_number() -> None:
    sealer, opener = pair()
    with pytest.raises(ProtocolError):
        sealer.seal(FrameType.ACK, rows=5000)
    assert opener.open_frame(sealer.seal(FrameType.ACK))[0].seq == 0


def test_the_nonce_is_the_counter_and_has_12_bytes() -> None:
    sealer, opener = pair()
    for number in range(3):
        assert opener.open_frame(sealer.seal(FrameType.ACK))[0].seq == number
    assert bytes(sealer._nonce) == bytes(4) + (2).to_bytes(8, "little")
    for wrong in (8, 13):
        sealer._nonce = bytearray(wrong)
        with pytest.raises(AssertionError):
            sealer.seal(FrameType.ACK)


def test_a_key_stops_at_its_share_of_frames() -> None:
    sealer, opener = pair()
    sealer._seq = opener._seq = MAX_FRAMES_PER_KEY - 1
    opener.open_frame(sealer.seal(FrameType.ACK))
    with pytest.raises(SealError, match="as many frames"):
        sealer.seal(FrameType.ACK)


def test_replay_is_refused() -> None:
    sealer, opener = pair()
    (frame,) = frames(sealer, 1)
    opener.open_frame(frame)
    with pytest.raises(SealError, match="repeated"):
        opener.open_frame(frame)


def test_reorder_and_loss_are_refused() -> None:
    sealer, opener = pair()
    _, second = frames(sealer, 2)
    with pytest.raises(SealError, match="reordered"):
        opener.open_frame(second)


def test_a_replayed_frame_with_a_new_number_is_refused() -> None:
    sealer, opener = pair()
    frame = bytearray(frames(sealer, 1)[0])
    opener.open_frame(frame)
    frame[16:24] = (1).to_bytes(8, "little")
    with pytest.raises(SealError, match="changed"):
        opener.open_frame(frame)


def test_reflection_of_a_frame_is_refused() -> None:
    a, _ = agree()
    frame = bytes(Sealer(a).seal(FrameType.ACK, parts=[b"x"]))
    with pytest.raises(SealError):
        Opener(a).open_frame(frame)


def test_a_frame_of_another_session_is_refused() -> None:
    sealer, _ = pair()
    _, opener = pair()
    with pytest.raises(SealError):
        opener.open_frame(frames(sealer, 1)[0])


@pytest.mark.parametrize("change", [{"sid": b"x" * 16}, {"cluster_id": b"D" * 16}, {"side": "A"}])
def test_cluster_session_and_direction_are_sealed_in(change: dict[str, Any]) -> None:
    a, b = agree()
    with pytest.raises(SealError):
        Opener(dataclasses.replace(b, **change)).open_frame(Sealer(a).seal(FrameType.ACK, parts=[b"x"]))


@given(st.integers(0, 71), st.integers(0, 7))
@settings(max_examples=150 * SEARCH)
def test_one_flipped_bit_is_never_accepted(position: int, bit: int) -> None:
    sealer, opener = _PAIR
    sealer._seq = opener._seq = 0
    frame = bytearray(sealer.seal(FrameType.ACTIVATION, rows=1, pos=3, layers=(2, 9), parts=[b"8 bytes."]))
    assert len(frame) == 72
    frame[position] ^= 1 << bit
    with pytest.raises((SealError, ProtocolError)):
        opener.open_frame(frame)


def test_all_single_bit_flips_of_a_frame() -> None:
    sealer, opener = _PAIR
    sealer._seq = opener._seq = 0
    good = bytes(sealer.seal(FrameType.ACTIVATION, rows=1, parts=[b"8 bytes."]))
    accepted = 0
    for bit in range(len(good) * 8):
        frame = bytearray(good)
        frame[bit // 8] ^= 1 << bit % 8
        try:
            opener.open_frame(frame)
            accepted += 1
        except (SealError, ProtocolError):
            pass
    assert accepted == 0
    assert bytes(opener.open_frame(good)[1]) == b"8 bytes."


@given(st.integers(0, 71))
def test_truncation_is_refused(length: int) -> None:
    sealer, opener = _PAIR
    sealer._seq = opener._seq = 0
    frame = sealer.seal(FrameType.ACTIVATION, rows=1, parts=[b"8 bytes."])
    with pytest.raises(ProtocolError):
        opener.open_frame(bytes(frame[:length]))


def test_unverified_plaintext_is_wiped() -> None:
    sealer, opener = pair()
    frame = bytearray(sealer.seal(FrameType.KV, parts=[b"secret activations"]))
    frame[-1] ^= 1
    with pytest.raises(SealError):
        opener.open_frame(frame)
    assert not any(opener._plain)


def test_a_body_of_1_gib_is_refused_before_anything_is_allocated() -> None:
    _, opener = pair()
    before = len(opener._buffer)
    for length in (1 << 30, 2**32 - 1):
        head = HEADER.pack(b"MC", 1, *FrameHeader(FrameType.KV, 0, 0, 0, length, 0, 0, bytes(16), 0, 0, 0, 0))
        with pytest.raises(ProtocolError, match="outside"):
            opener.open_frame(head)
    assert len(opener._buffer) == before


@settings(max_examples=60 * SEARCH)
@given(st.lists(st.integers(0, 5), max_size=12))
@pytest.mark.promise("T6")
def test_any_subsequence_or_permutation_yields_only_a_prefix(order: list[int]) -> None:
    sealer, opener = _PAIR
    sealer._seq = opener._seq = 0
    sent = frames(sealer, 6)
    got = []
    for number in order:
        with contextlib.suppress(SealError):
            got.append(bytes(opener.open_frame(sent[number])[1]))
    assert got == [b"frame %d" % n for n in range(len(got))]
