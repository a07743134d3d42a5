"""What a Mac knows of its cluster: the rosters on disk, the members' certificates, and how both travel.

A bundle carries them between Macs, little-endian:
newest epoch u64 | its hash 32 | n u16 | n x {length u16, roster} | m u16 | m x {length u16, certificate DER}.
The roster itself, its bytes and its rules are in `core.trust.chain`; everything of it that others need is named here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from core.errors import IdentityError, NotPaired, RosterError
from core.settings import MAX_CONTROL_BODY
from core.trust.chain import (
    COUNT,
    MAX_NAME,
    MAX_ROSTER,
    SUITE,
    Cursor,
    Member,
    Revoked,
    Role,
    Roster,
    Stand,
    accept,
    add,
    decode,
    encode,
    found,
    name_bytes,
    verify,
)
from core.trust.files import private_folder, read_private, write_private
from core.trust.identity import MAX_CERTIFICATE, certificate_key, device_id_of, text_id

__all__ = [
    "MAX_NAME",
    "SUITE",
    "Bundle",
    "Cluster",
    "Member",
    "Revoked",
    "Role",
    "Roster",
    "RosterStore",
    "Stand",
    "accept",
    "add",
    "decode",
    "decode_bundle",
    "encode",
    "encode_bundle",
    "found",
    "member_certificates",
    "name_bytes",
    "verify",
]

_STAND: Final = struct.Struct("<Q32s")


class Bundle(NamedTuple):
    """Rosters and certificates on their way; `stand` is where the sender stands."""

    stand: Stand
    rosters: list[Roster]
    certificates: list[bytes]


def encode_bundle(stand: Stand, rosters: Sequence[bytes], certificates: Iterable[bytes]) -> bytes:
    """The bytes of a bundle (layout in the module docstring)."""
    parts = [_STAND.pack(*stand)]
    for pieces in (list(rosters), list(certificates)):
        parts.append(COUNT.pack(len(pieces)))
        for piece in pieces:
            parts += (COUNT.pack(len(piece)), piece)
    return b"".join(parts)


def decode_bundle(data: bytes) -> Bundle:
    """The parts of a bundle, none of them verified yet. Raises RosterError."""
    if len(data) > MAX_CONTROL_BODY:
        raise RosterError(f"A roster bundle of {len(data)} bytes is longer than {MAX_CONTROL_BODY}.")
    cursor = Cursor(data)
    stand = Stand(*cursor.unpack(_STAND))
    bundle = Bundle(stand, [decode(r) for r in cursor.pieces(MAX_ROSTER)], cursor.pieces(MAX_CERTIFICATE))
    cursor.end()
    return bundle


class Cluster(msgspec.Struct, frozen=True):
    """The roster and the members' certificates (DER, by device id): all that a link needs to judge a peer."""

    roster: Roster
    certificates: Mapping[bytes, bytes]

    def encode(self) -> bytes:
        """Bytes for a pipe to a process of this Mac."""
        return encode_bundle(self.roster.stand, [encode(self.roster)], self.certificates.values())

    @classmethod
    def decode(cls, data: bytes) -> Cluster:
        """The cluster of `encode`'s bytes. Raises RosterError. The chain was verified by the node that sent it."""
        bundle = decode_bundle(data)
        if len(bundle.rosters) != 1:
            raise RosterError("A cluster has one roster.")
        return cls(bundle.rosters[0], member_certificates(bundle.rosters[0], bundle.certificates))


def member_certificates(roster: Roster, certificates: Iterable[bytes]) -> dict[bytes, bytes]:
    """The certificates that belong to members, by device id; those of strangers are left out. Raises RosterError if
    one of them is no valid leaf (CA:TRUE, not self-signed, another kind of key).
    """
    kept = {}
    for certificate in certificates:
        try:
            device_id = device_id_of(certificate_key(certificate))
        except IdentityError as error:
            raise RosterError(f"A roster came with a bad certificate: {error.what}") from error
        if roster.member(device_id):
            kept[device_id] = certificate
    return kept


class RosterStore:
    """The rosters and certificates of this Mac on disk: `<epoch>.roster`, all of them, and `<text id>.der`."""

    def __init__(self, folder: Path) -> None:
        """Read and verify the whole chain. Raises RosterError on damage, a gap or unsafe permissions."""
        private_folder(folder, RosterError)
        self._folder = folder
        self._history: list[Roster] = []
        for path in sorted(folder.glob("*.roster")):
            self._history.append(accept(self.current, decode(read_private(path, RosterError))))
        found = [read_private(path, RosterError) for path in sorted(folder.glob("*.der"))]
        self._certificates = member_certificates(self.current, found) if self.current else {}

    @property
    def current(self) -> Roster | None:
        """The newest roster; None on a Mac that was never paired."""
        return self._history[-1] if self._history else None

    @property
    def certificates(self) -> Mapping[bytes, bytes]:
        """The members' certificates, DER, by device id."""
        return self._certificates

    def cluster(self) -> Cluster:
        """Roster and certificates as one value. Raises NotPaired on a Mac that was never paired."""
        if self.current is None:
            raise NotPaired("This Mac is paired with no other.")
        return Cluster(self.current, dict(self._certificates))

    def bundle(self, since_epoch: int = 0) -> bytes:
        """The rosters after `since_epoch`, as many as fit a control frame, and all certificates.

        Raises NotPaired. Where not all fit, the receiver stands at a lower epoch than the bundle's head says, and the
        next bundle goes on from there.
        """
        cluster = self.cluster()
        certificates = list(cluster.certificates.values())
        room = MAX_CONTROL_BODY - _STAND.size - 2 * COUNT.size - sum(2 + len(c) for c in certificates)
        chosen: list[bytes] = []
        for roster in self._history[since_epoch:]:
            piece = encode(roster)
            room -= 2 + len(piece)
            if room < 0:
                break
            chosen.append(piece)
        return encode_bundle(cluster.roster.stand, chosen, certificates)

    def adopt(self, bundle: bytes) -> bool:
        """Verify a bundle, write it to disk, then use it; whether this Mac stands at a newer epoch now.

        What is known already is passed over. Raises RosterError, and keeps nothing, if any of it breaks a rule.
        """
        offered = decode_bundle(bundle)
        newest, fresh = self.current, list[Roster]()
        for roster in offered.rosters:
            if 1 <= roster.epoch <= len(self._history):
                accept(self._history[roster.epoch - 1], roster)
            elif (following := accept(newest, roster)) is not newest:
                fresh.append(following)
                newest = following
        if newest is None:
            return False
        known = {i: c for i, c in self._certificates.items() if newest.member(i)}
        certificates = member_certificates(newest, offered.certificates) | known
        for device_id in certificates.keys() - known.keys():
            write_private(self._folder / f"{text_id(device_id)}.der", certificates[device_id], RosterError)
        for roster in fresh:
            write_private(self._folder / f"{roster.epoch:08d}.roster", encode(roster), RosterError)
        self._history += fresh
        self._certificates = certificates
        return bool(fresh)
