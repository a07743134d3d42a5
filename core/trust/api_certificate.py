"""Self-signed certificate of the API for addresses beyond this Mac; clients compare its fingerprint or trust its file.

Its key is P-256 and separate from the device key: common clients don't accept Ed25519.
"""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from pathlib import Path
from typing import Final

import psutil
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from core.address import ip_of
from core.errors import TrustError
from core.mac.interfaces import ANYWHERE
from core.mac.system_command import answered
from core.trust.identity import key_pem, self_signed
from core.trust.private_files import private_folder, read_private, write_private

_ADDRESSES: Final = (socket.AF_INET, socket.AF_INET6)


def own_names() -> frozenset[str]:
    name = socket.gethostname().lower().removesuffix(".local")
    return frozenset({"localhost", name, f"{name}.local"})


def server_context(folder: Path, secret: bytes, host: str) -> tuple[ssl.SSLContext, str]:
    """TLS context for `host` and its certificate's SHA-256 (hex); both are made if missing. Raises TrustError."""
    private_folder(folder, TrustError)
    key_path, certificate_path = folder / "api.pem", folder / "api.crt"
    if not os.path.lexists(key_path) or not _names(certificate_path, host):
        _make(key_path, certificate_path, secret, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate_path, key_path, secret.hex())
    except (ssl.SSLError, OSError) as error:
        what = f"The certificate of the API in {folder} cannot be used: {error}."
        raise TrustError(what, "Remove that folder: another one is made.") from error
    der = ssl.PEM_cert_to_DER_cert(read_private(certificate_path, TrustError).decode("ascii"))
    return context, hashlib.sha256(der).hexdigest()


def _names(path: Path, host: str) -> bool:
    if not os.path.lexists(path):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(read_private(path, TrustError))
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    return host in ANYWHERE or _name_of(host) in named


def _make(key_path: Path, certificate_path: Path, secret: bytes, host: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        found = [*answered(psutil.net_if_addrs()).values()]
    except OSError:  # its names and `host` are enough
        found = []
    addresses = {each.address.partition("%")[0] for card in found for each in card if each.family in _ADDRESSES}
    names = sorted((addresses | own_names() | {host}).difference(ANYWHERE))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "macluster API")])
    certificate = (
        self_signed(key, name, x509.random_serial_number())
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_name_of(each) for each in names]), critical=False)
        .sign(key, SHA256())
    )
    write_private(key_path, key_pem(key, secret.hex().encode()), TrustError)
    write_private(certificate_path, certificate.public_bytes(Encoding.PEM), TrustError)


def _name_of(host: str) -> x509.GeneralName:
    return x509.IPAddress(address) if (address := ip_of(host)) else x509.DNSName(host)
