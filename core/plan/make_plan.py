"""Make a plan from a model's sizes and the Macs' budgets, or report by how much it doesn't fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Unpack

import msgspec

from core.errors import DoesNotFit, PlanError, UnsupportedModel
from core.events import GroupKind, Parallelism, Peer, Plan, Stage, Topology
from core.models.slicing.split_profile import SplitProfile
from core.plan.assign_layers import split_as_given, split_by_budget
from core.plan.context_choice import choose_context
from core.plan.hop_bytes import hop_bytes
from core.plan.notes import LOSSY, notes_of, where_cut
from core.plan.plan_inputs import PlanInputs
from core.plan.stage_sizes import StageSizes
from core.plan.strategy import Circumstances, check_asked, decide
from core.plan.survival import on_fewer, with_indispensable
from core.plan.topology import LONE_MAC_TOPOLOGY, TOPOLOGIES, TOPOLOGY_OF_RANKS, has_ranks
from core.settings import CHUNK_BYTES, DEFAULT_CONTEXT, DEFAULT_ROWS, GB, PREFILL_CHUNK

Drafts = Callable[[Topology | None], Plan]
# reason why a plan doesn't fit; "" if it does
Lacks = Callable[[Plan], str]


def make_plan(**inputs: Unpack[PlanInputs]) -> Plan:
    plan = draft_plan(**inputs)
    if short := shortage(plan, inputs.get("profile")):
        raise short
    return plan


def draft_plan(**inputs: Unpack[PlanInputs]) -> Plan:
    """Plan a model over `peers`, the head first, with the given `layers` or in proportion to budgets.

    The topology is the given one, else that of `layers`, else private, or single on one Mac. Without a `context` it is
    chosen by memory. With a `profile`, illegal cuts are moved and Macs without a cut left out. The plan may not fit;
    then `indispensable` is empty.

    Raises the errors of `split_layers`, `route` and `choose_topology`, IllegalCut, PlanError if the topology needs more
    Macs, and UnsupportedModel if the caches can't use `kv_bits`.
    """
    inputs, note = _with_context(inputs)
    plan = _draft(inputs)
    plan = msgspec.structs.replace(plan, notes=(*plan.notes, *filter(None, [note])))
    if shortage(plan):
        return plan
    can_lose = inputs.get("can_lose", lambda *_: True)
    return with_indispensable(plan, inputs["peers"], lambda peers: _fits_on(peers, inputs), can_lose)


def _fits_on(peers: Sequence[Peer], inputs: PlanInputs) -> bool:
    there: PlanInputs = {**inputs, **on_fewer(len(peers), inputs), "peers": peers}
    try:
        return shortage(_draft(there)) is None
    except PlanError:
        return False


def _with_context(inputs: PlanInputs) -> tuple[PlanInputs, str]:
    """`inputs` with a context and the Macs' free memory at it, and a note on a context that is chosen or too long."""
    asked, longest = inputs["context"], inputs.get("longest", DEFAULT_CONTEXT)
    peers_at: Callable[[int], Sequence[Peer]] = inputs.get("peers_at", lambda _: inputs["peers"])
    if asked:
        note = f"Context: {asked:,} tokens, but the model takes {longest:,}." if "longest" in inputs else ""
        return {**inputs, "peers": peers_at(asked)}, note if asked > longest else ""

    def macs_for(context: int, free: float) -> int:
        try:
            budgets = [(peer, int(peer.budget_bytes * (1 - free))) for peer in peers_at(context)]
            head, *others = [msgspec.structs.replace(peer, budget_bytes=budget) for peer, budget in budgets]
            there: PlanInputs = {**inputs, "context": context, "peers": [head, *others]}
            if shortage(_draft(there)):
                return 0
        except PlanError:
            return 0
        others.sort(key=lambda peer: -peer.budget_bytes)
        fewer = range(len(others) if not inputs.get("layers") else 0)
        return 1 + next((n for n in fewer if _fits_on([head, *others[:n]], there)), len(others))

    chosen = choose_context(longest, macs_for)
    return {**inputs, "context": chosen.tokens, "peers": peers_at(chosen.tokens)}, chosen.why


def _draft(inputs: PlanInputs) -> Plan:
    topology, parallelism = choose_topology(lambda topology: _laid_out(inputs, topology), _lacks, **inputs)
    return _laid_out(inputs, topology, parallelism)


def _laid_out(inputs: PlanInputs, topology: Topology | None, parallelism: Parallelism | None = None) -> Plan:
    model, layout, peers, layers = inputs["model"], inputs["layout"], inputs["peers"], inputs.get("layers", ())
    profile, kv_bits, context = inputs.get("profile"), inputs.get("kv_bits"), inputs["context"]
    rows = inputs.get("rows", DEFAULT_ROWS)
    assert context
    if kv_bits and profile and profile.whole_bits:
        what = f"The cache of {model} can't be compressed to {kv_bits} bits: {profile.whole_bits}."
        raise UnsupportedModel(what, "Leave the cache uncompressed.")
    head = peers[0].device_id if peers else ""
    sizes = StageSizes(layout, profile, context, kv_bits, PREFILL_CHUNK, rows, head=head)
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
        # ranks work on the same chunk at the same time
        window=len(ring) // ranks + 1,
        rows=rows,
        kv_bits=kv_bits,
        stages=tuple(sizes.stage(split.macs[mac], part, output=mac == output) for mac, part in ring),
        output=split.macs[output].device_id,
        batched=not (kv_bits or (profile and profile.one_row)),
        parallelism=parallelism,
        # other topologies have no hidden states between stages
        wire=inputs.get("wire") if len(ring) > 1 and ranks == 1 else None,
    )
    notes = (*filter(None, [split.balance]), *notes_of(plan, split.ideal, split.left_out, profile))
    return msgspec.structs.replace(plan, chunk=_chunk(plan, profile), notes=notes)


def shortage(plan: Plan, profile: SplitProfile | None = None) -> DoesNotFit | None:
    """Why `plan` doesn't fit: which Mac lacks how much; None if it fits."""
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
        f"({gigabytes(need)} GB needed in total, {gigabytes(total)} GB usable on "
        f"{macs} Mac{'s' * (macs > 1)}).",
        fix,
    )


def _lacks(plan: Plan) -> str:
    """The rank that is too small for its part, and by how much; "" if none is."""
    worst = max(plan.stages, key=missing_bytes)
    missing = missing_bytes(worst)
    return f"equal parts need {gigabytes(missing)} GB more on {worst.peer}" if missing > 0 else ""


def missing_bytes(stage: Stage) -> int:
    return stage.needed_bytes - stage.budget_bytes


def gigabytes(count: int) -> str:
    """Bytes in GB, with three decimals below 0.1; never 0, so that no text says "needs 0.0 GB more"."""
    value = count / GB
    return f"{value:.1f}" if value >= 0.0995 else f"{max(0.001, value):.3f}"


def room_for_whole(head: Stage) -> int:
    """Bytes that the weights of a whole model may take before the head loads its stage."""
    return head.budget_bytes - head.step_bytes - head.tokenizer_bytes


def with_verification(plan: Plan, total_bytes: int) -> tuple[Plan, bool]:
    """The plan, and whether the head can compare logits: the whole model fits there and the wire is lossless."""
    missing = 0 if has_ranks(plan) else total_bytes - room_for_whole(plan.head)
    if plan.wire in LOSSY:
        note = f"Not verified: hidden states are sent as {plan.wire}, so logits may differ from one Mac's."
    elif missing <= 0:
        return plan, True
    else:
        note = f"Not verified: the whole model needs {gigabytes(missing)} GB more than {plan.head.peer} has."
    return msgspec.structs.replace(plan, notes=(*plan.notes, note)), False


def _chunk(plan: Plan, profile: SplitProfile | None) -> int:
    """Prompt tokens per frame, a power of two: fewer for families that send much per token."""
    widest = max(hop_bytes(plan, profile), default=1)
    return min(plan.chunk, 1 << max(1, CHUNK_BYTES // widest).bit_length() - 1)


class TopologyChoice(NamedTuple):
    """The topology (None: the default one), and how it was decided."""

    topology: Topology | None
    parallelism: Parallelism | None


def choose_topology(draft: Drafts, lacks: Lacks, **inputs: Unpack[PlanInputs]) -> TopologyChoice:
    """Choose the topology. `draft` lays the model out, fitting or not. Raises UsageError; PlanError if impossible."""
    check_asked(inputs)
    asked, choice = inputs.get("topology"), inputs.get("parallelism")
    by_name = choice is None and asked is not None and TOPOLOGIES[asked].ranks
    if choice is None and not by_name:
        return TopologyChoice(asked, None)
    model, peers = inputs["layout"].sharding, inputs["peers"]
    other = Circumstances(no_group=inputs.get("no_group", ""))
    group: GroupKind = "rdma" if inputs.get("rdma") else "sealed"
    strategy, reason = decide(choice or "tp", len(peers), model, other)
    if choice == "auto" and strategy == "tp":
        made = Parallelism(choice=choice, strategy=strategy, reason=reason, group=group)
        ranks = msgspec.structs.replace(draft(TOPOLOGY_OF_RANKS), parallelism=made)
        other = other._replace(rtt_s=_longest_rtt(inputs), too_large=lacks(ranks), slower=_slower(ranks, draft, inputs))
        strategy, reason = decide(choice, len(peers), model, other)
    if by_name and strategy != "tp":
        raise _cannot_be(inputs["model"], reason, peers)
    topologies: dict[str, Topology | None] = {"tp": TOPOLOGY_OF_RANKS, "single": LONE_MAC_TOPOLOGY, "pp": asked}
    made = Parallelism(
        choice=choice or "tp", strategy=strategy, reason=reason, group=group if strategy == "tp" else "sealed"
    )
    return TopologyChoice(topologies[strategy], made)


def _longest_rtt(inputs: PlanInputs) -> float | None:
    macs, rtt = [peer.device_id for peer in inputs["peers"]], inputs.get("rtt")
    if rtt is None or inputs.get("rdma"):  # the control link's round trip is not that of RDMA
        return None
    known = [rtt(*ends) for ends in pairwise([*macs, macs[0]])]
    return max((found for found in known if found is not None), default=None)


def _slower(ranks: Plan, draft: Drafts, inputs: PlanInputs) -> str:
    """A comparison with figures if splitting by layers is expected to be faster, else ""."""
    if (expects := inputs.get("expects")) is None:
        return ""
    try:
        one, other = expects(ranks), expects(draft(None))
    except PlanError:  # only ranks are possible
        return ""
    if one is None or other is None or one.tokens_per_s >= other.tokens_per_s:
        return ""
    return (
        f"splitting every layer would give about {one.tokens_per_s:.1f} tokens/s, "
        f"splitting by layers {other.tokens_per_s:.1f}"
    )


def _cannot_be(model: str, reason: str, peers: Sequence[Peer]) -> PlanError:
    more = "Leave out some of the Macs, or choose another topology." if len(peers) > 2 else "Choose another topology."
    fix = more if len(peers) > 1 else f"Pair another Mac, or choose the topology {LONE_MAC_TOPOLOGY}."
    return PlanError(f"{model} cannot run in the topology {TOPOLOGY_OF_RANKS}: {reason}.", fix)
