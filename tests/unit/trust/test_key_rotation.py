import os
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import IdentityError, RosterError
from core.trust.identity import Identity, load_or_create, open_identity
from core.trust.roster.changes import add, affirm, promote, rename, rotate
from core.trust.roster.format import Revoked, Role, Roster
from core.trust.roster.key_rotation import ask_rotation, decode_rotation, finish_rotation, prepare_rotation
from tests.support.macs import certificate, chain, mac, member_of

A, B, C = (mac(n).device_id for n in range(3))
ROSTER = rename(promote(chain(3)[-1], mac(0), B), mac(0), C, "attic")
NEW = mac(5)


def turned(roster: Roster, admin: Identity, old: Identity, new: Identity = NEW) -> Roster:
    return rotate(roster, admin, decode_rotation(ask_rotation(roster, old, new)))


def test_the_new_key_stands_where_the_old_one_stood() -> None:
    after = turned(ROSTER, mac(0), mac(2))
    assert [m.device_id for m in after.members] == [A, B, NEW.device_id]
    old, new = ROSTER.members[2], after.members[2]
    assert (new.public, new.added_epoch) == (NEW.public, after.epoch)
    assert (new.name, new.role, new.level) == (old.name, old.role, old.level) == ("attic", Role.MEMBER, "paired")
    assert after.revoked == (Revoked(C, after.epoch),)
    with pytest.raises(RosterError, match="revoked"):
        add(after, mac(0), member_of(mac(2), after.epoch + 1))


def test_an_admin_changes_its_own_key_even_the_only_one() -> None:
    for roster in (ROSTER, chain(1)[0]):
        after = turned(roster, mac(0), mac(0))
        assert after.members[0].is_admin
        with pytest.raises(RosterError, match="not an admin"):
            affirm(after, mac(0))
        assert affirm(after, NEW)


def test_a_changed_request_is_refused() -> None:
    request = ask_rotation(ROSTER, mac(2), NEW)
    assert rotate(ROSTER, mac(0), decode_rotation(request))
    for at in range(len(request)):
        damaged = request[:at] + bytes([request[at] ^ 0x41]) + request[at + 1 :]
        with pytest.raises(RosterError):
            rotate(ROSTER, mac(0), decode_rotation(damaged))
    for cut in (request[:-1], request[:91], b"", request + b"x"):
        with pytest.raises(RosterError):
            decode_rotation(cut)


def test_nobody_asks_for_another_mac() -> None:
    theirs = bytearray(ask_rotation(ROSTER, mac(2), NEW))
    theirs[4:20] = B
    with pytest.raises(RosterError, match="not signed by its old key"):
        rotate(ROSTER, mac(0), decode_rotation(bytes(theirs)))
    with pytest.raises(RosterError, match="not in this cluster"):
        turned(ROSTER, mac(0), mac(4))


def test_a_request_is_good_for_one_epoch_of_one_cluster() -> None:
    request = decode_rotation(ask_rotation(ROSTER, mac(2), NEW))
    with pytest.raises(RosterError, match="Ask again"):
        rotate(affirm(ROSTER, mac(0)), mac(0), request)
    elsewhere = rename(promote(chain(3, b"D" * 16)[-1], mac(0), B), mac(0), C, "attic")
    assert elsewhere.epoch == ROSTER.epoch
    with pytest.raises(RosterError, match="not signed"):
        rotate(elsewhere, mac(0), request)


def test_a_key_that_is_in_the_cluster_already_is_refused() -> None:
    with pytest.raises(RosterError, match="twice"):
        turned(ROSTER, mac(0), mac(2), mac(1))
    with pytest.raises(RosterError, match="is the same as its old one"):
        turned(ROSTER, mac(0), mac(2), mac(2))


def test_a_certificate_that_could_mint_identities_is_refused() -> None:
    key = Ed25519PrivateKey.generate()
    request = ask_rotation(ROSTER, mac(2), NEW)[:92]
    for bad in (certificate(key, ca=True), certificate(key, signer=Ed25519PrivateKey.generate()), b""):
        with pytest.raises(RosterError, match="certificate of a new key"):
            decode_rotation(request + bad)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    load_or_create(tmp_path / "identity", use_keychain=False)
    return tmp_path / "identity"


def test_the_swap_keeps_the_secret_of_files_at_rest(folder: Path) -> None:
    old = load_or_create(folder)
    following = prepare_rotation(folder)
    assert following.public != old.public
    assert load_or_create(folder).public == old.public
    new = finish_rotation(folder)
    assert (new.public, new.certificate_der) == (following.public, following.certificate_der)
    assert new.secret("sessions") == following.secret("sessions") == old.secret("sessions")
    assert new.key_path.name == "identity.pem"
    assert {p.name for p in folder.iterdir()} == {"identity.pem", "identity.crt", "passphrase"}
    assert {p.stat().st_mode & 0o777 for p in folder.iterdir()} == {0o600}
    assert open_identity(folder, old.passphrase).public == new.public
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(new.certificate_path, new.key_path, new.passphrase)


def test_a_prepared_key_is_found_again_until_it_is_used(folder: Path) -> None:
    following = prepare_rotation(folder)
    assert prepare_rotation(folder).public == following.public
    finish_rotation(folder)
    assert prepare_rotation(folder).public != following.public


def test_without_a_prepared_key_there_is_nothing_to_finish(folder: Path) -> None:
    with pytest.raises(IdentityError, match="No next key"):
        finish_rotation(folder)


def test_a_fresh_identity_leaves_no_prepared_key_behind(folder: Path) -> None:
    prepare_rotation(folder)
    (folder / "identity.pem").unlink()
    load_or_create(folder, use_keychain=False)
    assert prepare_rotation(folder)


class PowerCut(BaseException):
    """A power cut; nothing catches it, not even `except OSError`."""


def cut_power(monkeypatch: pytest.MonkeyPatch, step: int, *, before: bool) -> None:
    """Cut the power at one rename; every step on disk is one."""
    replace, done = os.replace, [0]

    def rename_or_die(source: Path, target: Path) -> None:
        done[0] += 1
        if done[0] == step and before:
            raise PowerCut
        replace(source, target)
        if done[0] == step:
            raise PowerCut

    monkeypatch.setattr(os, "replace", rename_or_die)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", [1, 2])
def test_a_power_cut_while_preparing_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, before: bool
) -> None:
    old = load_or_create(folder)
    cut_power(monkeypatch, step, before=before)
    with pytest.raises(PowerCut):
        prepare_rotation(folder)
    monkeypatch.undo()
    assert load_or_create(folder).public == open_identity(folder, old.passphrase).public == old.public
    following = prepare_rotation(folder)
    assert finish_rotation(folder).public == following.public


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", [1, 2])
def test_a_power_cut_while_swapping_leaves_the_old_or_the_new_key_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: int, before: bool
) -> None:
    old, following = load_or_create(folder), prepare_rotation(folder)
    cut_power(monkeypatch, step, before=before)
    with pytest.raises(PowerCut):
        finish_rotation(folder)
    monkeypatch.undo()
    expected = old if (step, before) == (1, True) else following
    assert open_identity(folder, old.passphrase).certificate_der == expected.certificate_der
    assert load_or_create(folder).public == expected.public
    if expected is old:
        assert finish_rotation(folder).public == following.public
    assert {p.name for p in folder.iterdir()} == {"identity.pem", "identity.crt", "passphrase"}


def test_a_swap_cut_short_is_completed_before_the_next_one_is_prepared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = prepare_rotation(folder)
    cut_power(monkeypatch, 1, before=False)
    with pytest.raises(PowerCut):
        finish_rotation(folder)
    monkeypatch.undo()
    third = prepare_rotation(folder)
    assert third.public != following.public == load_or_create(folder).public
    assert finish_rotation(folder).public == third.public


@pytest.mark.parametrize("name", ["identity-next.pem", "identity-next.crt"])
def test_a_prepared_key_that_others_can_read_is_refused(folder: Path, name: str) -> None:
    prepare_rotation(folder)
    (folder / name).chmod(0o644)
    with pytest.raises(IdentityError, match="Other users"):
        finish_rotation(folder)
