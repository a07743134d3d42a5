"""Forks: histories of this cluster that admins signed apart. Which of them a user must decide about, and how much is
stored. Pure. No rule makes a rival win; only a user does (`RosterStore.resolve`).

A rival is open until a user of this Mac decides, with two exceptions. A rival that was declined stays refused until an
admin affirms it again, since that means users decided differently. And a rival older than an affirmation on our side is
past, unless it is affirmed too and its first signer could still sign when ours was affirmed: otherwise any former admin
could block this cluster forever.

Of open rivals the first `MAX_RIVALS` are stored, each with its first `MAX_DEPTH` rosters, at most 4 MiB: enough to
prove the fork, to show who signed and revoked what, and to switch to it. More would change nothing, since the fork
blocks already.
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
    """Histories that are equal before `epoch`. `sides` holds each one's rosters from there on, ours first."""

    epoch: int
    sides: tuple[Side, ...]

    @property
    def tips(self) -> tuple[Roster, ...]:
        return tuple(side[-1] for side in self.sides)


def fork_of(history: Sequence[Roster], rivals: Sequence[Side]) -> Fork | None:
    if not rivals:
        return None
    epoch = min(side[0].epoch for side in rivals)
    return Fork(epoch, (tuple(history[epoch - 1 :]), *rivals))


def sort_in(
    history: Sequence[Roster], epochs: Mapping[bytes, int], rivals: Iterable[Side], offered: Iterable[Roster]
) -> tuple[list[Roster], list[Side]]:
    """Sort `offered` rosters into ones that continue our history, and rivals, each as long as known now.

    `epochs` maps the hash of each roster of `history` to its epoch. Raises RosterError if a roster breaks a rule, or
    follows nothing known.
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
            met = history[roster.epoch - 1] if 1 <= roster.epoch <= len(history) else newest
            fresh.append(accept(met, roster))
            known.add(own)
        else:
            paths[own] = (accept(history[epochs[roster.prev_hash] - 1], roster),)
            reported.append(paths[own])
    return fresh, longest(reported)


def longest(sides: Iterable[Side]) -> list[Side]:
    found = list[Side]()
    for side in sides:
        if any(other[: len(side)] == side for other in found):
            continue
        shorter = next((n for n, other in enumerate(found) if side[: len(other)] == other), len(found))
        found[shorter : shorter + 1] = [side]
    return found


def is_open(history: Sequence[Roster], rival: Side, declined: Collection[bytes]) -> bool:
    """Whether a user must decide about a rival; `declined` holds the `claim` of each one decided against."""
    first = rival[0]
    before = history[first.epoch - 2]
    if claim(before, rival) in declined:
        return False
    ours, theirs = _affirmed(before, history[first.epoch - 1 :]), _affirmed(before, rival)
    return ours is None or (theirs is not None and _may_sign(ours, first.signer_id))


def claim(before: Roster, side: Side) -> bytes:
    """Hash by which a side and its continuations are refused: its last affirmation, else its first roster."""
    return (_affirmed(before, side) or side[0]).hash


def _affirmed(before: Roster, side: Sequence[Roster]) -> Roster | None:
    """The last roster of a side that changes nothing: an admin's statement that this history counts."""
    pairs = zip((before, *side), side, strict=False)
    found = [new for old, new in pairs if (old.members, old.revoked) == (new.members, new.revoked)]
    return found[-1] if found else None


def _may_sign(roster: Roster, device_id: bytes) -> bool:
    keys = (*roster.admins, roster.recovery) if roster.recovery else roster.admins
    return any(key.device_id == device_id for key in keys)


def left_of(history: Sequence[Roster], epochs: Mapping[bytes, int], side: Side) -> Side:
    rest = tuple(roster for roster in side if roster.hash not in epochs)
    return rest if rest and rest[0].epoch <= len(history) and rest[0].prev_hash in epochs else ()


def points(history: Sequence[Roster], rivals: Iterable[Side]) -> list[Stand]:
    """Rosters that tell another Mac what is new here: each rival's end, and some of ours, sparser further back."""
    back = {max(len(history) - 2**n + 1, 1) for n in range(len(history).bit_length() + 1)} if history else set[int]()
    return [*(side[-1].stand for side in rivals), *(history[epoch - 1].stand for epoch in sorted(back, reverse=True))]
