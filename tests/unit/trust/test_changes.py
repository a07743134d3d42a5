import os
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import RosterError, UsageError
from core.text import NAME_BYTES
from core.trust.identity import Identity
from core.trust.roster.acceptance import accept
from core.trust.roster.changes import add, affirm, demote, promote, rename, revoke, rotate, set_recovery
from core.trust.roster.format import Revoked, Role, Roster, decode, encode
from core.trust.roster.key_rotation import ask_rotation, decode_rotation
from core.trust.roster.recovery_key import RecoveryKey, as_member
from tests.support.macs import chain, mac, member_of, signed
from tests.support.search import SEARCH

A, B, C, D = (mac(n).device_id for n in range(4))
THREE = chain(3)[-1]
TWO_ADMINS = promote(THREE, mac(0), B)
PAPER = RecoveryKey(b"p" * 32)

EVERY_CHANGE: dict[str, Callable[[Roster, Identity], Roster]] = {
    "add": lambda r, i: add(r, i, member_of(mac(3), r.epoch + 1)),
    "promote": lambda r, i: promote(r, i, C),
    "demote": lambda r, i: demote(r, i, B),
    "rename": lambda r, i: rename(r, i, A, "attic"),
    "revoke": lambda r, i: revoke(r, i, B),
    "rotate": lambda r, i: rotate(r, i, decode_rotation(ask_rotation(r, mac(2), mac(3)))),
    "set_recovery": lambda r, i: set_recovery(r, i, PAPER.public),
    "affirm": affirm,
}


def roles(roster: Roster) -> dict[bytes, Role]:
    return {m.device_id: m.role for m in roster.members}


@pytest.mark.parametrize("change", EVERY_CHANGE)
def test_only_an_admin_changes_the_roster_and_others_take_it(change: str) -> None:
    make = EVERY_CHANGE[change]
    for admin in (mac(0), mac(1)):
        following = make(TWO_ADMINS, admin)
        assert accept(TWO_ADMINS, decode(encode(following))) == following
        assert (following.epoch, following.prev_hash) == (TWO_ADMINS.epoch + 1, TWO_ADMINS.hash)
    for nobody in (mac(2), mac(4)):
        with pytest.raises(RosterError, match="not an admin") as caught:
            make(TWO_ADMINS, nobody)
        assert "founder, mac " in caught.value.fix


def test_an_admin_made_by_another_signs_and_one_demoted_does_not() -> None:
    assert roles(TWO_ADMINS) == {A: Role.ADMIN, B: Role.ADMIN, C: Role.MEMBER}
    assert roles(demote(TWO_ADMINS, mac(1), A)) == {A: Role.MEMBER, B: Role.ADMIN, C: Role.MEMBER}
    after = demote(TWO_ADMINS, mac(0), B)
    with pytest.raises(RosterError, match="not an admin"):
        accept(after, signed(after, mac(1)))


def test_the_last_admin_is_neither_demoted_nor_revoked() -> None:
    for change in (demote, revoke):
        with pytest.raises(RosterError, match="founder is the only admin") as caught:
            change(THREE, mac(0), A)
        assert "Promote another Mac" in caught.value.fix
    with pytest.raises(RosterError, match="no admin, or"):
        accept(THREE, signed(THREE, mac(0), members=(member_of(mac(0), 1), *THREE.members[1:])))


def test_a_change_that_changes_nothing_says_so() -> None:
    with pytest.raises(RosterError, match="admin already"):
        promote(THREE, mac(0), A)
    with pytest.raises(RosterError, match="is not an admin"):
        demote(THREE, mac(0), C)


@pytest.mark.parametrize("change", [promote, demote, revoke, lambda r, i, d: rename(r, i, d, "x")])
def test_a_stranger_cannot_be_changed(change: Callable[[Roster, Identity, bytes], Roster]) -> None:
    with pytest.raises(RosterError, match="is in this cluster"):
        change(THREE, mac(0), D)


def test_a_name_is_cleaned_and_cut_before_it_is_signed() -> None:
    def called(name: str) -> bytes:
        return next(m.raw_name for m in rename(THREE, mac(0), C, name).members if m.device_id == C)

    assert called("Küche") == "Küche".encode()
    assert called("at\x1b]52;c;x\x07tic\u202e") == b"at]52;c;xtic"
    assert called("ü" * 40) == "ü".encode() * (NAME_BYTES // 2)
    for nothing in ("", "\x1b\u202e", "  "):
        with pytest.raises(UsageError):
            called(nothing)


@pytest.mark.promise("T5")
def test_whoever_is_revoked_is_out_for_ever() -> None:
    out = revoke(THREE, mac(0), B)
    assert out.member(B) is None
    assert out.revocation(B) == Revoked(B, THREE.epoch + 1)
    assert out.revocation(C) is None
    with pytest.raises(RosterError, match="revoked"):
        add(out, mac(0), member_of(mac(1), out.epoch + 1))
    with pytest.raises(RosterError, match="revoked"):
        rotate(out, mac(0), decode_rotation(ask_rotation(out, mac(2), mac(1))))
    with pytest.raises(RosterError, match="forgets"):
        accept(out, signed(out, mac(0), revoked=(), members=THREE.members))
    with pytest.raises(RosterError, match="forgets"):
        accept(out, signed(out, mac(0), revoked=(Revoked(B, 1),)))


def test_an_admin_may_revoke_another_one_and_itself() -> None:
    out = revoke(TWO_ADMINS, mac(1), A)
    with pytest.raises(RosterError, match="not an admin"):
        accept(out, signed(out, mac(0)))
    assert revoke(TWO_ADMINS, mac(1), B).member(B) is None


def bad(**changes: object) -> Roster:
    return signed(THREE, mac(0), **changes)


PAPER_ENTRY, OTHER_PAPER = as_member(PAPER.public, 4), as_member(RecoveryKey(b"q" * 32).public, 4)

BROKEN = {
    "drops a Mac without revoking it": (bad(members=THREE.members[:2]), "drops a Mac"),
    "revokes a stranger": (bad(revoked=(Revoked(D, 4),)), "never had"),
    "revokes in another epoch": (bad(members=THREE.members[:2], revoked=(Revoked(C, 3),)), "drops a Mac"),
    "revokes twice": (bad(members=THREE.members[:2], revoked=(Revoked(C, 4), Revoked(C, 4))), "one key twice"),
    "revokes who stays": (bad(revoked=(Revoked(C, 4),)), "was revoked"),
    "has two recovery keys": (bad(members=(*THREE.members, PAPER_ENTRY, OTHER_PAPER)), "two recovery keys"),
    "has a recovery key that is paired": (
        bad(members=(*THREE.members, msgspec.structs.replace(PAPER_ENTRY, level="paired"))),
        "takes its recovery key for a Mac",
    ),
    "makes a Mac the recovery key": (
        bad(members=(*THREE.members[:2], member_of(mac(2), 3, Role.RECOVERY, "unpaired"))),
        "turns a Mac into",
    ),
    "has the recovery key as its only admin": (
        bad(members=(PAPER_ENTRY,), revoked=tuple(Revoked(i, 4) for i in (A, B, C))),
        "no admin",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.promise("P19")
def test_no_admin_can_make_others_take_a_roster_that(case: str) -> None:
    roster, why = BROKEN[case]
    with pytest.raises(RosterError, match=why):
        accept(THREE, roster)


def test_the_recovery_key_never_becomes_a_mac() -> None:
    with_paper = set_recovery(THREE, mac(0), PAPER.public)
    as_mac = msgspec.structs.replace(with_paper.members[-1], role=Role.MEMBER, level="paired")
    with pytest.raises(RosterError, match="or back"):
        accept(with_paper, signed(with_paper, mac(0), members=(*with_paper.macs, as_mac)))


def test_a_roster_full_of_revoked_keys_says_what_to_do() -> None:
    many = tuple(Revoked(os.urandom(16), 4) for _ in range(667))
    full = signed(THREE, mac(0), revoked=many)
    assert len(encode(affirm(full, mac(0)))) == 16 * 1024 - 30
    with pytest.raises(RosterError, match=r"16384 bytes.* 16450, 667 revoked keys") as caught:
        set_recovery(rename(full, mac(0), A, "n" * 32), mac(0), PAPER.public)
    assert "create a new cluster" in caught.value.fix
    assert len(encode(revoke(full, mac(0), B))) < len(encode(full)), "a lost Mac can always be put out"


steps = st.lists(st.tuples(st.sampled_from(sorted(EVERY_CHANGE)), st.integers(0, 2), st.integers(0, 5)), max_size=12)


@settings(max_examples=60 * SEARCH)
@given(steps)
def test_no_order_of_changes_breaks_a_rule(order: list[tuple[str, int, int]]) -> None:
    """Every change is tried on some Macs: each is refused, or accepted by every other Mac."""
    roster = TWO_ADMINS
    for name, signer, target in order:
        identity, device_id = mac(signer), mac(target).device_id
        try:
            match name:
                case "add":
                    following = add(roster, identity, member_of(mac(target), roster.epoch + 1))
                case "promote" | "demote" | "revoke":
                    following = {"promote": promote, "demote": demote, "revoke": revoke}[name](
                        roster, identity, device_id
                    )
                case "rotate":
                    following = rotate(roster, identity, decode_rotation(ask_rotation(roster, identity, mac(target))))
                case _:
                    following = EVERY_CHANGE[name](roster, identity)
        except RosterError:
            continue
        assert accept(roster, decode(encode(following))) == following
        assert following.admins
        assert set(roster.revoked) <= set(following.revoked)
        assert not {m.device_id for m in following.members} & {r.device_id for r in following.revoked}
        roster = following
