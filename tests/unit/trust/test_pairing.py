import contextlib
import hashlib
import itertools
import secrets
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import PairingError
from core.trust.pairing import Comparison, Confirmed, Offer, PairingAnswer, Window
from core.trust.roster.joining import Card, check_certificate, check_may_pair, decide, decode_card, encode_card
from tests.support.macs import certificate, chain, mac
from tests.support.search import SEARCH

A, B = b"a" * 16, b"b" * 16


class Key:
    """The part of an Identity that the vector needs, with keys from known seeds."""

    def __init__(self, seed: int) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


def fixed(*values: bytes) -> Callable[[int], bytes]:
    queue = list(values)

    def take(length: int) -> bytes:
        assert len(queue[0]) == length
        return queue.pop(0)

    return take


def meet() -> tuple[Comparison, Comparison]:
    offer = Offer(mac(0), "studio", secrets.token_bytes)
    answer = PairingAnswer(mac(1), "mini", secrets.token_bytes, offer.commit)
    p3, a = offer.reveal(answer.reveal)
    return a, answer.check(p3)


def confirmed() -> tuple[Confirmed, Confirmed]:
    a, b = meet()
    (p4a, pledge_a), (p4b, pledge_b) = a.confirm(b.view.digits), b.confirm(a.view.digits)
    return pledge_a.verify(p4b), pledge_b.verify(p4a)


def test_the_digits_of_the_specifications_vector() -> None:
    studio, mini = Key(1), Key(2)
    offer = Offer(studio, "studio", fixed(b"\x03" * 32, b"a" * 32))  # type: ignore[arg-type]
    answer = PairingAnswer(mini, "mini", fixed(b"\x04" * 32, b"b" * 32), offer.commit)  # type: ignore[arg-type]
    p3, a = offer.reveal(answer.reveal)
    b = answer.check(p3)
    assert a.view.digits == b.view.digits == "061648"
    assert (a.view.peer, b.view.peer) == ("mini", "studio")


def test_the_bytes_of_every_message() -> None:
    offer = Offer(mac(0), "studio", fixed(b"\x03" * 32, b"a" * 32))
    answer = PairingAnswer(mac(1), "mini", fixed(b"\x04" * 32, b"b" * 32), offer.commit)
    p3, a = offer.reveal(answer.reveal)
    assert offer.commit == b"MCP1" + hashlib.sha256(b"macluster/1 pair commit\0" + p3).digest()
    assert (p3[:32], p3[64:96], p3[96:]) == (mac(0).public, b"a" * 32, b"\x06studio")
    assert (answer.reveal[:32], answer.reveal[64:96], answer.reveal[96:]) == (mac(1).public, b"b" * 32, b"\x04mini")
    p4, _ = a.confirm(a.view.digits)
    assert [len(m) for m in (offer.commit, answer.reveal, p3, p4)] == [36, 101, 103, 96]
    th = hashlib.sha256(b"macluster/1 pair\0" + offer.commit + answer.reveal + p3).digest()
    assert p4[:64] == mac(0).sign(b"macluster/1 pair confirm A\0" + th)


def test_right_digits_confirm_both_keys() -> None:
    for_a, for_b = confirmed()
    assert (for_a.public, for_a.device_id) == (mac(1).public, mac(1).device_id)
    assert (for_b.public, for_b.raw_name) == (mac(0).public, b"studio")


def test_spaces_in_the_digits_do_not_matter() -> None:
    a, b = meet()
    digits = b.view.digits
    a.confirm(f" {digits[:3]} {digits[3:]}\n")


@pytest.mark.parametrize("typed", ["", "12345", "1234567", "abcdef", "٠٦١٦٤٨"])
def test_wrong_digits_abort(typed: str) -> None:
    a, _ = meet()
    with pytest.raises(PairingError, match="digits"):
        a.confirm(typed)


def test_a_man_in_the_middle_who_swaps_ephemerals_gets_different_digits() -> None:
    """The attacker pairs with each side, with the honest names and long-term keys but its own ephemerals."""
    same = 0
    for _ in range(50):
        offer = Offer(mac(0), "studio", secrets.token_bytes)
        to_b = Offer(mac(0), "studio", secrets.token_bytes)
        answer = PairingAnswer(mac(1), "mini", secrets.token_bytes, to_b.commit)
        to_a = PairingAnswer(mac(1), "mini", secrets.token_bytes, offer.commit)
        _, a = offer.reveal(to_a.reveal)
        p3, _ = to_b.reveal(answer.reveal)
        same += a.view.digits == answer.check(p3).view.digits
    assert same == 0


def test_an_ephemeral_swapped_in_flight_breaks_the_commitment_or_the_digits() -> None:
    offer = Offer(mac(0), "studio", secrets.token_bytes)
    answer = PairingAnswer(mac(1), "mini", secrets.token_bytes, offer.commit)
    own = PairingAnswer(mac(2), "mini", secrets.token_bytes, offer.commit).reveal[32:64]
    p3, a = offer.reveal(answer.reveal[:32] + own + answer.reveal[64:])
    with pytest.raises(PairingError, match="in between"):
        answer.check(p3[:32] + own + p3[64:])
    assert a.view.digits != answer.check(p3).view.digits


@given(st.integers(0, 102), st.integers(0, 7))
def test_a_changed_p3_breaks_the_commitment(position: int, bit: int) -> None:
    offer = Offer(mac(0), "studio", secrets.token_bytes)
    answer = PairingAnswer(mac(1), "mini", secrets.token_bytes, offer.commit)
    p3 = bytearray(offer.reveal(answer.reveal)[0])
    p3[position] ^= 1 << bit
    with pytest.raises(PairingError):
        answer.check(bytes(p3))


@settings(max_examples=30 * SEARCH)
@given(st.integers(0, 95), st.integers(0, 7))
def test_a_changed_confirmation_is_refused(position: int, bit: int) -> None:
    a, b = meet()
    p4 = bytearray(a.confirm(a.view.digits)[0])
    p4[position] ^= 1 << bit
    with pytest.raises(PairingError):
        b.confirm(b.view.digits)[1].verify(bytes(p4))


def test_a_reflected_confirmation_is_refused() -> None:
    a, _ = meet()
    p4, pledge = a.confirm(a.view.digits)
    with pytest.raises(PairingError):
        pledge.verify(p4)


def test_a_mac_is_not_paired_with_itself() -> None:
    offer = Offer(mac(0), "studio", secrets.token_bytes)
    with pytest.raises(PairingError, match="itself"):
        offer.reveal(PairingAnswer(mac(0), "studio", secrets.token_bytes, offer.commit).reveal)


def test_an_ephemeral_of_low_order_is_refused() -> None:
    offer = Offer(mac(0), "studio", secrets.token_bytes)
    with pytest.raises(PairingError, match="known to everyone"):
        offer.reveal(mac(1).public + bytes(32) + bytes(32) + b"\0")


@given(st.binary(max_size=160))
def test_messages_of_strangers_raise_only_pairing_errors(data: bytes) -> None:
    offer = Offer(mac(0), "studio", secrets.token_bytes)
    answer = PairingAnswer(mac(1), "mini", secrets.token_bytes, offer.commit)
    with pytest.raises(PairingError):
        answer.check(data)
    with contextlib.suppress(PairingError):
        offer.reveal(data)
    with contextlib.suppress(PairingError):
        PairingAnswer(mac(1), "mini", secrets.token_bytes, data)
    with contextlib.suppress(PairingError):
        decode_card(data)


def test_a_hostile_name_is_shown_clean() -> None:
    offer = Offer(mac(0), "stu\x1b]52;c;AA\x07dio", secrets.token_bytes)
    answer = PairingAnswer(mac(1), "\x1b\x1b", secrets.token_bytes, offer.commit)
    p3, a = offer.reveal(answer.reveal)
    assert answer.check(p3).view.peer == "stu]52;c;AAdio"
    assert a.view.peer == mac(1).text_id[:8]


def test_notes_are_bound_to_their_side_and_order() -> None:
    a, b = confirmed()
    first, second = a.pack(b"first"), a.pack(b"second")
    assert (b.unpack(first), b.unpack(second)) == (b"first", b"second")
    for wrong in (first, second, a.pack(b"third")[:-1] + b"x", b"", b.pack(b"mine")):
        with pytest.raises(PairingError):
            b.unpack(wrong)


def test_three_attempts_ten_seconds_apart_within_two_minutes() -> None:
    window = Window(100.0)
    window.admit(100.0)
    with pytest.raises(PairingError, match="less than 10 s"):
        window.admit(109.0)
    window.admit(110.0)
    window.admit(120.0)
    assert window.is_spent
    with pytest.raises(PairingError, match="closed"):
        window.admit(140.0)
    with pytest.raises(PairingError, match="closed"):
        Window(100.0).admit(220.0)


@given(st.lists(st.floats(0, 200), max_size=40))
def test_never_more_guesses_than_attempts(times: list[float]) -> None:
    window, admitted = Window(0.0), []
    for now in sorted(times):
        try:
            window.admit(now)
        except PairingError:
            continue
        admitted.append(now)
    assert len(admitted) <= 3
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(admitted))


def card(cluster_id: bytes = bytes(16), is_admin: bool = False) -> Card:
    return Card(b"der", cluster_id, 3, is_admin)


def test_who_makes_the_roster() -> None:
    assert decide(card(), card(), initiator=True) == "found"
    assert decide(card(), card(), initiator=False) == "join"
    assert decide(card(A, True), card(), initiator=False) == "admit"
    assert decide(card(), card(A, True), initiator=True) == "join"


def test_a_mac_that_may_let_nobody_in_is_told_before_anybody_types_digits() -> None:
    check_may_pair(mac(0), None)
    check_may_pair(mac(0), chain(2)[-1])
    for no_admin in (mac(1), mac(2)):
        with pytest.raises(PairingError, match="not an admin"):
            check_may_pair(no_admin, chain(2)[-1])


@pytest.mark.parametrize("initiator", [True, False])
def test_who_does_not(initiator: bool) -> None:
    for mine, theirs, why in (
        (card(A), card(), "not an admin"),
        (card(), card(A), "not an admin"),
        (card(A, True), card(B, True), "different clusters"),
        (card(A, True), card(A), "already paired"),
    ):
        with pytest.raises(PairingError, match=why):
            decide(mine, theirs, initiator=initiator)


def test_cards_travel_and_their_certificate_is_held_to_the_key() -> None:
    a, _ = confirmed()
    good = Card(mac(1).certificate_der, A, 7, True)
    assert decode_card(encode_card(good)) == good
    check_certificate(good, a)
    for bad in (mac(0).certificate_der, certificate(Ed25519PrivateKey.generate(), ca=True), b""):
        with pytest.raises(PairingError, match="certificate"):
            check_certificate(good._replace(certificate=bad), a)
