"""A Mac's stored roster history: all rosters, the members' certificates, and proof against deleted files: the highest
epoch, and that it forked.

Folder (0700, files 0600): `<epoch>.roster`, `<text id>.der`; `epoch`, the highest one in digits;
`<epoch>-<hash>.rival`, rosters of other histories; `declined`, hashes that a user decided against
(`core.trust.roster.forks`); `taken`, the roster's hash while switching to another history. Everything is on disk before
it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from core.errors import NotPaired, RosterError, RosterFork
from core.events import Level
from core.settings import MAX_CONTROL_BODY, Home
from core.trust.file_formats import check_not_newer, first_bytes, format_of
from core.trust.identity import text_id
from core.trust.levels import level_of
from core.trust.private_files import private_folder, read_private, write_private
from core.trust.roster.acceptance import DECIDE, accept
from core.trust.roster.bundle import STAND, Cluster, decode_bundle, encode_bundle, member_certificates
from core.trust.roster.forks import MAX_RIVALS, Fork, Side, claim, fork_of, is_open, left_of, longest, points, sort_in
from core.trust.roster.format import COUNT, Roster, Stand, decode, encode

MAX_DECLINED: Final = 256  # the newest; an older one would be asked about again
_HASH_BYTES: Final = 32
_DIGITS: Final = 20  # of the highest epoch that a roster can carry


class RosterStore:
    """Rosters and certificates of this Mac on disk."""

    def __init__(self, folder: Path) -> None:
        """Verify the whole chain. Raises RosterError on damage, a gap, a shortened chain, or open permissions.

        If a newer macluster wrote a roster, none is used: the Mac counts as unpaired, and its roster can't change.
        """
        private_folder(folder, RosterError)
        self._folder = folder
        self._declined_path, self._taken_path = folder / "declined", folder / "taken"
        self._history: list[Roster] = []
        self._certificates: dict[bytes, bytes] = {}
        self._declined: tuple[bytes, ...] = ()
        self._epochs: dict[bytes, int] = {}
        # the undecided one; until `resolve`, nothing new is adopted and no Mac carries prompts
        self.forked: Fork | None = None
        self._newer = [path for path in folder.glob("*.r*") if format_of(first_bytes(path)) > Home.rosters.format]
        if not self._newer:
            self._read()
        # when this Mac adopted the newest roster, seconds since the epoch; for display only
        self.adopted_at = self._path(self.current).stat().st_mtime if self.current else None

    def _read(self) -> None:
        folder = self._folder
        rivals = [decode(read_private(path, RosterError)) for path in sorted(folder.glob("*.rival"))]
        self._finish_change(rivals)
        for path in sorted(folder.glob("*.roster")):
            self._history.append(accept(self.current, decode(read_private(path, RosterError))))
        self._check_epoch()
        found = [read_private(path, RosterError) for path in sorted(folder.glob("*.der"))]
        self._certificates = member_certificates(self.current, found) if self.current else {}
        digests = read_private(self._declined_path, RosterError) if os.path.lexists(self._declined_path) else b""
        self._declined = tuple(digests[at : at + _HASH_BYTES] for at in range(0, len(digests), _HASH_BYTES))
        self._epochs = {roster.hash: roster.epoch for roster in self._history}
        self._weigh(self._restored(rivals))

    def lists(self, device_id: bytes) -> bool:
        return bool(self.current and self.current.member(device_id))

    @property
    def current(self) -> Roster | None:  # None: never paired
        return self._history[-1] if self._history else None

    @property
    def history(self) -> Sequence[Roster]:
        return self._history

    def is_revoked(self, device_id: bytes) -> bool:
        """Whether the newest roster, or that of an undecided rival, revokes that Mac."""
        tips = self.forked.tips if self.forked else self._history[-1:]
        return any(roster.revocation(device_id) for roster in tips)

    def cluster(self) -> Cluster:
        self.check_formats()
        if self.current is None:
            raise NotPaired("This Mac is paired with no other.")
        return Cluster(self.current, dict(self._certificates))

    def level(self, device_id: bytes, **found: bool) -> Level:
        """The level of a Mac; `found`: what the roster does not tell (`core.trust.levels.level_of`)."""
        member = self.current.member(device_id) if self.current else None
        listed, is_forked = member.level if member else None, self.forked is not None
        return level_of(listed=listed, revoked=self.is_revoked(device_id), forked=is_forked, **found)

    def check_formats(self) -> None:
        """Raises RosterError if a newer macluster wrote a roster of this Mac."""
        for path in self._newer:
            check_not_newer(path, Home.rosters.format, RosterError)

    def bundle(self, since_epoch: int = 0) -> bytes:
        """The rosters from `since_epoch` on that fit a control frame, and all certificates. Raises NotPaired.

        Includes `since_epoch` itself, so that the receiver can detect a fork. If not all fit, the receiver remains
        below the bundle's head, and the next bundle continues there.
        """
        cluster = self.cluster()
        certificates = list(cluster.certificates.values())
        stands = points(self._history, self._rivals)
        room = (
            MAX_CONTROL_BODY - (1 + len(stands)) * STAND.size - 3 * COUNT.size - sum(2 + len(c) for c in certificates)
        )
        chosen: list[bytes] = []
        for roster in self._history[max(since_epoch - 1, 0) :]:
            piece = encode(roster)
            room -= 2 + len(piece)
            if room < 0:
                break
            chosen.append(piece)
        return encode_bundle(cluster.roster.stand, chosen, certificates, stands)

    def shared_epoch(self, theirs: Iterable[Stand]) -> int:
        """Our newest epoch that a Mac with these rosters has too, else the one after our newest."""
        return max((p.epoch for p in theirs if self._epochs.get(p.hash) == p.epoch), default=len(self._history) + 1)

    def advance(self, following: Roster, certificates: Iterable[bytes] = ()) -> None:
        self.adopt(encode_bundle(following.stand, [encode(following)], certificates))

    def adopt(self, bundle: bytes) -> bool:
        """Verify a bundle, write it to disk, then use it; whether the epoch advanced.

        Known rosters are skipped. Raises RosterError and keeps nothing if any part breaks a rule (OtherRoster: has
        another format); for a fork of any depth it keeps the proof (see `forked`) and raises RosterFork.
        """
        self.check_formats()
        offered = decode_bundle(bundle)
        fresh, stands = sort_in(self._history, self._epochs, self._rivals, map(decode, offered.rosters))
        if fork := [side for side in stands if is_open(self._history, side, self._declined)]:
            self._keep(longest([*self._rivals, *fork]))
            others = ", ".join(f"{side[-1].hash.hex()[:8]} (epoch {side[-1].epoch})" for side in self._rivals)
            what = f"Fork: two histories lead on from epoch {fork[0][0].epoch - 1}. Besides this Mac's: {others}."
            raise RosterFork(what, DECIDE)
        if stands:
            raise self._refusal(stands[0])
        newest = fresh[-1] if fresh else self.current
        if newest is None:
            return False
        if fresh and self.forked:
            raise RosterFork(
                f"The roster of epoch {self.forked.epoch} forked, and the fork is still undecided.", DECIDE
            )
        known = {i: c for i, c in self._certificates.items() if newest.member(i)}
        certificates = member_certificates(newest, offered.certificates) | known
        for device_id in certificates.keys() - known.keys():
            write_private(self._folder / f"{text_id(device_id)}.der", certificates[device_id], RosterError)
        if fresh:
            self._persist(fresh)
            self.adopted_at = self._path(newest).stat().st_mtime
        self._history += fresh
        self._epochs |= {roster.hash: roster.epoch for roster in fresh}
        self._certificates = certificates
        return bool(fresh)

    def resolve(self, keep: bytes) -> Roster:
        """Apply a user's decision: the history with roster `keep` (its hash) counts, and that roster is the newest.
        Each Mac that knows both asks its own user. An admin then makes the next epoch (`affirm`), which takes the Macs
        that know only one past the fork. Raises RosterError if there is no fork, or no such roster in it.
        """
        fork = self.forked
        rivals = [side[: n + 1] for side in self._rivals for n, roster in enumerate(side) if roster.hash == keep]
        if fork is None or not (rivals or keep == fork.tips[0].hash):
            raise RosterError("There is no such fork to decide.", "Look at the roster again.")
        chosen = rivals[0] if rivals else ()
        ours = [fork.sides[0][chosen[0].epoch - fork.epoch :]] if chosen else []
        self._decline(chosen, [*ours, *self._rivals])
        if chosen or os.path.lexists(self._taken_path):
            write_private(self._taken_path, keep, RosterError)
            self._change_over(chosen or fork.sides[0])
        if chosen:
            self._history[chosen[0].epoch - 1 :] = chosen
            self._epochs = {roster.hash: roster.epoch for roster in self._history}
            self._certificates = member_certificates(chosen[-1], self._certificates.values())
        self._weigh(self._rivals)
        self.adopted_at = self._path(self._history[-1]).stat().st_mtime
        return self._history[-1]

    @property
    def _rivals(self) -> tuple[Side, ...]:
        return self.forked.sides[1:] if self.forked else ()

    def _weigh(self, rivals: Iterable[Side]) -> None:
        """Determine which of these rivals branch off the current history and are open."""
        left = (left_of(self._history, self._epochs, side) for side in rivals)
        still = [side for side in left if side and is_open(self._history, side, self._declined)]
        self.forked = fork_of(self._history, still[:MAX_RIVALS])

    def _refusal(self, rival: Side) -> RosterFork:
        epoch = rival[0].epoch
        if claim(self._history[epoch - 2], rival) in self._declined:
            what = f"The roster of epoch {epoch} is the one that a person on this Mac decided against."
            return RosterFork(what, "Decide the same on the Mac that offers it.")
        what = f"Fork: another history from epoch {epoch} on is older than what an admin affirmed since."
        return RosterFork(what, "On the Mac that offers it, decide for this one: `macluster trust resolve`.")

    def _decline(self, chosen: Side, sides: Iterable[Side]) -> None:
        """Store what the user decided against, before changing anything else."""
        others = list[bytes]()
        for side in sides:
            shared = 0
            while chosen[shared : shared + 1] and chosen[shared : shared + 1] == side[shared : shared + 1]:
                shared += 1
            rest, before = side[shared:], chosen[shared - 1] if shared else self._history[side[0].epoch - 2]
            if rest and not (chosen and shared == len(chosen)):
                others.append(claim(before, rest))
        declined = (*(d for d in self._declined if d not in others), *others)[-MAX_DECLINED:]
        write_private(self._declined_path, b"".join(declined), RosterError)
        self._declined = declined

    def _keep(self, rivals: list[Side]) -> None:
        self.forked = fork_of(self._history, rivals[:MAX_RIVALS])  # a full disk must not silence it
        kept = [roster for side in rivals[:MAX_RIVALS] for roster in side]
        wanted = {self._folder / f"{roster.epoch:08d}-{roster.hash.hex()}.rival": roster for roster in kept}
        there = set(self._folder.glob("*.rival"))
        for path in wanted.keys() - there:
            write_private(path, encode(wanted[path]), RosterError)
        for path in there - wanted.keys():
            path.unlink(missing_ok=True)

    def _restored(self, rivals: Iterable[Roster]) -> tuple[Side, ...]:
        """Rivals from their files; rivals that branch off nothing known are skipped."""
        sides = list[Side]()
        for roster in rivals:
            with suppress(RosterError):
                sides = longest([*sides, *sort_in(self._history, self._epochs, sides, [roster])[1]])
        return tuple(sides)

    def _finish_change(self, rivals: Iterable[Roster]) -> None:
        if not os.path.lexists(self._taken_path):
            return
        known, wanted, side = {r.hash: r for r in rivals}, read_private(self._taken_path, RosterError), list[Roster]()
        while wanted in known:
            side.insert(0, known[wanted])
            wanted = side[0].prev_hash
        self._change_over(side)

    def _change_over(self, side: Sequence[Roster]) -> None:
        for roster in side:
            write_private(self._path(roster), encode(roster), RosterError)
        if side:
            newest = self._path(side[-1]).name
            for path in self._folder.glob("*.roster"):
                if path.name > newest:
                    path.unlink()
            self._write_epoch(side[-1].epoch)
        self._taken_path.unlink(missing_ok=True)

    def _persist(self, fresh: list[Roster]) -> None:
        try:
            for roster in fresh:
                write_private(self._path(roster), encode(roster), RosterError)
            self._write_epoch(fresh[-1].epoch)
        except RosterError:
            for roster in reversed(fresh):  # in the other order a crash could leave a gap in the chain
                self._path(roster).unlink(missing_ok=True)
            raise

    def _check_epoch(self) -> None:
        """Detect a chain that was rolled back on disk: it ends below the highest epoch used here."""
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

    def _path(self, roster: Roster) -> Path:
        return self._folder / f"{roster.epoch:08d}.roster"
