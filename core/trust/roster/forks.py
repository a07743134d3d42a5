"""Other histories of this cluster that admins signed apart: where they leave ours, which of them a person still has to
decide, and how much of them is kept. Pure. No rule here makes a rival win; only a person does (`RosterStore.resolve`).

A rival is open until a person on this Mac decides, however long it is, with two exceptions. What a person here decided
against stays refused until an admin affirms it anew, which says that people decided differently. And what is older than
an affirmation on our side is past, unless it is affirmed too, and whoever began it could still sign when ours was
affirmed: else whoever was an admin once could block this cluster for ever.

Of open rivals the first `MAX_RIVALS` are kept, of each its first `MAX_DEPTH` rosters, 4 MiB at the very most: enough to
prove the fork, to say who signed and revoked what, and to change over to it; what follows comes as any news does. More
of them change nothing, since the fork blocks already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from core.trust.roster.acceptance import accept
from core.trust.roster.format import Roster, Stand

MAX_RIVALS: Final = 4
MAX_DEPTH: Final = 64

Side = tuple[Roster, ...]


class Fork(msgspec.Struct, frozen=True):
    """Histories that begin alike and part before `epoch`. Each of `sides` holds the rosters of one after they parted,
    ours first; the newest of a side is what a person chooses it by.
    """

    epoch: int
    sides: tuple[Side, ...]

    @property
    def ours(self) -> Roster:
        """The newest roster of this Mac."""
        return self.sides[0][-1]

    @property
    def theirs(self) -> Roster:
        """The newest roster of the first rival."""
        return self.sides[1][-1]

    @property
    def tips(self) -> tuple[Roster, ...]:
        """The newest roster of each side, ours first."""
        return tuple(side[-1] for side in self.sides)


def fork_of(history: Sequence[Roster], rivals: Sequence[Side]) -> Fork | None:
    """The fork of a history and its open rivals, if there are any."""
    if not rivals:
        return None
    epoch = min(side[0].epoch for side in rivals)
    return Fork(epoch, (tuple(history[epoch - 1 :]), *rivals))


def sort_in(
    history: Sequence[Roster], epochs: Mapping[bytes, int], rivals: Iterable[Side], offered: Iterable[Roster]
) -> tuple[list[Roster], list[Side]]:
    """What of `offered` follows our history, and every rival that it tells of, each as long as it is known now.

    `epochs` gives the epoch of every roster of `history` by its hash. Raises RosterError if any roster breaks a rule,
    or begins or follows nothing that is known.
    """
    fresh, reported = list[Roster](), list[Side]()
    known = epochs.keys() | set()
    paths = {roster.hash: side[: n + 1] for side in rivals for n, roster in enumerate(side)}
    for roster in offered:
        own = roster.hash
        if own in known:
            continue
        newest = fresh[-1] if fresh else history[-1] if history else None
        if own in paths:
            reported.append(paths[own])
        elif path := paths.get(roster.prev_hash):
            follows = len(path) < MAX_DEPTH
            paths[own] = (*path, accept(path[-1], roster)) if follows else path
            reported.append(paths[own])
        elif newest is None or roster.prev_hash == newest.hash or roster.prev_hash not in epochs:
            fresh.append(accept(_met(history, newest, roster), roster))
            known.add(own)
        else:
            paths[own] = (accept(history[epochs[roster.prev_hash] - 1], roster),)
            reported.append(paths[own])
    return fresh, longest(reported)


def _met(history: Sequence[Roster], newest: Roster | None, roster: Roster) -> Roster | None:
    """What a roster is to be held against that leaves no roster of ours."""
    return history[roster.epoch - 1] if 1 <= roster.epoch <= len(history) else newest


def longest(sides: Iterable[Side]) -> list[Side]:
    """The sides that are not the beginning of another one, in their order."""
    found = list[Side]()
    for side in sides:
        if any(other[: len(side)] == side for other in found):
            continue
        shorter = next((n for n, other in enumerate(found) if side[: len(other)] == other), len(found))
        found[shorter : shorter + 1] = [side]
    return found


def is_open(history: Sequence[Roster], rival: Side, declined: Collection[bytes]) -> bool:
    """Whether a person has to decide about a rival that leaves `history`; `declined` holds the `claim` of each that a
    person decided against.
    """
    first = rival[0]
    before = history[first.epoch - 2]
    if claim(before, rival) in declined:
        return False
    ours, theirs = _affirmed(before, history[first.epoch - 1 :]), _affirmed(before, rival)
    return ours is None or (theirs is not None and _may_sign(ours, first.signer_id))


def claim(before: Roster, side: Side) -> bytes:
    """The hash by which a side is refused with all that follows: that of its last affirmation, else of its first
    roster. `before` is the roster that it follows.
    """
    return (_affirmed(before, side) or side[0]).hash


def _affirmed(before: Roster, side: Sequence[Roster]) -> Roster | None:
    """The last roster of a side that changes nothing, which is an admin's word that this is the history that counts."""
    pairs = zip((before, *side), side, strict=False)
    found = [new for old, new in pairs if (old.members, old.revoked) == (new.members, new.revoked)]
    return found[-1] if found else None


def _may_sign(roster: Roster, device_id: bytes) -> bool:
    keys = (*roster.admins, roster.recovery) if roster.recovery else roster.admins
    return any(key.device_id == device_id for key in keys)


def left_of(history: Sequence[Roster], epochs: Mapping[bytes, int], side: Side) -> Side:
    """What of a side is no part of `history`; nothing if it does not leave it, but follows it or another one."""
    rest = tuple(roster for roster in side if roster.hash not in epochs)
    return rest if rest and rest[0].epoch <= len(history) and rest[0].prev_hash in epochs else ()


def points(history: Sequence[Roster], rivals: Iterable[Side]) -> list[Stand]:
    """What another Mac needs in order to send only what is new here: where each rival ends as far as it is known, and
    some of our own rosters, the farther back the fewer.
    """
    back = {max(len(history) - 2**n + 1, 1) for n in range(len(history).bit_length() + 1)} if history else set[int]()
    return [*(side[-1].stand for side in rivals), *(history[epoch - 1].stand for epoch in sorted(back, reverse=True))]
