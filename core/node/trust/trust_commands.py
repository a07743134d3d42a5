"""The user's trust commands. Each change is the next epoch of the roster, which `RosterEnforcement` carries out."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from core.errors import Busy, LinkLost, LinkTimeout, MaclusterError, Problem, RosterError, UsageError, error_from
from core.events import Peer, Plan, TrustChanged
from core.link.frames import FrameType
from core.node.base.context import NodeContext
from core.node.base.node_message import in_pieces
from core.node.peers.mesh import Mesh, MessageRefused
from core.node.peers.worker_state import WorkerState
from core.node.trust.messages import KeyChange, KeyRefused
from core.node.trust.roster_enforcement import RosterEnforcement
from core.plan.notes import sees
from core.requests.trust import ForkChoice, RecoveryPhrase, RecoveryWords, Rename, Target, TrustedMac, TrustView
from core.trust.identity import Identity, parse_text_id, text_id
from core.trust.levels import carries_prompts
from core.trust.name_matching import pick
from core.trust.roster.changes import affirm, recover, rename, rotate, set_recovery
from core.trust.roster.forks import Fork
from core.trust.roster.format import Member, Role, Roster
from core.trust.roster.key_rotation import ask_rotation, decode_rotation, prepare_rotation
from core.trust.roster.recovery_key import make_recovery_key, parse_words
from core.trust.roster.store import RosterStore
from core.trust.trust_assessment import TrustAssessment, last_entry

ROTATE_S: Final = 10.0
# of about 600 keys that a roster can revoke; key changes of members must leave room for revoking
KEY_CHANGES: Final = 200

Change = Callable[[Roster, Identity, bytes], Roster]


class TrustCommands:
    """One command per method. Raises a MaclusterError with the reason and what to do."""

    def __init__(self, node: NodeContext, enforcement: RosterEnforcement, mesh: Mesh, worker: WorkerState) -> None:
        self._identity, self._home, self._store = node.identity, node.home, node.store
        self._assessment, self._bus, self._journal = node.assessment, node.bus, node.journal
        self._enforcement, self._mesh, self._worker = enforcement, mesh, worker
        self._asked = ""
        self._refused: MaclusterError | None = None
        node.signals.on(MessageRefused, self._not_understood)

    def view(self) -> TrustView:
        return self._view(self._identity, self._bus.now.trust)

    def _view(self, identity: Identity, trust: TrustChanged) -> TrustView:
        roster, fork = self._store.current, self._store.forked
        adopted = self._store.adopted_at
        return TrustView(
            level=trust.level,
            weakest=trust.weakest,
            key_storage=identity.storage,
            epoch=roster.epoch if roster else 0,
            roster_hash=roster.hash.hex() if roster else "",
            roster_age_s=max(0.0, time.time() - adopted) if adopted is not None else 0.0,
            is_admin=bool(roster and roster.admin(identity.device_id)),
            has_recovery=bool(roster and roster.recovery),
            fork=tuple(tip.hash.hex() for tip in fork.tips) if fork else None,
            fork_epoch=fork.epoch if fork else 0,
            fork_notes=fork_notes(self._store.history, fork) if fork else (),
            macs=trusted_macs(self._store, self._assessment, self._bus.now.peers, self._worker.plan, identity),
        )

    async def change(self, change: Change, target: Target) -> TrustView:
        """Apply one of `core.trust.roster.changes` to a Mac."""
        roster = self._roster()
        await self._take(change(roster, self._identity, self._mac(roster, target.mac)))
        return self.view()

    async def rename(self, target: Rename) -> TrustView:
        return await self.change(lambda roster, me, who: rename(roster, me, who, target.name), target)

    async def new_recovery(self) -> RecoveryWords:
        key = make_recovery_key()
        await self._take(set_recovery(self._roster(), self._identity, key.public))
        return RecoveryWords(words=key.words)

    async def recover(self, phrase: RecoveryPhrase) -> RecoveryWords:
        """Make this Mac an admin with the recovery words; returns the next words."""
        roster = self._roster()
        lost = {self._mac(roster, typed) for typed in phrase.lost}
        key, fresh = parse_words(phrase.words), make_recovery_key()
        await self._take(recover(roster, key, self._identity.device_id, fresh.public, lost))
        return RecoveryWords(words=fresh.words)

    async def resolve(self, choice: ForkChoice) -> TrustView:
        """Apply the user's choice of a fork's side, and sign it if this Mac is the one to do so."""
        try:
            keep = bytes.fromhex(choice.keep)
        except ValueError as error:
            what = f"{choice.keep!r} is not the hash of a roster."
            raise UsageError(what, "`macluster trust resolve` shows both.") from error
        chosen = self._store.resolve(keep)
        self._journal.warn(f"A person decided that roster {chosen.hash.hex()[:8]} of epoch {chosen.epoch} counts.")
        if voucher(chosen) == self._identity.device_id:
            self._store.advance(affirm(chosen, self._identity))
        await self._enforcement.follow()
        return self.view()

    async def rotate(self) -> TrustView:
        """Give this Mac a new key: an admin puts it into the roster, then the node restarts with it."""
        roster = self._roster()
        if self._worker.led or self._worker.plan:
            raise Busy("A model is loaded on this Mac.", "Unload it first, on the Mac that loaded it.")
        following = await asyncio.to_thread(prepare_rotation, self._home.identity)
        request = ask_rotation(roster, self._identity, following)
        if roster.admin(self._identity.device_id):
            if len(roster.macs) > 1 and not self._mesh.contacts:
                raise LinkLost("No other Mac is linked, so none would learn the new key.", "Start another Mac first.")
            await self._admit_key(request)
        else:
            await self._ask_admin(roster, request, following.device_id)
        renamed = (following.text_id, self._assessment.name(following.text_id))
        return self._view(following, self._assessment.of_all([renamed]))

    def _not_understood(self, refused: MessageRefused) -> None:
        if refused.frame == FrameType.KEY_CHANGE:
            self._refuse(refused.device_id, refused.problem)

    def _refuse(self, device_id: str, problem: Problem) -> None:
        if device_id == self._asked:
            self._refused = error_from(problem)
            self._enforcement.news.set()

    async def handle_message(self, device_id: str, message: KeyChange | KeyRefused) -> None:
        if isinstance(message, KeyRefused):
            self._refuse(device_id, message.problem)
            return
        try:
            request = b"".join(message.request)
            if text_id(decode_rotation(request).old_id) != device_id:
                raise RosterError("A Mac may request a new key only for itself.")
            await self._admit_key(request)
        except MaclusterError as error:
            self._journal.warn(f"{self._assessment.name(device_id)} gets no new key: {error.what}")
            await self._mesh.send(device_id, KeyRefused(problem=error.problem))

    async def _admit_key(self, request: bytes) -> None:
        roster, rotation = self._roster(), decode_rotation(request)
        if len(roster.revoked) >= KEY_CHANGES:
            what = f"{len(roster.revoked)} keys are revoked in this cluster: there is no room for one more."
            raise RosterError(what, "Create a new cluster and pair again.")
        await self._take(rotate(roster, self._identity, rotation), [rotation.certificate])

    async def _ask_admin(self, roster: Roster, request: bytes, new_id: bytes) -> None:
        admins = [text_id(m.device_id) for m in roster.admins]
        admin = next((i for i in admins if i in self._mesh.contacts), None)
        if admin is None:
            names = ", ".join(m.name for m in roster.admins)
            raise LinkLost("No admin's Mac is linked, and only an admin can put a new key in.", f"Start one: {names}.")
        self._asked, self._refused = admin, None
        self._enforcement.news.clear()
        await self._mesh.send(admin, KeyChange(request=in_pieces(request)))
        try:
            async with asyncio.timeout(ROTATE_S):
                while not self._store.lists(new_id) and not self._refused:
                    await self._enforcement.news.wait()
                    self._enforcement.news.clear()
        except TimeoutError:
            what = f"{self._assessment.name(admin)} did not put the new key in within {ROTATE_S:.0f} s."
            raise LinkTimeout(what, "Try again; this Mac keeps its old key until then.") from None
        if self._refused and not self._store.lists(new_id):
            raise self._refused

    async def _take(self, following: Roster, certificates: Iterable[bytes] = ()) -> None:
        self._store.advance(following, certificates)
        self._journal.info(f"The roster is at epoch {following.epoch}.")
        await self._enforcement.follow()

    def _roster(self) -> Roster:
        self._assessment.check()
        return self._store.cluster().roster

    @staticmethod
    def _mac(roster: Roster, typed: str) -> bytes:
        return parse_text_id(pick(typed, [(text_id(m.device_id), m.name) for m in roster.macs]))


def voucher(roster: Roster) -> bytes:
    """The admin that affirms a roster after a fork: only one, since two would fork it again."""
    return (roster.admin(roster.signer_id) or roster.admins[0]).device_id


def trusted_macs(
    store: RosterStore, assessment: TrustAssessment, peers: Iterable[Peer], plan: Plan | None, own: Identity
) -> tuple[TrustedMac, ...]:
    """The members in roster order, then visible strangers, then revoked Macs."""
    roster = store.current
    listed = {text_id(m.device_id): m for m in roster.macs} if roster else {}
    gone = {text_id(r.device_id): last_entry(store.history, r.device_id) for r in roster.revoked} if roster else {}
    row = partial(_row, assessment, plan, own)
    members = [row(i, m, "admin" if m.is_admin else "member") for i, m in listed.items()]
    visible = [p for p in peers if p.device_id not in listed.keys() | gone.keys()]
    strangers = [row(p.device_id, None, "member" if p.is_self else "stranger", p) for p in visible]
    revoked = [row(i, m, "revoked") for i, m in gone.items() if m and m.role is not Role.RECOVERY]
    apart = {p.device_id: p.problem for p in peers if p.state == "needs an update"}
    listed_macs = (*members, *strangers, *revoked)
    return tuple(msgspec.structs.replace(mac, update=apart.get(mac.device_id, "")) for mac in listed_macs)


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
    assessment: TrustAssessment,
    plan: Plan | None,
    own: Identity,
    device_id: str,
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
