"""Rules for which roster may follow which; every Mac applies them to every roster. Pure.

- epoch + 1 on exactly the roster before it, same cluster, signed by an admin of that one;
- a Mac that leaves is revoked in that epoch; nothing is removed from that list, and nothing on it returns;
- at least one admin Mac, at most one recovery key, which is never a Mac;
- the recovery key signs only one kind of roster: it makes a member admin, may revoke others, and is then used up.
"""

from __future__ import annotations

import msgspec

from core.errors import RosterError, RosterFork
from core.trust.identity import device_id_of
from core.trust.levels import carries_prompts
from core.trust.roster import format as roster_format
from core.trust.roster.format import Revoked, Role, Roster, encode, verify

DECIDE = (
    "Admins changed the roster apart from each other, or one of them is not what it seems: decide which history "
    "counts: `macluster trust resolve`."
)


def accept(current: Roster | None, offered: Roster) -> Roster:
    """`offered` if it may follow, or equals, `current`; else RosterError, such as rollback, fork or gap."""
    _check_size(offered)
    _check_members(offered)
    if current is None:
        if offered.epoch != 1 or offered.prev_hash != roster_format.NO_HASH:
            raise RosterError("A chain of rosters begins with epoch 1.", "Ask an admin's Mac for the whole chain.")
        _check_signer(offered, offered)
        return offered
    if offered == current:
        return current
    _check_succession(current, offered)
    _check_leavers(current, offered)
    if current.recovery and offered.signer_id == current.recovery.device_id:
        verify(offered, current.recovery.public)
        _check_recovered(current, offered)
    else:
        _check_signer(current, offered)
    return offered


def _check_size(roster: Roster) -> None:
    size = len(encode(roster))
    if size > roster_format.MAX_ROSTER or not 1 <= len(roster.members) <= roster_format.MAX_MEMBERS:
        what = (
            f"A roster has at most {roster_format.MAX_MEMBERS} members and {roster_format.MAX_ROSTER} bytes, and at "
            f"least one Mac; this one has {len(roster.members)} and {size}, {len(roster.revoked)} revoked keys among "
            "them."
        )
        cure = "Revoked keys stay listed for ever: when they fill the roster, create a new cluster and pair again."
        raise RosterError(what, cure)
    if (roster.suite, roster.min_ver) != (roster_format.SUITE, roster_format.MIN_VERSION):
        what = f"The roster asks for suite {roster.suite} and version {roster.min_ver}; this Mac has 1 and 1."
        raise RosterError(what, "Update macluster on this Mac.")


def _check_members(roster: Roster) -> None:
    ids = {m.device_id for m in roster.members}
    gone = {r.device_id for r in roster.revoked}
    keys = [m for m in roster.members if m.role is Role.RECOVERY]
    if len(ids) != len(roster.members) or any(device_id_of(m.public) != m.device_id for m in roster.members):
        raise RosterError("A roster lists a Mac twice, or under an id that is not its key's.")
    if gone & ids:
        cure = "That Mac needs a new key before it is paired again."
        raise RosterError("A roster lists a Mac that was revoked.", cure)
    if len(gone) != len(roster.revoked):
        raise RosterError("A roster revokes one key twice.")
    if any(m.added_epoch > roster.epoch for m in roster.members) or not roster.admins:
        raise RosterError("A roster has no admin, or a Mac that was added in the future.")
    if len(keys) > 1 or any(carries_prompts(key.level) for key in keys):
        raise RosterError("A roster has two recovery keys, or takes its recovery key for a Mac.")


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
        raise RosterFork(f"Fork: two different histories lead to epoch {offered.epoch}.", DECIDE)
    if not set(current.revoked) <= set(offered.revoked):
        raise RosterError(f"The roster of epoch {offered.epoch} forgets a revoked Mac.")


def _check_leavers(current: Roster, offered: Roster) -> None:
    staying = {m.device_id for m in offered.members}
    left = {Revoked(m.device_id, offered.epoch) for m in current.members if m.device_id not in staying}
    if set(offered.revoked) - set(current.revoked) != left:
        what = f"The roster of epoch {offered.epoch} drops a Mac without revoking it, or revokes a key it never had."
        raise RosterError(what)
    before = {m.device_id: m.role is Role.RECOVERY for m in current.members}
    if any(before.get(m.device_id, m.role is Role.RECOVERY) != (m.role is Role.RECOVERY) for m in offered.members):
        raise RosterError(f"The roster of epoch {offered.epoch} turns a Mac into the recovery key, or back.")


def _check_signer(before: Roster, offered: Roster) -> None:
    signer = before.admin(offered.signer_id)
    if signer is None:
        raise RosterError(f"The roster of epoch {offered.epoch} is signed by a Mac that is not an admin.")
    verify(offered, signer.public)


def _check_recovered(current: Roster, offered: Roster) -> None:
    """A holder of the words may make one member admin once, and change nothing else: no stranger, name or level."""
    changed = [m for m in offered.macs if m != current.member(m.device_id)]
    raised = [msgspec.structs.replace(m, role=Role.ADMIN) for m in current.macs if m.role is Role.MEMBER]
    if len(changed) != 1 or changed[0] not in raised:
        raise RosterError("The recovery key may make one Mac of the cluster an admin, and change nothing else.")
    if offered.recovery is None or offered.recovery.device_id == offered.signer_id:
        raise RosterError("The recovery key is good for one use: its roster must name another one.")
