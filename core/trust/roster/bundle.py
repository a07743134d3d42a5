"""How rosters and certificates travel between Macs, and to the worker.

Little-endian: newest epoch u64 | its hash 32 | k u16 | k x {epoch u64, hash 32} | n u16 | n x {length u16, roster}
| m u16 | m x {length u16, certificate DER}.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import IdentityError, RosterError
from core.settings import MAX_CONTROL_BODY
from core.trust.identity import MAX_CERTIFICATE, certificate_key, device_id_of
from core.trust.roster.format import COUNT, MAX_ROSTER, Cursor, Roster, Stand, decode, encode

STAND: Final = struct.Struct("<Q32s")
MAX_POINTS: Final = 80  # a history of 2^64 epochs needs 65 (`core.trust.roster.forks.points`)


class Bundle(NamedTuple):
    """Rosters and certificates in transit; `stand` is the sender's position, `points` some rosters that it has."""

    stand: Stand
    rosters: list[bytes]  # encoded: a newer macluster may write another format
    certificates: list[bytes]
    points: list[Stand]


def encode_bundle(
    stand: Stand, rosters: Sequence[bytes], certificates: Iterable[bytes], points: Sequence[Stand] = ()
) -> bytes:
    parts = [STAND.pack(*stand), COUNT.pack(len(points)), *(STAND.pack(*point) for point in points)]
    for pieces in (list(rosters), list(certificates)):
        parts.append(COUNT.pack(len(pieces)))
        for piece in pieces:
            parts += (COUNT.pack(len(piece)), piece)
    return b"".join(parts)


def decode_bundle(data: bytes) -> Bundle:
    """Decode a bundle without verifying its parts. Raises RosterError."""
    if len(data) > MAX_CONTROL_BODY:
        raise RosterError(f"A roster bundle of {len(data)} bytes is longer than {MAX_CONTROL_BODY}.")
    cursor = Cursor(data)
    stand, (count,) = Stand(*cursor.unpack(STAND)), cursor.unpack(COUNT)
    if count > MAX_POINTS:
        raise RosterError(f"A roster bundle lists {count} rosters that its sender has; {MAX_POINTS} are allowed.")
    points = [Stand(*cursor.unpack(STAND)) for _ in range(count)]
    bundle = Bundle(stand, cursor.pieces(MAX_ROSTER), cursor.pieces(MAX_CERTIFICATE), points)
    cursor.end()
    return bundle


class Cluster(msgspec.Struct, frozen=True):
    """The roster and the members' certificates (DER, by device id): all that a link needs to check a peer."""

    roster: Roster
    certificates: Mapping[bytes, bytes]

    def encode(self) -> bytes:
        return encode_bundle(self.roster.stand, [encode(self.roster)], self.certificates.values())

    @classmethod
    def decode(cls, data: bytes) -> Cluster:
        """Decode `encode`'s bytes; the sending node has verified the chain. Raises RosterError."""
        bundle = decode_bundle(data)
        if len(bundle.rosters) != 1:
            raise RosterError("A cluster has one roster.")
        roster = decode(bundle.rosters[0])
        return cls(roster, member_certificates(roster, bundle.certificates))


def member_certificates(roster: Roster, certificates: Iterable[bytes]) -> dict[bytes, bytes]:
    """Certificates of members by device id; strangers' are dropped. Raises RosterError for an invalid one."""
    kept = {}
    for certificate in certificates:
        try:
            device_id = device_id_of(certificate_key(certificate))
        except IdentityError as error:
            raise RosterError(f"A roster came with a bad certificate: {error.what}") from error
        if roster.member(device_id):
            kept[device_id] = certificate
    return kept
