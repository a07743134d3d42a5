import secrets

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from core.errors import HandshakeError, RosterError, UsageError
from core.link.tls import check_peer
from core.trust.roster.acceptance import accept
from core.trust.roster.bundle import Cluster, member_certificates
from core.trust.roster.changes import demote, promote, recover, revoke, set_recovery
from core.trust.roster.format import Revoked, Role, Roster, decode, encode
from core.trust.roster.recovery_key import RecoveryKey, make_recovery_key, parse_words
from tests.support.macs import certificate, chain, mac, member_of, signed

A, B, C = (mac(n).device_id for n in range(3))
PAPER, FRESH = RecoveryKey(b"p" * 32), RecoveryKey(b"f" * 32)
ROSTER = set_recovery(chain(3)[-1], mac(0), PAPER.public)


def test_the_words_are_those_of_bip_39() -> None:
    """Vectors of the specification: 256 bits of zeros, of ones, and 0x80 repeated."""
    assert RecoveryKey(bytes(32)).words == "abandon " * 23 + "art"
    assert RecoveryKey(b"\xff" * 32).words == "zoo " * 23 + "vote"
    assert RecoveryKey(b"\x80" * 32).words.split()[-1] == "bless"


@given(st.binary(min_size=32, max_size=32))
def test_words_give_back_their_key(seed: bytes) -> None:
    key = RecoveryKey(seed)
    assert len(key.words.split()) == 24
    assert parse_words(key.words).public == key.public
    assert parse_words("\n " + key.words.upper().replace(" ", "\t ")).public == key.public


def test_every_key_is_another_one() -> None:
    assert make_recovery_key().public != make_recovery_key().public
    assert make_recovery_key(lambda n: b"p" * n).public == PAPER.public


def test_the_seed_is_not_in_the_repr() -> None:
    assert PAPER.words.split()[0] not in repr(PAPER)
    assert "ppp" not in repr(PAPER)


def test_a_wrong_word_is_named() -> None:
    words = PAPER.words.split()
    words[6] = "abandn"
    with pytest.raises(UsageError, match='Word 7, "abandn", is not') as caught:
        parse_words(" ".join(words))
    assert "abandon" in caught.value.fix
    words[6] = "\x1b[2Jq"
    with pytest.raises(UsageError, match=r'Word 7, "\[2jq"'):
        parse_words(" ".join(words))


def test_a_missing_word_is_counted() -> None:
    with pytest.raises(UsageError, match="24 words; these are 23"):
        parse_words(" ".join(PAPER.words.split()[1:]))
    with pytest.raises(UsageError, match="these are 0"):
        parse_words("")


def test_words_in_another_order_do_not_belong_together() -> None:
    words = PAPER.words.split()
    words[0], words[23] = words[23], words[0]
    with pytest.raises(UsageError, match="together they are not a key"):
        parse_words(" ".join(words))


@given(st.integers(0, 23), st.integers(1, 2047))
def test_one_word_for_another_is_never_taken_for_the_key(place: int, step: int) -> None:
    from mnemonic import Mnemonic

    listed, words = Mnemonic("english").wordlist, PAPER.words.split()
    words[place] = listed[(listed.index(words[place]) + step) % 2048]
    try:
        key = parse_words(" ".join(words))
    except UsageError:
        return
    with pytest.raises(RosterError, match="another cluster"):  # 8 bits of checksum let 1 in 256 through
        recover(ROSTER, key, B, FRESH.public)


def test_the_words_make_a_member_admin_and_are_used_up() -> None:
    after = recover(ROSTER, parse_words(PAPER.words), B, FRESH.public, lost=[A])
    assert accept(ROSTER, decode(encode(after))) == after
    assert [(m.device_id, m.role) for m in after.macs] == [(B, Role.ADMIN), (C, Role.MEMBER)]
    assert after.revocation(A)
    assert after.recovery is not None
    assert after.recovery.public == FRESH.public
    with pytest.raises(RosterError, match=r"used up or replaced in epoch 5") as caught:
        recover(after, PAPER, C, RecoveryKey(b"g" * 32).public)
    assert "newest paper" in caught.value.fix
    assert recover(after, FRESH, C, RecoveryKey(b"g" * 32).public).member(C)


def test_nobody_has_to_be_revoked() -> None:
    assert [m.role for m in recover(ROSTER, PAPER, B, FRESH.public).macs] == [Role.ADMIN, Role.ADMIN, Role.MEMBER]


def test_words_of_another_cluster_say_so() -> None:
    with pytest.raises(RosterError, match="of another cluster"):
        recover(ROSTER, FRESH, B, PAPER.public)
    with pytest.raises(RosterError, match="has no recovery key"):
        recover(chain(3)[-1], PAPER, B, FRESH.public)


def test_new_words_make_the_old_ones_worthless() -> None:
    renewed = set_recovery(ROSTER, mac(0), FRESH.public)
    with pytest.raises(RosterError, match="replaced in epoch 5"):
        recover(renewed, PAPER, B, RecoveryKey(b"g" * 32).public)
    with pytest.raises(RosterError, match="revoked"):
        set_recovery(renewed, mac(0), PAPER.public)


def test_the_words_serve_a_member_only() -> None:
    for wrong, why in ((mac(5).device_id, "is in this cluster"), (A, "admin already"), (PAPER.device_id, "is in this")):
        with pytest.raises(RosterError, match=why):
            recover(ROSTER, PAPER, wrong, FRESH.public)
    with pytest.raises(RosterError, match="at once"):
        recover(ROSTER, PAPER, B, FRESH.public, lost=[B])
    with pytest.raises(RosterError, match="is in this cluster"):
        recover(ROSTER, PAPER, B, FRESH.public, lost=[mac(5).device_id])
    with pytest.raises(RosterError, match="good for one use"):
        recover(ROSTER, PAPER, B, PAPER.public)


def by_paper(*members: object, gone: tuple[bytes, ...] = (PAPER.device_id,)) -> Roster:
    revoked = tuple(Revoked(i, ROSTER.epoch + 1) for i in gone)
    return signed(ROSTER, PAPER, members=members, revoked=revoked)


FOUNDER, SECOND, THIRD, OLD = ROSTER.members
NEW = msgspec.structs.replace(set_recovery(ROSTER, mac(0), FRESH.public).members[-1])
CROWNED = msgspec.structs.replace(SECOND, role=Role.ADMIN)

TOO_MUCH = {
    "change nothing": by_paper(FOUNDER, SECOND, THIRD, NEW),
    "make two admins": by_paper(FOUNDER, CROWNED, msgspec.structs.replace(THIRD, role=Role.ADMIN), NEW),
    "add a Mac": by_paper(FOUNDER, CROWNED, THIRD, member_of(mac(3), 5), NEW),
    "make a new Mac admin": by_paper(FOUNDER, SECOND, THIRD, member_of(mac(3), 5, Role.ADMIN), NEW),
    "rename": by_paper(FOUNDER, CROWNED, msgspec.structs.replace(THIRD, raw_name=b"x"), NEW),
    "rename the new admin": by_paper(FOUNDER, msgspec.structs.replace(CROWNED, raw_name=b"x"), THIRD, NEW),
    "change a level": by_paper(FOUNDER, msgspec.structs.replace(CROWNED, level="seen"), THIRD, NEW),
    "demote": by_paper(msgspec.structs.replace(FOUNDER, role=Role.MEMBER), CROWNED, THIRD, NEW),
    "revoke only": by_paper(FOUNDER, SECOND, NEW, gone=(C, PAPER.device_id)),
    "stay good": by_paper(FOUNDER, CROWNED, THIRD, OLD, gone=()),
    "leave none": by_paper(FOUNDER, CROWNED, THIRD),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_the_recovery_key_cannot(case: str) -> None:
    with pytest.raises(RosterError, match="recovery key"):
        accept(ROSTER, TOO_MUCH[case])


def test_a_roster_in_the_name_of_the_recovery_key_needs_its_signature() -> None:
    good = recover(ROSTER, PAPER, B, FRESH.public)
    forged = signed(ROSTER, mac(1), members=good.members, revoked=good.revoked, signer_id=PAPER.device_id)
    with pytest.raises(RosterError, match="not signed"):
        accept(ROSTER, forged)


def test_the_recovery_key_signs_no_first_roster() -> None:
    with pytest.raises(RosterError, match="not an admin"):
        accept(None, first_by_paper())


def first_by_paper() -> Roster:
    members = (member_of(mac(0), 1, Role.ADMIN), msgspec.structs.replace(OLD, added_epoch=1))
    return signed(chain(1)[0], PAPER, epoch=1, prev_hash=bytes(32), members=members)


def test_the_recovery_key_is_no_mac() -> None:
    assert [m.device_id for m in ROSTER.macs] == [A, B, C]
    assert [m.device_id for m in ROSTER.admins] == [A]
    assert ROSTER.member(PAPER.device_id) is None
    assert ROSTER.recovery is not None
    assert ROSTER.recovery.level == "unpaired"
    for change in (promote, demote, revoke):
        with pytest.raises(RosterError, match="is in this cluster"):
            change(ROSTER, mac(0), PAPER.device_id)


def test_no_link_is_made_with_the_recovery_key() -> None:
    """A finder of the paper can make its certificate, and is still no Mac of the cluster."""
    key = Ed25519PrivateKey.from_private_bytes(b"p" * 32)
    forged = certificate(key)
    assert member_certificates(ROSTER, [forged, mac(1).certificate_der]) == {B: mac(1).certificate_der}
    with pytest.raises(HandshakeError, match="not in this cluster"):
        check_peer(forged, Cluster(ROSTER, {PAPER.device_id: forged}))


def test_a_random_key_signs_nothing() -> None:
    with pytest.raises(RosterError, match="not an admin"):
        accept(ROSTER, signed(ROSTER, RecoveryKey(secrets.token_bytes(32))))
