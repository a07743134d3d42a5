"""Sentences shown with a plan before loading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.events import GroupKind, Parallelism, Plan, Sight, Strategy, WireType
from core.models.files.parts import range_texts, ranges
from core.models.slicing.split_profile import SplitProfile
from core.plan.stage_roles import role_of, sights
from core.plan.topology import has_ranks

EVERY_MAC_SEES = (
    "Every Mac of this split could infer the prompt's tokens: its layers read values made from one token each."
)

LOSSY: Final[tuple[WireType, ...]] = ("bfloat16", "int8")
ON_THE_WIRE: Final[dict[WireType, str]] = {
    "float32": "Hidden states are sent as float32, without loss.",
    "bfloat16": "Hidden states are sent as bfloat16: answers may differ from one Mac's, unless it computes in that.",
    "int8": "Hidden states are sent as 8-bit: answers may differ from one Mac's.",
}
EVERY_RANK_SEES = "Every Mac can read the text: each has a part of every layer and gets the token ids."
ON_THE_CABLE = "RDMA data is not encrypted on the cable."
_SHARED: Final[dict[Strategy, str]] = {"tp": "Every layer split", "pp": "Split by layers", "single": "On one Mac"}
_ADDED_UP: Final[dict[GroupKind, str]] = {
    "sealed": "; reduces over encrypted links",
    "rdma": "; reduces over RDMA",
    "nccl": "; reduces by NCCL, not encrypted",
}


def notes_of(
    plan: Plan, ideal: Sequence[int], left_out: Sequence[str], profile: SplitProfile | None
) -> tuple[str, ...]:
    """Notes of a plan: moved cuts, Macs left out, who can read tokens, batching.

    `ideal`: first layer of each owner but the first if the model could be cut anywhere; `left_out`: names of Macs
    without a cut. Without a `profile` only notes about the plan itself.
    """
    notes = [*([shared(plan.parallelism)] if plan.parallelism else []), *_sight_notes(plan)]
    if plan.wire:
        notes.append(ON_THE_WIRE[plan.wire])
    if profile is None:
        return tuple(notes)
    if profile.reveals_tokens and len(plan.stages) > 1 and not has_ranks(plan):
        notes.append(EVERY_MAC_SEES)
    if plan.kv_bits:
        notes.append("One request at a time: mlx-lm can't batch compressed caches.")
    elif profile.one_row:
        notes.append(f"One request at a time: {profile.one_row}.")
    return (*_left_out(left_out, profile), *_moved(plan, ideal, profile), *notes)


def shared(how: Parallelism) -> str:
    added_up = _ADDED_UP[how.group] if how.strategy == "tp" else ""
    return f"{_SHARED[how.strategy]}: {how.reason}{added_up}."


def sees(plan: Plan | None, device_id: str) -> str:
    """Everything a plan lets a Mac read, in words; "" if it has no part in it."""
    macs = [stage.device_id for stage in plan.stages] if plan else []
    if plan and plan.prefill and plan.prefill.stage.device_id == device_id:
        return "token ids of the prompts that it reads"
    if plan is None or device_id not in macs:
        return ""
    index = macs.index(device_id)
    if readable := _readable(plan, index):
        return ", ".join(readable)
    start, last = plan.stages[index].start, plan.stages[index].stop - 1
    layers = f"layer {last}" if start == last else f"layers {start}–{last}"
    could_tell = ", and could infer the prompt's tokens" if EVERY_MAC_SEES in plan.notes else ""
    return f"hidden states of {layers}{could_tell}"


def where_cut(profile: SplitProfile) -> str:
    """Number of places where the model can be cut, or the reason for none."""
    if not profile.cuts:
        return f"this model cannot be split, because {profile.unsplittable}."
    places = len(profile.cuts)
    return f"this model can be cut in {places} place{'s' * (places > 1)} only."


def before_which(cuts: Sequence[int]) -> str:
    """ "before layers 1–3, 8": where a model may be cut."""
    return f"before layer{'s' * (len(cuts) > 1)} {', '.join(range_texts(ranges(cuts)))}"


def why_not_cut(cut: int, profile: SplitProfile) -> str:
    """Name the layers around an illegal cut that share state."""
    first = max((c for c in profile.cuts if c < cut), default=0) + 1
    last = min((c for c in profile.cuts if c > cut), default=profile.layers) - 1
    if first == last:
        return f"layer {first} shares state with those before"
    return f"layers {first} to {last} share state with those before"


def _readable(plan: Plan, index: int) -> list[Sight]:
    return [sight for sight in sights(plan, index) if sight != "activations"]


def _sight_notes(plan: Plan) -> list[str]:
    if has_ranks(plan):
        plain = plan.parallelism is not None and plan.parallelism.group == "rdma"
        return [EVERY_RANK_SEES, *([ON_THE_CABLE] * plain)]
    return [
        f"{stage.peer} sees {_listed(readable)}: it has the {'embedding' if role_of(plan, index).embeds else 'output'}."
        for index, stage in enumerate(plan.stages)
        if index and (readable := _readable(plan, index))
    ]


def _moved(plan: Plan, ideal: Sequence[int], profile: SplitProfile) -> list[str]:
    notes = []
    for owner, wanted in zip(plan.owners[1:], ideal, strict=True):
        if owner.start != wanted:
            why = "the other cuts need the room" if wanted in profile.cuts else why_not_cut(wanted, profile)
            notes.append(f"{owner.peer} starts at layer {owner.start} instead of {wanted}: {why}.")
    return notes


def _left_out(names: Sequence[str], profile: SplitProfile) -> list[str]:
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    return [f"{_listed(names)} {verb} left out: {where_cut(profile)}"]


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
