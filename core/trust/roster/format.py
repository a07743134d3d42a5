"""The roster: the cluster's members as a signed, hash-chained list with an epoch (security.md §3). Uses no clock.

Pure, bytes to values. Rules for the next roster: `core.trust.roster.acceptance`; changes: `changes`; disk: `store`.

Bytes, little-endian:
"MCR1" | cluster_id 16 | epoch u64 | prev_hash 32 | suite u8 | min_ver u8 | n u16
| n x {device_id 16, key 32, role u8, level u8, added_epoch u64, name length u8, name}
| m u16 | m x {device_id 16, epoch u64} | signer_id 16 | signature 64 over "macluster/1 roster\\0" and all before it.
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from core.errors import OtherRoster, RosterError
from core.events import Level
from core.text import NAME_BYTES, Clean, clean_name
from core.trust.identity import device_id_of, is_signed, text_id
from core.trust.levels import LEVELS, rank

SUITE: Final = 1
MIN_VERSION: Final = 1
MAX_MEMBERS: Final = 64
MAX_ROSTER: Final = 16 * 1024
NO_HASH: Final = bytes(32)

_PURPOSE: Final = b"macluster/1 roster\0"
_HEAD: Final = struct.Struct("<4s16sQ32sBBH")
_MEMBER: Final = struct.Struct("<16s32sBBQB")
_REVOKED: Final = struct.Struct("<16sQ")
COUNT: Final = struct.Struct("<H")


class Role(IntEnum):
    """Role of an entry: a Mac, a Mac that may sign the next roster, or the recovery key."""

    MEMBER = 0
    ADMIN = 1
    RECOVERY = 2


class Member(msgspec.Struct, frozen=True):
    """An entry: a Mac of the cluster, or its recovery key. `raw_name` is signed as received; show only `name`."""

    device_id: bytes
    public: bytes
    role: Role
    level: Level
    added_epoch: int
    raw_name: bytes

    @property
    def name(self) -> Clean:
        return clean_name(self.raw_name) or Clean(text_id(self.device_id)[:8])

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN


def new_member(public: bytes, raw_name: bytes, epoch: int, role: Role = Role.MEMBER, level: Level = "paired") -> Member:
    return Member(device_id_of(public), public, role, level, epoch, raw_name)


class Revoked(msgspec.Struct, frozen=True):
    """A revoked Mac and the epoch that revoked it; its key can't return."""

    device_id: bytes
    epoch: int


class Stand(NamedTuple):
    """Position in the roster's history."""

    epoch: int
    hash: bytes


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of the cluster. `members` is what is signed; `macs` and `recovery` separate Macs and recovery key."""

    cluster_id: bytes
    epoch: int
    prev_hash: bytes
    members: tuple[Member, ...]
    revoked: tuple[Revoked, ...] = ()
    signer_id: bytes
    sig: bytes = b""
    suite: int = SUITE
    min_ver: int = MIN_VERSION

    @property
    def hash(self) -> bytes:
        return hashlib.sha256(encode(self)).digest()

    @property
    def stand(self) -> Stand:
        return Stand(self.epoch, self.hash)

    @property
    def macs(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.role is not Role.RECOVERY)

    @property
    def admins(self) -> tuple[Member, ...]:
        return tuple(m for m in self.members if m.is_admin)

    @property
    def recovery(self) -> Member | None:
        return next((m for m in self.members if m.role is Role.RECOVERY), None)

    def member(self, device_id: bytes) -> Member | None:
        return next((m for m in self.macs if m.device_id == device_id), None)

    def admin(self, device_id: bytes) -> Member | None:
        return next((m for m in self.admins if m.device_id == device_id), None)

    def revocation(self, device_id: bytes) -> Revoked | None:
        return next((r for r in self.revoked if r.device_id == device_id), None)


def encode(roster: Roster) -> bytes:
    return _unsigned(roster) + roster.sig


def words(roster: Roster) -> bytes:
    """Bytes covered by a roster's signature: its prefix, and every byte before the signature."""
    return _PURPOSE + _unsigned(roster)


def _unsigned(roster: Roster) -> bytes:
    head = (roster.cluster_id, roster.epoch, roster.prev_hash, roster.suite, roster.min_ver, len(roster.members))
    parts = [_HEAD.pack(b"MCR1", *head)]
    for m in roster.members:
        parts.append(_MEMBER.pack(m.device_id, m.public, m.role, rank(m.level), m.added_epoch, len(m.raw_name)))
        parts.append(m.raw_name)
    parts.append(COUNT.pack(len(roster.revoked)))
    parts.extend(_REVOKED.pack(r.device_id, r.epoch) for r in roster.revoked)
    return b"".join(parts) + roster.signer_id


class Cursor:
    """Reads forward through bytes. Raises RosterError if they end too soon or too late."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        piece = self._data[self._at : self._at + length]
        if len(piece) != length:
            raise RosterError("A roster ends too soon.")
        self._at += length
        return piece

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def pieces(self, longest: int) -> list[bytes]:
        found = []
        for _ in range(self.unpack(COUNT)[0]):
            (length,) = self.unpack(COUNT)
            if length > longest:
                raise RosterError(f"A piece of a roster bundle has {length} bytes; {longest} are allowed.")
            found.append(self.take(length))
        return found

    def end(self) -> None:
        if self._at != len(self._data):
            raise RosterError("A roster has bytes after its end.")


def decode(data: bytes) -> Roster:
    """Decode a roster without checking its signature. Raises RosterError, OtherRoster."""
    if len(data) > MAX_ROSTER:
        raise RosterError(f"A roster of {len(data)} bytes is longer than {MAX_ROSTER}.")
    cursor = Cursor(data)
    magic, cluster_id, epoch, prev_hash, suite, min_ver, count = cursor.unpack(_HEAD)
    if magic != b"MCR1":
        raise OtherRoster("This is not a roster of version 1.", "Run the same version of macluster on every Mac.")
    if count > MAX_MEMBERS:
        raise RosterError(f"A roster lists {count} members; {MAX_MEMBERS} are allowed.")
    members = tuple(_decode_member(cursor) for _ in range(count))
    (gone,) = cursor.unpack(COUNT)
    revoked = tuple(Revoked(*cursor.unpack(_REVOKED)) for _ in range(gone))
    roster = Roster(
        cluster_id=cluster_id,
        epoch=epoch,
        prev_hash=prev_hash,
        suite=suite,
        min_ver=min_ver,
        members=members,
        revoked=revoked,
        signer_id=cursor.take(16),
        sig=cursor.take(64),
    )
    cursor.end()
    return roster


def _decode_member(cursor: Cursor) -> Member:
    device_id, public, role, level, added_epoch, length = cursor.unpack(_MEMBER)
    if role not in set(Role) or level >= len(LEVELS) or length > NAME_BYTES:
        raise RosterError("A roster gives a Mac a role, a level or a name that does not exist.")
    return Member(device_id, public, Role(role), LEVELS[level], added_epoch, cursor.take(length))


def verify(roster: Roster, public: bytes) -> None:
    if not is_signed(public, roster.sig, words(roster)):
        raise RosterError(f"The roster of epoch {roster.epoch} is not signed by the Mac it names.")
