"""Content of the trust screen: every Mac with its level, its key and what the active plan lets it see. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

from core.events import Peer, Plan
from core.plan.notes import sees
from core.requests.trust import TrustedMac
from core.trust.identity import Identity, text_id
from core.trust.levels import carries_prompts
from core.trust.roster.forks import Fork
from core.trust.roster.format import Member, Role, Roster
from core.trust.roster.store import RosterStore
from core.trust.trust_assessment import TrustAssessment, last_entry


def trusted_macs(
    store: RosterStore, assessment: TrustAssessment, peers: Iterable[Peer], plan: Plan | None, own: Identity
) -> tuple[TrustedMac, ...]:
    """The members in roster order, then visible strangers, then revoked Macs."""
    roster = store.current
    listed = {text_id(m.device_id): m for m in roster.macs} if roster else {}
    gone = {text_id(r.device_id): last_entry(store.history, r.device_id) for r in roster.revoked} if roster else {}
    members = [_row(i, assessment, plan, own, m, "admin" if m.is_admin else "member") for i, m in listed.items()]
    strangers = [
        _row(p.device_id, assessment, plan, own, None, "member" if p.is_self else "stranger", p)
        for p in peers
        if p.device_id not in listed.keys() | gone.keys()
    ]
    revoked = [
        _row(i, assessment, plan, own, m, "revoked") for i, m in gone.items() if m and m.role is not Role.RECOVERY
    ]
    return (*members, *strangers, *revoked)


def fork_notes(history: Sequence[Roster], fork: Fork) -> tuple[str, ...]:
    return tuple(_note(history[side[0].epoch - 2], side) for side in fork.sides)


def _note(before: Roster, side: Sequence[Roster]) -> str:
    newest = side[-1]
    old, new = ({m.device_id: m for m in roster.macs} for roster in (before, newest))
    names = {i: m.name for roster in (before, *side) for i, m in ((m.device_id, m) for m in roster.members)}
    signers = list(dict.fromkeys(names.get(r.signer_id) or text_id(r.signer_id)[:8] for r in side))
    changes = [
        ("revokes", [m.name for i, m in old.items() if i not in new]),
        ("adds", [m.name for i, m in new.items() if i not in old]),
        ("changes", [m.name for i, m in new.items() if i in old and m != old[i]]),
    ]
    did = "; ".join(f"{verb} {', '.join(macs)}" for verb, macs in changes if macs)
    return f"epoch {newest.epoch}, signed by {', '.join(signers)}: {did or 'changes no Mac'}"


def _row(
    device_id: str,
    assessment: TrustAssessment,
    plan: Plan | None,
    own: Identity,
    entry: Member | None,
    role: Literal["admin", "member", "stranger", "revoked"],
    peer: Peer | None = None,
) -> TrustedMac:
    verdict, is_self = assessment.of(device_id), device_id == own.text_id
    key = entry.public if entry else own.public if is_self else b""
    return TrustedMac(
        device_id=device_id,
        name=peer.name if peer else assessment.name(device_id),
        level=verdict.level,
        reason=verdict.reason,
        role=role,
        fingerprint=hashlib.sha256(key).hexdigest() if key else "",
        added_epoch=entry.added_epoch if entry else 0,
        is_self=is_self,
        sees=sees(plan, device_id) if carries_prompts(verdict.level) else "",
    )
