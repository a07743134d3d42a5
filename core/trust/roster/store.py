"""What a Mac keeps of its cluster: every roster, the members' certificates, and two facts that no deletion may undo
quietly: how far the chain had come, and that it has forked.

Folder (0700, every file 0600): `<epoch>.roster`, `<text id>.der`; `epoch`, the highest one ever used, in digits;
`rival`, the other roster of the newest epoch where there is one; `refused`, the one that a person on this Mac decided
against. Everything is on disk before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from core.errors import NotPaired, RosterError, RosterFork
from core.events import Level
from core.settings import MAX_CONTROL_BODY
from core.trust.files import private_folder, read_private, write_private
from core.trust.identity import text_id
from core.trust.levels import level_of
from core.trust.roster.bundle import STAND, Cluster, decode_bundle, encode_bundle, member_certificates
from core.trust.roster.chain import COUNT, Roster, decode, encode
from core.trust.roster.succession import DECIDE, accept

_RIVAL: Final = "rival"
_REFUSED: Final = "refused"
_DIGITS: Final = 20  # of the highest epoch that a roster can carry


class Fork(NamedTuple):
    """Two rosters of one epoch, each validly signed by an admin of the one before: `ours` is the one that this Mac
    stands at. Their `signer_id`, `hash` and `macs` are what a person needs to choose.
    """

    ours: Roster
    theirs: Roster


class RosterStore:
    """The rosters and certificates of this Mac on disk."""

    def __init__(self, folder: Path) -> None:
        """Read and verify the whole chain. Raises RosterError on damage, a gap, a chain that was longer once, or unsafe
        permissions.
        """
        private_folder(folder, RosterError)
        self._folder = folder
        self._history: list[Roster] = []
        for path in sorted(folder.glob("*.roster")):
            self._history.append(accept(self.current, decode(read_private(path, RosterError))))
        self._check_epoch()
        found = [read_private(path, RosterError) for path in sorted(folder.glob("*.der"))]
        self._certificates = member_certificates(self.current, found) if self.current else {}
        self._rival, self._refused = self._read(_RIVAL), self._read(_REFUSED)
        self._adopted_at = self._path(self.current).stat().st_mtime if self.current else None

    def lists(self, device_id: bytes) -> bool:
        """Whether the newest roster has that member."""
        return bool(self.current and self.current.member(device_id))

    @property
    def current(self) -> Roster | None:
        """The newest roster; None on a Mac that was never paired."""
        return self._history[-1] if self._history else None

    @property
    def history(self) -> Sequence[Roster]:
        """Every roster, that of epoch 1 first."""
        return self._history

    @property
    def certificates(self) -> Mapping[bytes, bytes]:
        """The members' certificates, DER, by device id."""
        return self._certificates

    @property
    def adopted_at(self) -> float | None:
        """When this Mac took the newest roster, in seconds since 1970 by its own clock: shown, never to decide by."""
        return self._adopted_at

    @property
    def forked(self) -> Fork | None:
        """The fork that nobody has decided yet. Until `resolve` nothing new is adopted, and no Mac carries prompts."""
        rival, current = self._rival, self.current
        if current is None or rival is None or rival in (current, self._refused) or rival.epoch != current.epoch:
            return None
        return Fork(current, rival)

    def cluster(self) -> Cluster:
        """Roster and certificates as one value. Raises NotPaired on a Mac that was never paired."""
        if self.current is None:
            raise NotPaired("This Mac is paired with no other.")
        return Cluster(self.current, dict(self._certificates))

    def level(
        self, device_id: bytes, *, seen: bool = False, wrong_key: bool = False, other_model: bool = False
    ) -> Level:
        """How far that Mac is trusted, by this roster and what the caller knows of it (see `level_of`)."""
        member = self.current.member(device_id) if self.current else None
        return level_of(
            listed=member.level if member else None,
            revoked=bool(self.current and self.current.revocation(device_id)),
            forked=self.forked is not None,
            wrong_key=wrong_key,
            other_model=other_model,
            seen=seen,
        )

    def bundle(self, since_epoch: int = 0) -> bytes:
        """The rosters from `since_epoch` on, as many as fit a control frame, and all certificates. Raises NotPaired.

        That of `since_epoch` itself is in it, for the receiver to find out whether its own is another one. Where not
        all fit, the receiver stands at a lower epoch than the bundle's head says, and the next bundle goes on there.
        """
        cluster = self.cluster()
        certificates = list(cluster.certificates.values())
        room = MAX_CONTROL_BODY - STAND.size - 2 * COUNT.size - sum(2 + len(c) for c in certificates)
        chosen: list[bytes] = []
        for roster in self._history[max(since_epoch - 1, 0) :]:
            piece = encode(roster)
            room -= 2 + len(piece)
            if room < 0:
                break
            chosen.append(piece)
        return encode_bundle(cluster.roster.stand, chosen, certificates)

    def advance(self, following: Roster, certificates: Iterable[bytes] = ()) -> None:
        """Take the next epoch that this Mac made itself (`core.trust.roster.changes`). Raises RosterError."""
        self.adopt(encode_bundle(following.stand, [encode(following)], certificates))

    def adopt(self, bundle: bytes) -> bool:
        """Verify a bundle, write it to disk, then use it; whether this Mac stands at a newer epoch now.

        What is known already is passed over. Raises RosterError, and keeps nothing, if any of it breaks a rule; of a
        fork at the newest epoch it keeps the proof, see `forked`.
        """
        offered = decode_bundle(bundle)
        newest, fresh = self.current, list[Roster]()
        for roster in offered.rosters:
            if 1 <= roster.epoch <= len(self._history):
                self._compare(roster)
            elif (following := accept(newest, roster)) is not newest:
                fresh.append(following)
                newest = following
        if newest is None:
            return False
        if fresh and self.forked:
            raise RosterFork(f"The roster of epoch {len(self._history)} forked, and nobody has decided yet.", DECIDE)
        known = {i: c for i, c in self._certificates.items() if newest.member(i)}
        certificates = member_certificates(newest, offered.certificates) | known
        for device_id in certificates.keys() - known.keys():
            write_private(self._folder / f"{text_id(device_id)}.der", certificates[device_id], RosterError)
        if fresh:
            self._persist(fresh)
            self._adopted_at = self._path(newest).stat().st_mtime
        self._history += fresh
        self._certificates = certificates
        return bool(fresh)

    def resolve(self, keep: bytes) -> Roster:
        """A person on this Mac decided that the roster with hash `keep` counts; it is the newest one now. Every Mac
        that knows both asks its own person. An admin then makes the next epoch on it (`affirm`), so that those who know
        one only are past the fork. Raises RosterError if there is no fork, or no such roster in it.
        """
        fork = self.forked
        if fork is None or keep not in (fork.ours.hash, fork.theirs.hash):
            raise RosterError("There is no such fork to decide.", "Look at the roster again.")
        chosen, other = fork if keep == fork.ours.hash else (fork.theirs, fork.ours)
        write_private(self._folder / _REFUSED, encode(other), RosterError)
        if chosen != fork.ours:
            write_private(self._path(chosen), encode(chosen), RosterError)
            self._history[-1] = chosen
            self._certificates = member_certificates(chosen, self._certificates.values())
        self._refused = other
        return chosen

    def _compare(self, roster: Roster) -> None:
        """Pass over what is known. Another roster of the newest epoch is a fork as soon as an admin of the one before
        has signed it; of an older epoch it changes nothing any more, and is only refused, as is one that a person
        decided against: else whoever was an admin once could block this cluster for ever.
        """
        known = self._history[roster.epoch - 1]
        if roster == self._refused:
            what = f"The roster of epoch {roster.epoch} is the one that a person on this Mac decided against."
            raise RosterFork(what, "Decide the same on the Mac that offers it.")
        if roster.epoch == len(self._history) > 1 and roster != known:
            self._rival = accept(self._history[-2], roster)
            write_private(self._folder / _RIVAL, encode(roster), RosterError)
        accept(known, roster)

    def _persist(self, fresh: list[Roster]) -> None:
        try:
            for roster in fresh:
                write_private(self._path(roster), encode(roster), RosterError)
            self._write_epoch(fresh[-1].epoch)
        except RosterError:
            for roster in reversed(fresh):  # else those that were written would stand behind another next epoch
                self._path(roster).unlink(missing_ok=True)
            raise

    def _check_epoch(self) -> None:
        """A chain that ends below the highest epoch ever used here was rolled back on the disk."""
        path, epoch = self._folder / "epoch", len(self._history)
        digits = read_private(path, RosterError) if os.path.lexists(path) else b"0"
        had = int(digits) if digits.isdigit() and len(digits) <= _DIGITS else None
        if had is None or epoch < had:
            what = f"The rosters in {self._folder} end at epoch {epoch}; this Mac had {had or 'an unreadable one'}."
            raise RosterError(
                what, f"Put back {self._folder} from a newer backup, or remove it and pair this Mac again."
            )
        if epoch > had:
            self._write_epoch(epoch)

    def _write_epoch(self, epoch: int) -> None:
        write_private(self._folder / "epoch", str(epoch).encode(), RosterError)

    def _read(self, name: str) -> Roster | None:
        path = self._folder / name
        return decode(read_private(path, RosterError)) if os.path.lexists(path) else None

    def _path(self, roster: Roster) -> Path:
        return self._folder / f"{roster.epoch:08d}.roster"
