"""Changes to a roster: each function returns the next signed epoch, checked with `accept`, so other Macs will take it.
All are pure and raise RosterError.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from core.errors import RosterError, UsageError
from core.text import clean_name, name_bytes
from core.trust.identity import Identity, device_id_of, text_id
from core.trust.roster.acceptance import accept
from core.trust.roster.format import NO_HASH, Member, Revoked, Role, Roster, new_member, words
from core.trust.roster.key_rotation import Rotation, check_rotation
from core.trust.roster.recovery_key import RecoveryKey, as_member, check_recovery_key

Signer = Identity | RecoveryKey


def found(identity: Identity, name: str, cluster_id: bytes) -> Roster:
    """First roster: this Mac alone, as admin. `cluster_id` is 16 random bytes."""
    founder = new_member(identity.public, name_bytes(name), 1, Role.ADMIN)
    first = Roster(cluster_id=cluster_id, epoch=1, prev_hash=NO_HASH, members=(founder,), signer_id=identity.device_id)
    return accept(None, _sign(first, identity))


def add(roster: Roster, identity: Identity, member: Member) -> Roster:
    _check_admin(roster, identity)
    return _next(roster, identity, (*roster.members, member))


def promote(roster: Roster, identity: Identity, device_id: bytes) -> Roster:
    if _mac(roster, device_id).is_admin:
        raise RosterError(f"{_mac(roster, device_id).name} is an admin already.")
    return _alter(roster, identity, device_id, role=Role.ADMIN)


def demote(roster: Roster, identity: Identity, device_id: bytes) -> Roster:
    if not _mac(roster, device_id).is_admin:
        raise RosterError(f"{_mac(roster, device_id).name} is not an admin.")
    _check_not_last(roster, device_id)
    return _alter(roster, identity, device_id, role=Role.MEMBER)


def rename(roster: Roster, identity: Identity, device_id: bytes, name: str) -> Roster:
    """Rename a Mac; the name is cut to 32 bytes. Raises UsageError if nothing of it can be shown."""
    clean = clean_name(name)
    if clean is None:
        raise UsageError("A Mac's name needs a letter, a number or a sign.", "Choose another name.")
    return _alter(roster, identity, device_id, raw_name=name_bytes(clean))


def revoke(roster: Roster, identity: Identity, device_id: bytes) -> Roster:
    """Remove a Mac for good. An admin may revoke itself, unless it is the only one."""
    _check_admin(roster, identity)
    _mac(roster, device_id)
    _check_not_last(roster, device_id)
    return _next(roster, identity, (m for m in roster.members if m.device_id != device_id))


def rotate(roster: Roster, identity: Identity, rotation: Rotation) -> Roster:
    """Replace a Mac's key and revoke the old one. `identity` is an admin, possibly the same Mac with its old key."""
    _check_admin(roster, identity)
    check_rotation(roster, rotation)
    fresh = {"device_id": device_id_of(rotation.public), "public": rotation.public, "added_epoch": roster.epoch + 1}
    return _next(roster, identity, _altered(roster, rotation.old_id, **fresh))


def set_recovery(roster: Roster, identity: Identity, public: bytes) -> Roster:
    _check_admin(roster, identity)
    return _next(roster, identity, (*roster.macs, as_member(public, roster.epoch + 1)))


def recover(roster: Roster, key: RecoveryKey, device_id: bytes, fresh: bytes, lost: Collection[bytes] = ()) -> Roster:
    """Use up the recovery words: make `device_id` admin, revoke `lost`; `fresh` is the next words' public key."""
    check_recovery_key(roster, key)
    if _mac(roster, device_id).is_admin:
        cure = "Change the roster from that Mac; it can also make new recovery words."
        raise RosterError(f"{_mac(roster, device_id).name} is an admin already.", cure)
    if device_id in lost:
        raise RosterError(f"{_mac(roster, device_id).name} cannot be made admin and be revoked at once.")
    for lost_id in lost:
        _mac(roster, lost_id)
    macs = [m for m in _altered(roster, device_id, role=Role.ADMIN) if m.role is not Role.RECOVERY]
    staying = [m for m in macs if m.device_id not in lost]
    return _next(roster, key, (*staying, as_member(fresh, roster.epoch + 1)))


def affirm(roster: Roster, identity: Identity) -> Roster:
    """Change only the epoch: after a fork, an admin's statement that this history counts."""
    _check_admin(roster, identity)
    return _next(roster, identity, roster.members)


def _alter(roster: Roster, identity: Identity, device_id: bytes, **changes: object) -> Roster:
    _check_admin(roster, identity)
    return _next(roster, identity, _altered(roster, device_id, **changes))


def _altered(roster: Roster, device_id: bytes, /, **changes: object) -> list[Member]:
    old = _mac(roster, device_id)
    return [msgspec.structs.replace(m, **changes) if m == old else m for m in roster.members]


def _next(roster: Roster, signer: Signer, members: Iterable[Member]) -> Roster:
    members, epoch = tuple(members), roster.epoch + 1
    staying = {m.device_id for m in members}
    following = msgspec.structs.replace(
        roster,
        epoch=epoch,
        prev_hash=roster.hash,
        members=members,
        revoked=(*roster.revoked, *(Revoked(m.device_id, epoch) for m in roster.members if m.device_id not in staying)),
        signer_id=signer.device_id,
    )
    return accept(roster, _sign(following, signer))


def _sign(roster: Roster, signer: Signer) -> Roster:
    return msgspec.structs.replace(roster, sig=signer.sign(words(roster)))


def _mac(roster: Roster, device_id: bytes) -> Member:
    mac = roster.member(device_id)
    if mac is None:
        raise RosterError(f"No Mac {text_id(device_id)[:8]} is in this cluster.", "`macluster trust list` names them.")
    return mac


def _check_admin(roster: Roster, identity: Identity) -> None:
    if not roster.admin(identity.device_id):
        names = ", ".join(m.name for m in roster.admins)
        raise RosterError("This Mac is not an admin of the cluster.", f"Do it on one that is: {names}.")


def _check_not_last(roster: Roster, device_id: bytes) -> None:
    if [m.device_id for m in roster.admins] == [device_id]:
        cure = (
            "Promote another Mac first. If this Mac is lost, the 24 words of the recovery key make another one admin."
        )
        raise RosterError(f"{_mac(roster, device_id).name} is the only admin; a cluster needs one.", cure)
