"""A plan from a model's bytes and the Macs' budgets; refuses what does not fit, with the number of GB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import msgspec

from core.errors import DoesNotFit, PlanError, UnsupportedModel
from core.events import Parallelism, Peer, Plan, Stage, Topology
from core.models.slicing.split_profile import SplitProfile
from core.plan.assign_layers import split_as_given, split_by_budget
from core.plan.hop_bytes import hop_bytes
from core.plan.notes import LOSSY, notes_of, where_cut
from core.plan.parallelism import choose_topology
from core.plan.plan_inputs import PlanInputs
from core.plan.stage_sizes import StageSizes
from core.plan.survival import on_fewer, with_indispensable
from core.plan.topology import TOPOLOGIES
from core.settings import CHUNK_BYTES, DEFAULT_ROWS, GB, PREFILL_CHUNK


def make_plan(**inputs: Unpack[PlanInputs]) -> Plan:
    """The plan as `draft_plan` makes it. Raises its errors, and DoesNotFit as `shortage` words it."""
    plan = draft_plan(**inputs)
    if short := shortage(plan, inputs.get("profile")):
        raise short
    return plan


def draft_plan(**inputs: Unpack[PlanInputs]) -> Plan:
    """The plan over `peers`, the head first, with `layers` as `core.plan.topology` reads them, or else in proportion to
    budgets. Without a `topology` it is the one that `layers` make, or private, or single where there is one Mac; with
    `parallelism` it is what `core.plan.strategy` decides.

    With the model's `profile`, cuts that it forbids are moved, Macs for which there is no cut are left out, and the
    notes say so; without it every cut counts as legal. It may not fit: then it names no Mac that it could not lose.

    Raises the errors of `split_layers`, `route` and `choose_topology`, IllegalCut, PlanError where the topology needs
    more Macs, and UnsupportedModel where the caches cannot be kept in `kv_bits`.
    """
    plan = _draft(inputs)
    if shortage(plan):
        return plan
    can_lose = inputs.get("can_lose", lambda *_: True)
    return with_indispensable(plan, inputs["peers"], lambda peers: _fits_on(peers, inputs), can_lose)


def _fits_on(peers: Sequence[Peer], inputs: PlanInputs) -> bool:
    """Whether what was asked for `inputs["peers"]` could go on over these."""
    there: PlanInputs = {**inputs, "peers": peers, **on_fewer(len(peers), inputs)}
    try:
        return shortage(_draft(there)) is None
    except PlanError:
        return False


def _draft(inputs: PlanInputs) -> Plan:
    topology, parallelism = choose_topology(lambda topology: _laid_out(inputs, topology), _lacks, **inputs)
    return _laid_out(inputs, topology, parallelism)


def _laid_out(inputs: PlanInputs, topology: Topology | None, parallelism: Parallelism | None = None) -> Plan:
    """The plan in a `topology`, however that was decided."""
    model, layout, peers, layers = inputs["model"], inputs["layout"], inputs["peers"], inputs.get("layers", ())
    profile, kv_bits, context = inputs.get("profile"), inputs.get("kv_bits"), inputs["context"]
    rows = inputs.get("rows", DEFAULT_ROWS)
    if kv_bits and profile and profile.whole_bits:
        what = f"The caches of {model} cannot be kept in {kv_bits} bits: {profile.whole_bits}."
        raise UnsupportedModel(what, "Keep them as they are: without --kv-bits, or K in the list of models.")
    sizes = StageSizes(layout, profile, context, kv_bits, PREFILL_CHUNK, rows)
    if layers:
        split = split_as_given(model, layers, peers, topology, layout.layers, profile)
    else:
        balance, stage_s = inputs.get("balance", "memory"), inputs.get("stage_s", lambda *_: None)
        split = split_by_budget(model, sizes, peers, topology, profile, balance, stage_s)
    ring, output = split.route.ring, split.route.output
    ranks = len(ring) if TOPOLOGIES[split.route.topology].ranks else 1
    sizes = sizes._replace(ranks=ranks)
    plan = Plan(
        plan_gen=inputs["plan_gen"],
        model=model,
        fingerprint=inputs["fingerprint"],
        topology=split.route.topology,
        layers=layout.layers,
        context=context,
        chunk=PREFILL_CHUNK,
        # ranks work at the same time, at the same chunk
        window=len(ring) // ranks + 1,
        rows=rows,
        kv_bits=kv_bits,
        stages=tuple(sizes.stage(split.macs[mac], part, output=mac == output) for mac, part in ring),
        output=split.macs[output].device_id,
        batched=not (kv_bits or (profile and profile.one_row)),
        parallelism=parallelism,
        # nothing else has hidden states between stages
        wire=inputs.get("wire") if len(ring) > 1 and ranks == 1 else None,
    )
    notes = (*filter(None, [split.balance]), *notes_of(plan, split.ideal, split.left_out, profile))
    return msgspec.structs.replace(plan, chunk=_chunk(plan, profile), notes=notes)


def shortage(plan: Plan, profile: SplitProfile | None = None) -> DoesNotFit | None:
    """Why `plan` does not fit, naming the Mac that is short and by how much; None where it fits."""
    worst = max(plan.stages, key=missing_bytes)
    if missing_bytes(worst) <= 0:
        return None
    need = sum(s.needed_bytes for s in plan.stages)
    total = sum(s.budget_bytes for s in plan.stages)
    macs = len(plan.stages)
    fix = ""
    if profile and macs > len(profile.cuts):
        fix = f"Free memory there, or choose a smaller model; more Macs do not help: {where_cut(profile)}"
    return DoesNotFit(
        f"{plan.model} needs {gigabytes(missing_bytes(worst))} GB more on {worst.peer} "
        f"({gigabytes(need)} GB needed in all, {gigabytes(total)} GB usable on "
        f"{macs} Mac{'s' * (macs > 1)}).",
        fix,
    )


def _lacks(plan: Plan) -> str:
    """Which of the ranks of `plan` is too small for its part, "" where none is."""
    worst = max(plan.stages, key=missing_bytes)
    missing = missing_bytes(worst)
    return f"equal parts need {gigabytes(missing)} GB more on {worst.peer}" if missing > 0 else ""


def missing_bytes(stage: Stage) -> int:
    """By how many bytes a stage exceeds its Mac; below zero what stays free."""
    return stage.needed_bytes - stage.budget_bytes


def gigabytes(count: int) -> str:
    """Bytes in GB, three decimals below a tenth; never 0, so that "needs 0.0 GB more" is never said."""
    value = count / GB
    return f"{value:.1f}" if value >= 0.0995 else f"{max(0.001, value):.3f}"


def with_verification(plan: Plan, total_bytes: int) -> tuple[Plan, bool]:
    """Whether the whole model of `total_bytes` can be compared: the head has room for it beside its layers, and nothing
    is lost on the wire. The plan says where not."""
    missing = missing_bytes(plan.head) + total_bytes
    if plan.wire in LOSSY:
        note = f"Not verified: hidden states travel as {plan.wire}, so logits need not be those of one Mac."
    elif missing <= 0:
        return plan, True
    else:
        note = f"Not verified: the whole model needs {gigabytes(missing)} GB more than {plan.head.peer} has."
    return msgspec.structs.replace(plan, notes=(*plan.notes, note)), False


def _chunk(plan: Plan, profile: SplitProfile | None) -> int:
    """Tokens of a prompt in one frame: fewer than planned where a family sends much for each token."""
    widest = max(hop_bytes(plan, profile), default=1)
    return min(plan.chunk, max(1, CHUNK_BYTES // widest))
