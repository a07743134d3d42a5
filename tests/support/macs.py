"""Macs for the tests of trust and links: real identities, made once per run, and clusters of them."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from core.events import Level
from core.trust.identity import Identity, device_id_of, load_or_create, text_id
from core.trust.roster.bundle import Cluster, encode_bundle
from core.trust.roster.changes import Signer, add, found
from core.trust.roster.format import Member, Role, Roster, encode

CLUSTER_ID = b"C" * 16


@cache
def _home() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="macs-")


@cache
def mac(number: int) -> Identity:
    return load_or_create(Path(_home().name) / str(number), use_keychain=False)


def member_of(identity: Identity, epoch: int, role: Role = Role.MEMBER, level: Level = "paired") -> Member:
    return Member(
        device_id=identity.device_id,
        public=identity.public,
        role=role,
        level=level,
        added_epoch=epoch,
        raw_name=f"mac {identity.text_id[:4]}".encode(),
    )


@cache
def chain(length: int, cluster_id: bytes = CLUSTER_ID) -> tuple[Roster, ...]:
    """Rosters of epoch 1 to `length`: mac 0 founds, then adds mac 1, mac 2 and so on."""
    rosters = [found(mac(0), "founder", cluster_id)]
    for number in range(1, length):
        rosters.append(add(rosters[-1], mac(0), member_of(mac(number), number + 1)))
    return tuple(rosters)


def signed(roster: Roster, identity: Signer, **changes: object) -> Roster:
    """A successor of `roster` with `changes`, validly signed by `identity`, even against the rules."""
    fields = {"epoch": roster.epoch + 1, "prev_hash": roster.hash, "signer_id": identity.device_id, **changes}
    unsigned = msgspec.structs.replace(roster, sig=b"", **fields)
    return msgspec.structs.replace(unsigned, sig=identity.sign(b"macluster/1 roster\0" + encode(unsigned)))


def cluster(size: int = 2, cluster_id: bytes = CLUSTER_ID) -> Cluster:
    roster = chain(size, cluster_id)[-1]
    return Cluster(roster, {mac(n).device_id: mac(n).certificate_der for n in range(size)})


def bundle(rosters: tuple[Roster, ...], *certificates: bytes) -> bytes:
    return encode_bundle(rosters[-1].stand, [encode(r) for r in rosters], certificates)


def certificate(
    key: Ed25519PrivateKey,
    *,
    ca: bool = False,
    name: str = "",
    issuer: str = "",
    signer: Ed25519PrivateKey | None = None,
) -> bytes:
    """A certificate of `key` that breaks the rules as asked."""
    own = text_id(device_id_of(key.public_key().public_bytes_raw()))
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name or own)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer or name or own)]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(datetime(2000, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2099, 12, 31, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .sign(signer or key, None)
        .public_bytes(Encoding.DER)
    )
