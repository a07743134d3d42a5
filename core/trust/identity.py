"""The device key: created at the first start, stored encrypted; it alone identifies this Mac.

Folder (0700, files 0600): `identity.pem` (the folder's format, then Ed25519, encrypted PKCS#8), `identity.crt`
(self-signed leaf) and, without a keychain, `passphrase`. During a rotation the next key is stored as `identity-next`
(`core.trust.roster.key_rotation`).
The passphrase outlives every key, since files sealed on this Mac depend on it. See security.md §2.3.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from core.errors import IdentityError
from core.settings import Home
from core.trust.file_formats import check_not_newer
from core.trust.private_files import move, private_folder, read_private, write_private

Storage = Literal["keychain", "file permissions"]

CURRENT: Final = "identity"
NEXT: Final = "identity-next"
MAX_CERTIFICATE: Final = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """Key and certificate of this Mac."""

    public: bytes
    device_id: bytes
    text_id: str
    certificate_der: bytes
    certificate_path: Path
    key_path: Path
    storage: Storage
    # 64 hex characters; opens `key_path`. May cross a pipe to the worker, never a command line or environment
    passphrase: bytes = field(repr=False)
    _key: Ed25519PrivateKey = field(repr=False)

    def sign(self, data: bytes) -> bytes:
        """Ed25519 signature, 64 bytes. `data` starts with a prefix for its use, so that no signature fits two uses."""
        return self._key.sign(data)

    def secret(self, label: str) -> bytes:
        """32 bytes for sealing files, one key per label: HKDF-SHA256 over the passphrase, unchanged by a rotation."""
        master = extract(b"macluster/1 master", self.passphrase)
        return expand(master, b"macluster/1 secret " + label.encode())


def load_or_create(
    folder: Path, *, use_keychain: bool = sys.platform == "darwin", on_wait: Callable[[bool], None] = lambda _: None
) -> Identity:
    """The identity in `folder`, created if missing. Raises IdentityError if it can't be used safely."""
    private_folder(folder)
    check_not_newer(folder / "identity.pem", Home.identity.format, IdentityError)
    if not os.path.lexists(folder / "identity.pem"):
        _create(folder, use_keychain, on_wait)
    return open_identity(folder, _find_passphrase(folder, on_wait))


def open_identity(folder: Path, passphrase: bytes) -> Identity:
    private_folder(folder)
    _complete_swap(folder)
    return open_pair(folder, CURRENT, passphrase)


def open_pair(folder: Path, stem: str, passphrase: bytes) -> Identity:
    key_path, certificate_path = folder / f"{stem}.pem", folder / f"{stem}.crt"
    key = read_key(key_path, passphrase)
    public = key.public_key().public_bytes_raw()
    certificate = read_certificate(certificate_path)
    if certificate_key(certificate) != public:
        raise IdentityError(f"{certificate_path} does not belong to {key_path.name}.", _cure(folder))
    device_id = device_id_of(public)
    return Identity(
        public=public,
        device_id=device_id,
        text_id=text_id(device_id),
        certificate_der=certificate,
        certificate_path=certificate_path,
        key_path=key_path,
        storage="file permissions" if os.path.lexists(folder / "passphrase") else "keychain",
        passphrase=passphrase,
        _key=key,
    )


def read_key(path: Path, passphrase: bytes) -> Ed25519PrivateKey:
    try:
        key = serialization.load_pem_private_key(read_private(path), passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{path} is damaged, or its passphrase is another one.", _cure(path.parent)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"{path} holds no Ed25519 key.", _cure(path.parent))
    return key


def write_key(path: Path, key: Ed25519PrivateKey, passphrase: bytes) -> None:
    write_private(path, b"Format: %d\n" % Home.identity.format + key_pem(key, passphrase))


def key_pem(key: Ed25519PrivateKey | EllipticCurvePrivateKey, passphrase: bytes) -> bytes:
    lock = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)


def write_certificate(path: Path, key: Ed25519PrivateKey) -> None:
    write_private(path, ssl.DER_cert_to_PEM_cert(make_certificate(key)).encode())


def device_id_of(public: bytes) -> bytes:
    return hashlib.sha256(b"macluster/1 device\0" + public).digest()[:16]


def text_id(device_id: bytes) -> str:
    return base64.b32encode(device_id).decode().rstrip("=").lower()


def parse_text_id(text: str) -> bytes:
    """Parse a text id in its one canonical spelling. Raises IdentityError."""
    try:
        device_id = base64.b32decode(text.upper().encode() + b"======")
    except ValueError as error:
        raise IdentityError("A device id has 26 characters of a-z and 2-7.") from error
    if text_id(device_id) != text or len(device_id) != 16:
        raise IdentityError("A device id has 26 characters of a-z and 2-7.")
    return device_id


def is_text_id(text: str) -> bool:
    try:
        parse_text_id(text)
    except IdentityError:
        return False
    return True


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def extract(salt: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt, secret, "sha256")


def expand(prk: bytes, info: bytes, length: int = 32) -> bytes:
    assert length <= 32
    return hmac.digest(prk, info + b"\x01", "sha256")[:length]


def certificate_key(der: bytes) -> bytes:
    """Ed25519 key of a Mac's certificate: a self-signed leaf named after that key, CA:FALSE.

    Raises IdentityError on anything else; a certificate with CA:TRUE could sign identities (security.md §2.2).
    """
    if len(der) > MAX_CERTIFICATE:
        raise IdentityError(f"A certificate of {len(der)} bytes is longer than {MAX_CERTIFICATE}.")
    try:
        certificate = x509.load_der_x509_certificate(der)
        key = certificate.public_key()
        certificate.verify_directly_issued_by(certificate)
        limits = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
        raise IdentityError("A certificate is damaged or not signed by its own key.") from error
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.InvalidVersion) as error:
        raise IdentityError("A certificate does not say that it is not a CA.") from error
    if limits.ca:
        raise IdentityError("A certificate says that it is a CA: it could mint identities.")
    if not isinstance(key, Ed25519PublicKey):
        raise IdentityError("A certificate holds no Ed25519 key.")
    if not der.endswith(b"\x03\x41\x00" + certificate.signature):
        # The parser forgives a wrong count of unused bits here, the one place that the signature does not cover.
        raise IdentityError("A certificate is not in canonical form.")
    public = key.public_bytes_raw()
    if certificate.subject != _subject(public):
        raise IdentityError("A certificate is not in the name of its own key.")
    return public


def make_certificate(key: Ed25519PrivateKey) -> bytes:
    """Self-signed leaf of `key`, DER, deterministic."""
    public = key.public_key().public_bytes_raw()
    leaf = self_signed(key, _subject(public), int.from_bytes(device_id_of(public)) | 1)
    return leaf.sign(key, None).public_bytes(serialization.Encoding.DER)


def self_signed(
    key: Ed25519PrivateKey | EllipticCurvePrivateKey, name: x509.Name, serial: int
) -> x509.CertificateBuilder:
    """A leaf named `name`, CA:FALSE, for `key` to sign. Valid from 2000 to 2099, so no clock matters."""
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2099, 12, 31, 23, 59, 59, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )


def _subject(public: bytes) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text_id(device_id_of(public)))])


def read_certificate(path: Path) -> bytes:
    try:
        return ssl.PEM_cert_to_DER_cert(read_private(path).decode("ascii"))
    except ValueError as error:
        raise IdentityError(f"{path} is damaged.", "Put it back from a backup.") from error


def _create(folder: Path, use_keychain: bool, on_wait: Callable[[bool], None]) -> None:
    """Create the identity; the key file is written last, so everything it needs exists before it."""
    key = Ed25519PrivateKey.generate()
    passphrase = secrets.token_hex(32).encode()
    for stale in (f"{NEXT}.pem", f"{NEXT}.crt"):  # of a key that is gone: no passphrase opens them any more
        (folder / stale).unlink(missing_ok=True)
    if use_keychain and to_keychain(key, passphrase, on_wait):
        (folder / "passphrase").unlink(missing_ok=True)
    else:
        write_private(folder / "passphrase", passphrase)
    write_certificate(folder / "identity.crt", key)
    write_key(folder / "identity.pem", key, passphrase)


def _find_passphrase(folder: Path, on_wait: Callable[[bool], None]) -> bytes:
    if os.path.lexists(folder / "passphrase"):
        return read_private(folder / "passphrase")
    from core.trust import keychain

    name = text_id(device_id_of(certificate_key(read_certificate(folder / "identity.crt"))))
    return keychain.recall(name, on_wait)


def to_keychain(key: Ed25519PrivateKey, passphrase: bytes, on_wait: Callable[[bool], None] = lambda _: None) -> bool:
    from core.trust import keychain

    return keychain.keep(text_id(device_id_of(key.public_key().public_bytes_raw())), passphrase, on_wait)


def _complete_swap(folder: Path) -> None:
    """Finish a rotation that crashed between moving the key and its certificate: only the next certificate is left
    then, since preparation writes the key first.
    """
    if os.path.lexists(folder / f"{NEXT}.crt") and not os.path.lexists(folder / f"{NEXT}.pem"):
        try:
            move(folder / f"{NEXT}.crt", folder / "identity.crt")
        except FileNotFoundError:
            return  # node and worker open the folder at the same time, and the other one was faster
        except OSError as error:
            raise IdentityError(f"{folder} cannot be written: {error.strerror}.", "Make it writable.") from error


def _cure(folder: Path) -> str:
    return f"Put back {folder} from a backup, or remove it: this Mac then gets a new key and must be paired again."
