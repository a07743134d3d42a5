"""Prefill on a Mac outside the ring, and when it pays. Pure.

A Mac with fast arithmetic reads the prompt with all layers and sends its caches to the stages meanwhile. The stages
take them like a restored mirror, so the ring computes only the last token. Head and prefill Mac share a plan of their
own with two stages, the head's without layers: the same links, frames and rules apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from core.errors import DoesNotFit, PlanError, UnsupportedModel
from core.events import Peer, Plan, Prefill, Stage
from core.models.slicing.split_profile import SplitProfile
from core.plan.forecast import CLEARLY_FASTER, PROMPT_GAIN, PROMPT_TOKENS, Estimate, MacSpeeds
from core.plan.make_plan import gigabytes, missing_bytes
from core.plan.mirror import MOST_STATE
from core.plan.stage_sizes import StageSizes
from core.plan.topology import has_ranks
from core.settings import MIB

# shorter prompts take longer to hand on than to read
LEAST: Final = 256
# assumed share of the ring's time for a Mac that the user chose and that is not measured
TAKEN: Final = 0.5


class ReadTimes(NamedTuple):
    """Prefill time of `PROMPT_TOKENS` tokens on the ring and on the prefill Mac; None: unknown."""

    ring: Estimate | None
    prefill_mac: Estimate | None

    @property
    def share(self) -> float | None:
        """The prefill Mac's time divided by the ring's, if both figures are of the same kind."""
        if self.ring is None or self.prefill_mac is None or self.ring.measured != self.prefill_mac.measured:
            return None
        return self.prefill_mac.seconds / self.ring.seconds

    @property
    def is_known_faster(self) -> bool:
        share = self.share
        return (
            share is not None and share * CLEARLY_FASTER <= 1 and bool(self.prefill_mac and self.prefill_mac.measured)
        )


def prefill_plan(plan: Plan, plan_gen: int) -> Plan:
    """The plan that the head and the prefill Mac share: the latter embeds and runs all layers."""
    assert plan.prefill
    reader = plan.prefill.stage
    none = msgspec.structs.replace(
        plan.head, start=plan.layers, stop=plan.layers, weight_bytes=0, kv_bytes=0, step_bytes=0, tokenizer_bytes=0
    )
    return Plan(
        plan_gen=plan_gen,
        model=plan.model,
        fingerprint=plan.fingerprint,
        topology="reverse",
        layers=plan.layers,
        context=plan.context,
        chunk=plan.chunk,
        rows=1,
        kv_bits=plan.kv_bits,
        stages=(none, reader),
        output=plan.head.device_id,
    )


def is_worth(prefill: Prefill, tokens: int, unread: int) -> bool:
    """Whether the prefill Mac should read `tokens` tokens (it caches none), `unread` of them uncached on the ring."""
    return unread >= prefill.least and prefill.share * tokens <= unread


def reader_of(plan: Plan, sizes: StageSizes, reader: Peer, profile: SplitProfile | None) -> Stage:
    """The prefill Mac's stage. Raises PlanError or UnsupportedModel if it can't prefill here, DoesNotFit."""
    if has_ranks(plan):
        what = "A tensor split divides every cache, so another Mac can't prefill for it."
        raise PlanError(what, "Split by layers, or load it without prefill on another Mac.")
    if profile and max((cache.fixed_bytes for cache in profile.caches), default=0) > MOST_STATE:
        what = f"The state of a layer of {plan.model} is over {MOST_STATE // MIB} MiB, too large to send."
        raise UnsupportedModel(what, "Load it without prefill on another Mac.")
    stage = sizes.stage(reader, range(plan.layers), output=False)
    if (missing := missing_bytes(stage)) > 0:
        what = f"To prefill, {reader.name} needs all layers of {plan.model}: {gigabytes(missing)} GB more"
        raise DoesNotFit(f"{what} than it has.", "Choose another Mac, or load it without prefill on another Mac.")
    return stage


def beside_s(plan: Plan, stage: Stage, read_bytes: int, speeds: MacSpeeds) -> Estimate | None:
    """Seconds until the ring has the caches of `PROMPT_TOKENS` tokens from the Mac of `stage`, which reads `read_bytes`
    of weights per token. Computing, sending and receiving of chunks overlap.
    """
    chunk = min(plan.chunk, PROMPT_TOKENS)
    computed = speeds.by_chip("prompt", read_bytes * chunk, stage.device_id, PROMPT_GAIN)
    if computed is None:
        return None
    macs = [each.device_id for each in plan.stages]
    kept = [each.kv_bytes * chunk // max(1, plan.context) for each in plan.stages]
    hops = [speeds.hop(sum(kept), stage.device_id, macs[0])]
    hops += [speeds.hop(sum(kept[at + 1 :]), macs[at], macs[at + 1]) for at in range(len(macs) - 1)]
    steps = [computed.seconds, *(hop.seconds for hop in hops)]
    return Estimate(sum(steps) + (PROMPT_TOKENS / chunk - 1) * max(steps), computed.measured)


def with_prefill(plan: Plan, stage: Stage, readers: ReadTimes) -> Plan:
    """Add the Mac of `stage` for long prompts, unless it is known not to be faster; a note explains it."""
    share = readers.share
    if share is not None and share * CLEARLY_FASTER > 1:
        note = f"The ring reads all prompts: {stage.peer} would not be faster, with {_seconds(readers)}."
        return msgspec.structs.replace(plan, notes=(*plan.notes, note))
    why = f": {_seconds(readers)}" if share is not None else ", not measured yet"
    note = f"{stage.peer} reads prompts of {LEAST} tokens or more, and sees their token ids{why}."
    prefill = Prefill(stage=stage, least=LEAST, share=TAKEN if share is None else share)
    return msgspec.structs.replace(plan, prefill=prefill, notes=(*plan.notes, note))


def quickest_reader(
    found: Sequence[tuple[str, ReadTimes, float | None]], ring: Estimate | None, token_s: float | None
) -> str:
    """Device id of the Mac that should prefill instead of holding layers, or "".

    `found`: for each Mac the times without it in the ring, and seconds per token then; `ring` and `token_s`: with all
    Macs. Only measurements count: prompts must get clearly faster, and tokens not clearly slower.
    """
    useful = [
        (readers.prefill_mac.seconds, mac)
        for mac, readers, without_s in found
        if readers.prefill_mac and readers.is_known_faster
        if ring and ring.measured and readers.prefill_mac.seconds * CLEARLY_FASTER <= ring.seconds
        if without_s and token_s and without_s <= token_s * CLEARLY_FASTER
    ]
    return min(useful, default=(0.0, ""))[1]


def _seconds(readers: ReadTimes) -> str:
    assert readers.ring
    assert readers.prefill_mac
    how = "measured" if readers.prefill_mac.measured else "estimated"
    seconds = readers.prefill_mac.seconds
    return f"{seconds:.1f} s for {PROMPT_TOKENS:,} tokens instead of {readers.ring.seconds:.1f} s ({how})"
