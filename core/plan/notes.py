"""What a person should read about a plan before loading it, as sentences."""

from __future__ import annotations

from collections.abc import Sequence

from core.events import Peer
from core.models.anatomy import Anatomy

EVERY_MAC_SEES = (
    "Every Mac of this split could tell the prompt's tokens: layers of this model read values made from one token each."
)


def notes_of(
    peers: Sequence[Peer],
    kept: Sequence[Peer],
    ideal: Sequence[int],
    cuts: Sequence[int],
    anatomy: Anatomy,
    kv_bits: int | None,
) -> tuple[str, ...]:
    """What differs from the even split over all `peers`, the head first: who is left out, which cuts moved, and how the
    model runs. `cuts[i]` begins the layers of `kept[i + 1]` where `ideal[i]` was wanted.
    """
    notes = _left_out([p.name for p in peers if p not in kept], anatomy)
    for peer, wanted, cut in zip(kept[1:], ideal, cuts, strict=True):
        if cut != wanted:
            notes.append(f"{peer.name} begins with layer {cut} instead of {wanted}: {_why_moved(wanted, anatomy)}.")
    if anatomy.reveals_tokens and cuts:
        notes.append(EVERY_MAC_SEES)
    if kv_bits:
        notes.append("One row at a time in a batch: mlx-lm cannot batch quantised caches.")
    elif anatomy.one_row:
        notes.append(f"One row at a time in a batch: {anatomy.one_row}.")
    return tuple(notes)


def _left_out(names: Sequence[str], anatomy: Anatomy) -> list[str]:
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    return [f"{_listed(names)} {verb} left out: {where_cut(anatomy)}"]


def where_cut(anatomy: Anatomy) -> str:
    """In how few places the model can be cut, and why if in none."""
    if not anatomy.cuts:
        return f"this model cannot be split, because {anatomy.unsplittable}."
    places = len(anatomy.cuts)
    return f"this model can be cut in {places} place{'s' * (places > 1)} only."


def _why_moved(wanted: int, anatomy: Anatomy) -> str:
    """Which layers around a wanted cut cannot be parted from those before them."""
    if wanted in anatomy.cuts:
        return "the other cuts need the room"
    first = max((c for c in anatomy.cuts if c < wanted), default=0) + 1
    last = min((c for c in anatomy.cuts if c > wanted), default=anatomy.layers) - 1
    if first == last:
        return f"layer {first} shares state with those before"
    return f"layers {first} to {last} share state with those before"


def _listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
