"""Current trust level of each Mac, with the reason: the roster combined with faults that this node found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from core.errors import NotPaired, RosterFork, TrustError
from core.events import Level, Plan, TrustChanged
from core.trust.identity import parse_text_id, text_id
from core.trust.levels import carries_prompts, weakest
from core.trust.roster.forks import Fork
from core.trust.roster.format import Member, Roster
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs

WITHOUT_IT = "Load the model again without it."
RESOLVE = "`macluster trust resolve` shows both and asks which one counts."


class Verdict(NamedTuple):
    """A trust level, and why it carries no prompts."""

    level: Level
    reason: str = ""


class Fault(NamedTuple):
    """A Mac that must not see prompts, and why."""

    device_id: str
    error: TrustError


class KnownFaults:
    """Faults of other Macs that this node found and no roster lists: sentences by text id."""

    def __init__(self) -> None:
        self.wrong_key: dict[str, str] = {}
        self.other_model: dict[str, str] = {}


class TrustAssessment:
    """Assesses Macs by text id. `folder` is this Mac's state folder."""

    def __init__(self, store: RosterStore, seen: SeenMacs, faults: KnownFaults, own_id: str, folder: Path) -> None:
        self._store, self._seen, self._faults, self._own_id, self._folder = store, seen, faults, own_id, folder

    def of(self, device_id: str) -> Verdict:
        if device_id == self._own_id:
            return self._judge(device_id)
        faults = self._faults
        return self._judge(device_id, faults.wrong_key.get(device_id, ""), faults.other_model.get(device_id, ""))

    def of_all(self, macs: Iterable[tuple[str, str]]) -> TrustChanged:
        """Level of several Macs (device id, name): that of the weakest; the last one is named if several are."""
        verdicts = [(name, self.of(device_id)) for device_id, name in macs]
        level = weakest(verdict.level for _, verdict in verdicts)
        name, verdict = next(((n, v) for n, v in reversed(verdicts) if v.level == level), ("", Verdict(level)))
        return TrustChanged(level=level, weakest=name, reason=verdict.reason)

    def fault(self, plan: Plan | None) -> Fault | None:
        """Why this Mac, or a Mac of `plan`, must not see prompts according to the roster; None if all may."""
        own = self._judge(self._own_id)
        if not carries_prompts(own.level):
            if self._store.forked:
                return Fault(self._own_id, RosterFork(own.reason, RESOLVE))
            folders = f"`identity` and `rosters` in {self._folder}"
            return Fault(self._own_id, NotPaired(own.reason, f"Remove {folders}, then pair this Mac again."))
        for part in plan.parts if plan else ():
            verdict = self._judge(part.device_id)
            if not carries_prompts(verdict.level):
                return Fault(part.device_id, NotPaired(verdict.reason, WITHOUT_IT))
        return None

    def check(self, plan: Plan | None = None) -> None:
        if fault := self.fault(plan):
            raise fault.error

    def listed_name(self, device_id: str) -> str:
        """Name from the newest roster that lists the Mac; "" for a stranger."""
        entry = last_entry(self._store.history, parse_text_id(device_id))
        return entry.name if entry else ""

    def name(self, device_id: str) -> str:
        return self.listed_name(device_id) or device_id[:8]

    def _judge(self, device_id: str, wrong_key: str = "", other_model: str = "") -> Verdict:
        roster, raw = self._store.current, parse_text_id(device_id)
        if roster is None and device_id == self._own_id:
            return Verdict("paired")  # never paired: no other Mac takes part
        level = self._store.level(
            raw, seen=self._seen.met_before(raw), wrong_key=bool(wrong_key), other_model=bool(other_model)
        )
        if carries_prompts(level):
            return Verdict(level)
        fork = self._store.forked
        if roster and roster.revocation(raw):
            return Verdict(level, self._why_revoked(device_id, raw, roster))
        if fork and roster and roster.member(raw):
            return Verdict(level, self._why_forked(fork))
        return Verdict(level, wrong_key or other_model or f"{self.name(device_id)} is not paired.")

    def _why_revoked(self, device_id: str, raw: bytes, roster: Roster) -> str:
        who = "This Mac" if device_id == self._own_id else self.name(device_id)
        gone = roster.revocation(raw)
        assert gone is not None
        if successor(self._store.history, raw):
            return f"{who} changed its key in epoch {gone.epoch}; this is its old one."
        signer = self.name(text_id(self._store.history[gone.epoch - 1].signer_id))
        return f"{who} was revoked by {signer} in epoch {gone.epoch}."

    def _why_forked(self, fork: Fork) -> str:
        ours, *theirs = (self._signed(tip, fork.epoch) for tip in fork.tips)
        return f"The roster of epoch {fork.epoch} forked: {ours}, which this Mac holds, and {', '.join(theirs)}."

    def _signed(self, tip: Roster, epoch: int) -> str:
        later = f" of epoch {tip.epoch}" if tip.epoch > epoch else ""
        return f"{self.name(text_id(tip.signer_id))} signed {tip.hash.hex()[:8]}{later}"


def last_entry(history: Sequence[Roster], device_id: bytes) -> Member | None:
    return next((m for r in reversed(history) for m in r.members if m.device_id == device_id), None)


def successor(history: Sequence[Roster], device_id: bytes) -> bytes | None:
    """New device id of a Mac that changed its key: its entry has the old one's place."""
    gone = history[-1].revocation(device_id) if history else None
    if gone is None:
        return None
    before, after = history[gone.epoch - 2].members, history[gone.epoch - 1].members
    known = {m.device_id for m in before}
    if len(before) == len(after):
        for old, new in zip(before, after, strict=True):
            if old.device_id == device_id and new.device_id not in known and new.raw_name == old.raw_name:
                return new.device_id
    return None
