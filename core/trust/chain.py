"""Who belongs to the cluster: a signed, hash-chained, epoch-numbered list (security.md §3). No clock decides anything.

Pure: bytes to values, and the rule which roster may follow which. What a Mac keeps of it is in `core.trust.roster`.

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

from core.errors import RosterError
from core.events import Level
from core.text import Clean, clean_name
from core.trust.identity import Identity, device_id_of, is_signed, text_id
from core.trust.levels import LEVELS, rank

SUITE: Final = 1
MIN_VERSION: Final = 1
MAX_MEMBERS: Final = 64
MAX_ROSTER: Final = 16 * 1024
MAX_NAME: Final = 32
NO_HASH: Final = bytes(32)

_PURPOSE: Final = b"macluster/1 roster\0"
_HEAD: Final = struct.Struct("<4s16sQ32sBBH")
_MEMBER: Final = struct.Struct("<16s32sBBQB")
_REVOKED: Final = struct.Struct("<16sQ")
COUNT: Final = struct.Struct("<H")


class Role(IntEnum):
    """What a member may do: admins sign the next roster."""

    MEMBER = 0
    ADMIN = 1


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One Mac of the cluster. `raw_name` is signed as it came; show only `name`."""

    device_id: bytes
    public: bytes
    role: Role
    level: Level
    added_epoch: int
    raw_name: bytes

    @property
    def name(self) -> Clean:
        """The name, fit to be shown; the short id where nothing of it is left."""
        return clean_name(self.raw_name) or Clean(text_id(self.device_id)[:8])

    @property
    def is_admin(self) -> bool:
        """Whether this Mac may sign the next roster."""
        return self.role is Role.ADMIN


class Revoked(msgspec.Struct, frozen=True):
    """A Mac that was put out, and the epoch that did it. It can never come back with that key."""

    device_id: bytes
    epoch: int


class Stand(NamedTuple):
    """Which roster a Mac stands at."""

    epoch: int
    hash: bytes


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch of the cluster."""

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
        """SHA-256 over the whole encoding, signature included."""
        return hashlib.sha256(encode(self)).digest()

    @property
    def stand(self) -> Stand:
        """Epoch and hash."""
        return Stand(self.epoch, self.hash)

    def member(self, device_id: bytes) -> Member | None:
        """The member of that id, if there is one."""
        return next((m for m in self.members if m.device_id == device_id), None)


def encode(roster: Roster) -> bytes:
    """The signed bytes of a roster."""
    return _unsigned(roster) + roster.sig


def _unsigned(roster: Roster) -> bytes:
    parts = [
        _HEAD.pack(
            b"MCR1",
            roster.cluster_id,
            roster.epoch,
            roster.prev_hash,
            roster.suite,
            roster.min_ver,
            len(roster.members),
        )
    ]
    for m in roster.members:
        parts.append(_MEMBER.pack(m.device_id, m.public, m.role, rank(m.level), m.added_epoch, len(m.raw_name)))
        parts.append(m.raw_name)
    parts.append(COUNT.pack(len(roster.revoked)))
    parts.extend(_REVOKED.pack(r.device_id, r.epoch) for r in roster.revoked)
    return b"".join(parts) + roster.signer_id


class Cursor:
    """Reads forward through bytes. Raises RosterError where they end too soon or too late."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, length: int) -> bytes:
        """The next `length` bytes."""
        piece = self._data[self._at : self._at + length]
        if len(piece) != length:
            raise RosterError("A roster ends too soon.")
        self._at += length
        return piece

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The fields of the next `layout.size` bytes."""
        return layout.unpack(self.take(layout.size))

    def pieces(self, longest: int) -> list[bytes]:
        """A counted list of byte strings, each with its length before it."""
        found = []
        for _ in range(self.unpack(COUNT)[0]):
            (length,) = self.unpack(COUNT)
            if length > longest:
                raise RosterError(f"A piece of a roster bundle has {length} bytes; {longest} are allowed.")
            found.append(self.take(length))
        return found

    def end(self) -> None:
        """Check that nothing is left."""
        if self._at != len(self._data):
            raise RosterError("A roster has bytes after its end.")


def decode(data: bytes) -> Roster:
    """The roster of `data`: well-formed, but its signature is not looked at yet. Raises RosterError."""
    if len(data) > MAX_ROSTER:
        raise RosterError(f"A roster of {len(data)} bytes is longer than {MAX_ROSTER}.")
    cursor = Cursor(data)
    magic, cluster_id, epoch, prev_hash, suite, min_ver, count = cursor.unpack(_HEAD)
    if magic != b"MCR1":
        raise RosterError("These bytes are no roster of version 1.", "Run the same version of macluster on every Mac.")
    if count > MAX_MEMBERS:
        raise RosterError(f"A roster lists {count} Macs; {MAX_MEMBERS} are allowed.")
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
    if role not in set(Role) or level >= len(LEVELS) or length > MAX_NAME:
        raise RosterError("A roster gives a Mac a role, a level or a name that does not exist.")
    return Member(
        device_id=device_id,
        public=public,
        role=Role(role),
        level=LEVELS[level],
        added_epoch=added_epoch,
        raw_name=cursor.take(length),
    )


def verify(roster: Roster, public: bytes) -> None:
    """Check the signature by the key `public`. Raises RosterError."""
    if not is_signed(public, roster.sig, _PURPOSE + _unsigned(roster)):
        raise RosterError(f"The roster of epoch {roster.epoch} is not signed by the Mac it names.")


def name_bytes(name: str) -> bytes:
    """A Mac's name as it is signed: UTF-8, cut to 32 bytes between two characters."""
    return name.encode("utf-8", "ignore")[:MAX_NAME].decode("utf-8", "ignore").encode()


def found(identity: Identity, name: str, cluster_id: bytes) -> Roster:
    """The first roster: this Mac alone, as admin. `cluster_id` is 16 random bytes."""
    founder = Member(
        device_id=identity.device_id,
        public=identity.public,
        role=Role.ADMIN,
        level="paired",
        added_epoch=1,
        raw_name=name_bytes(name),
    )
    first = Roster(cluster_id=cluster_id, epoch=1, prev_hash=NO_HASH, members=(founder,), signer_id=identity.device_id)
    return accept(None, _sign(first, identity))


def add(roster: Roster, identity: Identity, member: Member) -> Roster:
    """The next epoch, with `member` in it. Raises RosterError if this Mac may not, or the rules forbid that member."""
    return accept(roster, _sign(_next(roster, identity, (*roster.members, member)), identity))


def _next(roster: Roster, identity: Identity, members: tuple[Member, ...]) -> Roster:
    return msgspec.structs.replace(
        roster, epoch=roster.epoch + 1, prev_hash=roster.hash, members=members, signer_id=identity.device_id
    )


def _sign(roster: Roster, identity: Identity) -> Roster:
    return msgspec.structs.replace(roster, sig=identity.sign(_PURPOSE + _unsigned(roster)))


def accept(current: Roster | None, offered: Roster) -> Roster:
    """`offered` if it may follow `current`, or is it. Raises RosterError on anything else: rollback, fork, gap, another
    cluster, a signer who is no admin of `current`, a revoked key, too many bytes.
    """
    _check_shape(offered)
    if current is None:
        if offered.epoch != 1 or offered.prev_hash != NO_HASH:
            raise RosterError("A chain of rosters begins with epoch 1.", "Ask an admin's Mac for the whole chain.")
        _check_signer(offered, offered)
        return offered
    if offered == current:
        return current
    _check_succession(current, offered)
    _check_signer(current, offered)
    return offered


def _check_shape(roster: Roster) -> None:
    ids = [m.device_id for m in roster.members]
    if len(encode(roster)) > MAX_ROSTER or not 1 <= len(ids) <= MAX_MEMBERS:
        raise RosterError(f"A roster has at most {MAX_MEMBERS} Macs and {MAX_ROSTER} bytes, and at least one Mac.")
    if (roster.suite, roster.min_ver) != (SUITE, MIN_VERSION):
        what = f"The roster asks for suite {roster.suite} and version {roster.min_ver}; this Mac has 1 and 1."
        raise RosterError(what, "Update macluster on this Mac.")
    if len(set(ids)) != len(ids) or any(device_id_of(m.public) != m.device_id for m in roster.members):
        raise RosterError("A roster lists a Mac twice, or under an id that is not its key's.")
    if {r.device_id for r in roster.revoked} & set(ids):
        raise RosterError(
            "A roster lists a Mac that was revoked.", "That Mac needs a new key before it is paired again."
        )
    if any(m.added_epoch > roster.epoch for m in roster.members) or not any(m.is_admin for m in roster.members):
        raise RosterError("A roster has no admin, or a Mac that was added in the future.")


def _check_succession(current: Roster, offered: Roster) -> None:
    if offered.cluster_id != current.cluster_id:
        raise RosterError("A roster of another cluster was offered.", "A Mac belongs to one cluster at a time.")
    if offered.epoch < current.epoch:
        raise RosterError(f"Rollback: epoch {offered.epoch} was offered, this Mac has {current.epoch}.")
    if offered.epoch > current.epoch + 1:
        raise RosterError(
            f"Gap: epoch {offered.epoch} was offered, this Mac has {current.epoch}.", "Ask for all rosters."
        )
    if offered.epoch == current.epoch or offered.prev_hash != current.hash:
        what = f"Fork: two different histories lead to epoch {offered.epoch}."
        raise RosterError(
            what, "Two admins changed the roster at once: decide which Mac is right, and re-pair the others."
        )
    if not set(current.revoked) <= set(offered.revoked):
        raise RosterError(f"The roster of epoch {offered.epoch} forgets a revoked Mac.")


def _check_signer(before: Roster, offered: Roster) -> None:
    signer = before.member(offered.signer_id)
    if signer is None or not signer.is_admin:
        raise RosterError(f"The roster of epoch {offered.epoch} is signed by a Mac that is no admin.")
    verify(offered, signer.public)
