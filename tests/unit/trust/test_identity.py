import contextlib
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.utils import CryptographyDeprecationWarning
from hypothesis import given
from hypothesis import strategies as st

from core.errors import IdentityError
from core.trust.identity import (
    certificate_key,
    device_id_of,
    expand,
    extract,
    is_signed,
    load_or_create,
    make_certificate,
    open_identity,
    parse_text_id,
    text_id,
)
from core.trust.private_files import read_private
from tests.support.macs import certificate, mac


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    load_or_create(tmp_path / "identity", use_keychain=False)
    return tmp_path / "identity"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_an_identity_is_made_once_and_found_again(folder: Path) -> None:
    first, again = load_or_create(folder, use_keychain=False), load_or_create(folder, use_keychain=False)
    assert (first.public, first.device_id, first.certificate_der) == (
        again.public,
        again.device_id,
        again.certificate_der,
    )
    assert first.device_id == device_id_of(first.public)
    assert len(first.text_id) == 26
    assert first.storage == "file permissions"
    assert is_signed(first.public, again.sign(b"words"), b"words")
    assert not is_signed(first.public, again.sign(b"words"), b"other words")


def test_folder_and_files_are_the_users_alone(folder: Path) -> None:
    assert mode(folder) == 0o700
    assert {p.name: mode(p) for p in folder.iterdir()} == {
        "identity.pem": 0o600,
        "identity.crt": 0o600,
        "passphrase": 0o600,
    }


@pytest.mark.promise("T5")
def test_the_key_on_disk_is_encrypted(folder: Path) -> None:
    assert b"ENCRYPTED PRIVATE KEY" in (folder / "identity.pem").read_bytes()


def test_the_worker_opens_it_with_the_passphrase_only(folder: Path) -> None:
    node = load_or_create(folder, use_keychain=False)
    worker = open_identity(folder, node.passphrase)
    assert worker.public == node.public
    with pytest.raises(IdentityError):
        open_identity(folder, b"0" * 64)


def test_nothing_secret_is_in_the_repr(folder: Path) -> None:
    identity = load_or_create(folder, use_keychain=False)
    assert identity.passphrase.decode() not in repr(identity)
    assert "PrivateKey" not in repr(identity)


def test_secrets_differ_by_label_and_stay(folder: Path) -> None:
    one, two = load_or_create(folder, use_keychain=False), load_or_create(folder, use_keychain=False)
    assert one.secret("tokens") == two.secret("tokens") != one.secret("sessions")
    assert len(one.secret("tokens")) == 32
    assert one.secret("tokens") != mac(0).secret("tokens")


@pytest.mark.parametrize("name", ["identity.pem", "identity.crt", "passphrase"])
def test_a_file_that_others_can_read_is_refused_with_the_cure(folder: Path, name: str) -> None:
    (folder / name).chmod(0o640)
    with pytest.raises(IdentityError, match="Other users") as caught:
        load_or_create(folder, use_keychain=False)
    assert f"chmod 600 {folder / name}" in caught.value.fix


def test_a_folder_that_others_can_enter_is_refused_with_the_cure(folder: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(IdentityError, match="Other users") as caught:
        load_or_create(folder, use_keychain=False)
    assert f"chmod 700 {folder}" in caught.value.fix


FILES = ["identity.pem", "identity.crt", "passphrase"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", *FILES])
def test_a_foreign_owner_is_refused_with_the_cure(folder: Path, name: str) -> None:
    os.chown(folder / name, 54321, -1)
    with pytest.raises(IdentityError, match="another user") as caught:
        load_or_create(folder, use_keychain=False)
    assert f"chown $(id -un) {folder / name}" in caught.value.fix


def test_a_file_that_cannot_even_be_opened_gets_the_same_cure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that is not root meets this: the kernel refuses a foreign file before its owner is checked."""

    def refuse(path: Path, *_: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(IdentityError, match="another user"):
        read_private(folder / "identity.pem")
    monkeypatch.undo()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(IdentityError, match="Permission denied"):
        read_private(folder / "identity.pem")


@pytest.mark.parametrize("name", FILES)
def test_a_symlinked_file_is_refused_with_the_cure(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")
    with pytest.raises(IdentityError, match="symbolic link") as caught:
        load_or_create(folder, use_keychain=False)
    assert "what it points to" in caught.value.fix


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_refused_and_does_not_hang(folder: Path, name: str) -> None:
    for make in (os.mkfifo, os.mkdir):
        (folder / name).rename(folder.parent / "elsewhere")
        make(folder / name, 0o600)
        with pytest.raises(IdentityError, match="not the kind"):
            load_or_create(folder, use_keychain=False)
        (folder / name).rename(folder.parent / f"{name}.{make.__name__}")
        (folder.parent / "elsewhere").rename(folder / name)
    assert load_or_create(folder, use_keychain=False)


def test_a_symlinked_folder_is_refused(folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    (folder.parent / "dangling").symlink_to(folder.parent / "nowhere")
    for name in ("link", "dangling"):
        with pytest.raises(IdentityError, match="symbolic link"):
            load_or_create(folder.parent / name, use_keychain=False)
    assert not (folder.parent / "nowhere").exists()


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "identity").touch(0o600)
    with pytest.raises(IdentityError, match="not the kind"):
        load_or_create(tmp_path / "identity", use_keychain=False)
    with pytest.raises(IdentityError, match="cannot be made"):
        load_or_create(tmp_path / "identity" / "deeper", use_keychain=False)


def test_a_damaged_key_is_refused(folder: Path) -> None:
    (folder / "identity.pem").write_bytes(b"-----BEGIN nothing")
    with pytest.raises(IdentityError, match="damaged"):
        load_or_create(folder, use_keychain=False)


def test_a_certificate_of_another_key_is_refused(folder: Path) -> None:
    (folder / "identity.crt").write_text(ssl.DER_cert_to_PEM_cert(mac(0).certificate_der))
    with pytest.raises(IdentityError, match="does not belong"):
        load_or_create(folder, use_keychain=False)


def test_the_certificate_is_a_self_signed_leaf_that_no_clock_can_break() -> None:
    leaf = x509.load_der_x509_certificate(mac(0).certificate_der)
    assert leaf.subject == leaf.issuer
    assert leaf.subject.rfc4514_string() == f"CN={mac(0).text_id}"
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (leaf.not_valid_before_utc.year, leaf.not_valid_after_utc.year) == (2000, 2099)
    assert certificate_key(mac(0).certificate_der) == mac(0).public


def test_certificate_with_ca_true_is_refused() -> None:
    with pytest.raises(IdentityError, match="is a CA"):
        certificate_key(certificate(Ed25519PrivateKey.generate(), ca=True))


def test_certificate_in_another_name_is_refused() -> None:
    with pytest.raises(IdentityError, match="name"):
        certificate_key(certificate(Ed25519PrivateKey.generate(), name=mac(0).text_id))


def test_certificate_signed_by_another_key_is_refused() -> None:
    with pytest.raises(IdentityError, match="not signed"):
        certificate_key(certificate(Ed25519PrivateKey.generate(), signer=Ed25519PrivateKey.generate()))


@given(st.binary(max_size=64))
def test_bytes_that_are_no_certificate_are_refused(junk: bytes) -> None:
    with pytest.raises(IdentityError):
        certificate_key(junk)


def test_a_certificate_with_one_flipped_bit_is_never_taken() -> None:
    """Every bit is tried, with a signature that ends in zero bits: the parser forgives wrong unused bits there."""
    der = next(c for c in (make_certificate(Ed25519PrivateKey.generate()) for _ in range(1000)) if not c[-1] & 3)
    assert certificate_key(der)
    for bit in range(8 * len(der)):
        damaged = bytearray(der)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((IdentityError, CryptographyDeprecationWarning)):  # the warning is about a negative serial
            certificate_key(bytes(damaged))


@given(st.binary(min_size=16, max_size=16))
def test_text_ids_go_both_ways(device_id: bytes) -> None:
    assert parse_text_id(text_id(device_id)) == device_id


@given(st.text(max_size=30))
def test_only_the_canonical_text_id_is_taken(text: str) -> None:
    with contextlib.suppress(IdentityError):
        assert text_id(parse_text_id(text)) == text


def test_hkdf_agrees_with_rfc_5869_case_1() -> None:
    prk = extract(bytes.fromhex("000102030405060708090a0b0c"), b"\x0b" * 22)
    assert prk.hex() == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"
    okm = expand(prk, bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"), 32)
    assert okm.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"
