"""A plan from a model's bytes and the Macs' budgets; refuses what does not fit, with the number of GB."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NotRequired, Protocol, TypedDict, Unpack

import msgspec

from core.errors import DoesNotFit, UnsupportedModel
from core.events import Peer, Plan, Stage
from core.models.anatomy import Anatomy
from core.plan.cuts import Overflow, nearest_cuts
from core.plan.notes import notes_of, where_cut
from core.plan.split import split_layers
from core.settings import CHUNK_BYTES, DEFAULT_ROWS, GB, PREFILL_CHUNK


class Bytes(Protocol):
    """What a plan needs to know of a model's layout (`core.models.layout.Layout` has it)."""

    @property
    def layers(self) -> int:
        """How many layers the model has."""

    def stage_bytes(self, start: int, stop: int, *, embed: bool, output: bool) -> int:
        """Weights of [start, stop) in bytes."""

    def kv_bytes(self, start: int, stop: int, context: int) -> int:
        """Caches of [start, stop) at `context` tokens, in bytes."""


class Wish(TypedDict):
    """What is to be planned: a model and its bytes, over `peers`, the head first, for `context` tokens."""

    model: str
    fingerprint: str
    layout: Bytes
    peers: Sequence[Peer]
    context: int
    plan_gen: int
    anatomy: NotRequired[Anatomy | None]
    kv_bits: NotRequired[int | None]
    rows: NotRequired[int]
    chunk: NotRequired[int | None]
    window: NotRequired[int | None]


def make_plan(**wish: Unpack[Wish]) -> Plan:
    """The plan as `draft_plan` makes it. Raises its errors, and DoesNotFit as `shortage` words it."""
    plan = draft_plan(**wish)
    if short := shortage(plan, wish.get("anatomy")):
        raise short
    return plan


def draft_plan(
    *,
    model: str,
    fingerprint: str,
    layout: Bytes,
    peers: Sequence[Peer],
    context: int,
    plan_gen: int,
    anatomy: Anatomy | None = None,
    kv_bits: int | None = None,
    rows: int = DEFAULT_ROWS,
    chunk: int | None = None,
    window: int | None = None,
) -> Plan:
    """The plan over `peers`, the head first: layers in proportion to budgets, embedding and output on the head.

    With the model's `anatomy`, cuts that it forbids are moved, Macs for which there is no cut are left out, and the
    notes say so; without it every cut counts as legal. It may not fit. Raises the errors of `split_layers`, and
    UnsupportedModel where the caches cannot be kept in `kv_bits`.
    """
    if kv_bits and anatomy and anatomy.whole_bits:
        what = f"The caches of {model} cannot be kept in {kv_bits} bits: {anatomy.whole_bits}."
        raise UnsupportedModel(what, "Leave out --kv-bits.")
    kept = _kept(peers, len(anatomy.cuts)) if anatomy else peers
    ideal = [part.start for part in split_layers(layout.layers, [p.budget_bytes for p in kept])[1:]]
    cuts = tuple(ideal)
    notes: tuple[str, ...] = ()
    if anatomy:
        cuts = nearest_cuts(ideal, anatomy.cuts, layout.layers, _overflow(layout, kept, context, kv_bits))
        notes = notes_of(peers, kept, ideal, cuts, anatomy, kv_bits)
    parts = pairwise((0, *cuts, layout.layers))
    stages = tuple(_stage(layout, peer, range(*part), context, kv_bits) for peer, part in zip(kept, parts, strict=True))
    return Plan(
        plan_gen=plan_gen,
        model=model,
        fingerprint=fingerprint,
        topology="single" if len(stages) == 1 else "private",
        layers=layout.layers,
        context=context,
        chunk=_chunk(anatomy, cuts, chunk or PREFILL_CHUNK),
        window=window or len(stages) + 1,
        adapts=chunk is None and window is None,
        rows=rows,
        kv_bits=kv_bits,
        stages=stages,
        output=stages[0].device_id,
        batched=not (kv_bits or (anatomy and anatomy.one_row)),
        notes=notes,
    )


def shortage(plan: Plan, anatomy: Anatomy | None = None) -> DoesNotFit | None:
    """Why `plan` does not fit, naming the Mac that is short and by how much; None where it fits."""
    worst = max(plan.stages, key=missing_bytes)
    if missing_bytes(worst) <= 0:
        return None
    need = sum(s.weight_bytes + s.kv_bytes for s in plan.stages)
    total = sum(s.budget_bytes for s in plan.stages)
    macs = len(plan.stages)
    fix = ""
    if anatomy and macs > len(anatomy.cuts):
        fix = f"Free memory there, or choose a smaller model; more Macs do not help, for {where_cut(anatomy)}"
    return DoesNotFit(
        f"{plan.model} needs {at_least_a_tenth(missing_bytes(worst))} GB more on {worst.peer} "
        f"({at_least_a_tenth(need)} GB needed in all, {at_least_a_tenth(total)} GB usable on "
        f"{macs} Mac{'s' * (macs > 1)}).",
        fix,
    )


def missing_bytes(stage: Stage) -> int:
    """By how many bytes a stage exceeds its Mac; below zero what stays free."""
    return stage.weight_bytes + stage.kv_bytes - stage.budget_bytes


def at_least_a_tenth(count: int) -> str:
    """Bytes in GB, at least 0.1, so that "needs 0.0 GB more" is never said."""
    return f"{max(0.1, count / GB):.1f}"


def with_verification(plan: Plan, total_bytes: int) -> tuple[Plan, bool]:
    """Whether the head has room for the whole model of `total_bytes` beside its layers; the plan says where not."""
    missing = missing_bytes(plan.head) + total_bytes
    if missing <= 0:
        return plan, True
    note = f"Not verified: the whole model needs {at_least_a_tenth(missing)} GB more than {plan.head.peer} has."
    return msgspec.structs.replace(plan, notes=(*plan.notes, note)), False


def _kept(peers: Sequence[Peer], cuts: int) -> list[Peer]:
    """The head and as many of the others as there are cuts, the largest budgets first, in the order of `peers`."""
    largest = sorted(range(1, len(peers)), key=lambda i: -peers[i].budget_bytes)[:cuts]
    return [peer for i, peer in enumerate(peers) if i == 0 or i in largest]


def _overflow(layout: Bytes, peers: Sequence[Peer], context: int, kv_bits: int | None) -> Overflow:
    """Bytes that do not fit, from running sums, since it is asked for every pair of cuts."""
    stages = [_stage(layout, peers[0], range(i, i + 1), context, kv_bits) for i in range(layout.layers)]
    sums = [0, *accumulate(s.weight_bytes + s.kv_bytes for s in stages)]

    def overflow(stage: int, start: int, stop: int) -> int:
        return max(0, sums[stop] - sums[start] - peers[stage].budget_bytes)

    return overflow


def kv_bytes_of(layout: Bytes, part: range, context: int, kv_bits: int | None) -> int:
    """Bytes of the caches of the layers in `part`; quantised ones keep a scale and a bias of 16 bits a group of 64."""
    whole = layout.kv_bytes(part.start, part.stop, context)
    return -(-whole * (2 * kv_bits + 1) // 32) if kv_bits else whole


def _chunk(anatomy: Anatomy | None, cuts: Sequence[int], most: int) -> int:
    """Tokens of a prompt in one frame: fewer than `most` where a family sends much for each token."""
    if not anatomy or not cuts or not anatomy.boundary_bytes:
        return most
    widest = max(anatomy.boundary_bytes[stop - 1] for stop in (*cuts, anatomy.layers))
    return min(most, max(1, CHUNK_BYTES // widest))


def _stage(layout: Bytes, peer: Peer, part: range, context: int, kv_bits: int | None) -> Stage:
    head = part.start == 0
    return Stage(
        device_id=peer.device_id,
        peer=peer.name,
        start=part.start,
        stop=part.stop,
        weight_bytes=layout.stage_bytes(part.start, part.stop, embed=head, output=head),
        kv_bytes=kv_bytes_of(layout, part, context, kv_bits),
        budget_bytes=peer.budget_bytes,
    )
