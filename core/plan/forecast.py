"""Forecast the speed of a plan for one user: seconds per token, per prompt and per load.

A single request passes one Mac after the other, so a token takes the sum of all stages and hops. Ranks compute in
parallel and wait for each other twice per layer. Measurements on these Macs come first; otherwise the chip's memory
bandwidth and the round trip give an estimate. A plan that ran before takes what it took then, its parts in proportion.
Attention to earlier tokens is ignored: the figures are for a short conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

import msgspec

from core.events import Plan
from core.models.files.layout import Layout
from core.plan.all_reduce import ring_steps, sealed_steps
from core.plan.chip_bandwidth import memory_bytes_per_s
from core.plan.cost_curve import REACH, Curves, Kind, curve_name, seconds_for
from core.plan.stage_roles import departing
from core.plan.topology import has_ranks
from core.requests.plans import Forecast

PROMPT_TOKENS: Final = 1000
# share of the bandwidth: decoding reaches 0.45 to 0.85 by llama.cpp's public figures for a 7B model (discussion #4167)
EFFICIENCY: Final = 0.6
# in the same figures a prompt token in 4 bits takes a sixth of what the bandwidth alone would need
PROMPT_GAIN: Final = 6.0
LEAD_S: Final = 0.001
# sealing, copying and waking up, at both ends
HOP_WORK_S: Final = 0.0005
HOP_RTT_S: Final = 0.003
HOP_BYTES_PER_S: Final = 100e6
ACK_BYTES: Final = 64
# of a hidden state, if the model was not examined
HIDDEN_BYTES: Final = 8192
DISK_BYTES_PER_S: Final = 2e9
JOIN_S: Final = 3.0
# of RDMA over a Thunderbolt 5 cable, by public figures
RDMA_S: Final = 25.5e-6
RDMA_BYTES_PER_S: Final = 8e9
# a smaller difference is noise
CLEARLY_FASTER: Final = 1.15


class Estimate(NamedTuple):
    """Seconds, and whether they were measured."""

    seconds: float
    measured: bool


class PlanWork(NamedTuple):
    """Work of a plan per token. Tuples are in ring order."""

    plan: Plan
    reads: Sequence[int]  # bytes of weights read by each stage
    hop_bytes: Sequence[int]  # bytes sent by each stage; empty: unknown
    whole_reads: int | None  # bytes the head alone would read; None: no room, or it has everything already
    reduces: int = 0  # reduces per token
    reduced_bytes: int = 0  # per reduce


def plan_work_of(plan: Plan, layout: Layout, hop_bytes: Sequence[int], whole_bytes: int) -> PlanWork:
    room = plan.head.budget_bytes - plan.head.tokenizer_bytes
    has_room = len(plan.stages) > 1 and whole_bytes <= room
    whole_reads = layout.read_bytes(0, layout.layers, output=True) if has_room else None
    reduced = (layout.sharding.reduces, layout.sharding.hidden_bytes) if has_ranks(plan) else (0, 0)
    return PlanWork(plan, reads_of(plan, layout), hop_bytes, whole_reads, *reduced)


def shape_of(plan: Plan) -> str:
    """Hash of everything that determines a plan's speed: model, layers, Macs and transport."""
    group = plan.parallelism.group if plan.parallelism and has_ranks(plan) else ""
    layers = [(stage.device_id, stage.start, stage.stop) for stage in plan.stages]
    beside = plan.prefill.stage.device_id if plan.prefill else ""
    mirrored = plan.mirror_bytes > 0
    ways = (plan.topology, group, plan.wire, plan.kv_bits, plan.chunk, plan.window, plan.draft, beside, mirrored)
    return hashlib.sha256(msgspec.json.encode((plan.fingerprint, plan.output, layers, ways))).hexdigest()[:32]


def reads_of(plan: Plan, layout: Layout) -> tuple[int, ...]:
    """Bytes of weights that each stage reads per token, in ring order."""
    ranks = len(plan.stages) if has_ranks(plan) else 1
    ends = layout.read_bytes(0, 0, output=True)
    return tuple(
        layout.read_bytes(s.start, s.stop, output=False) // ranks + ends * (s.device_id == plan.output)
        for s in plan.stages
    )


class MacSpeeds(NamedTuple):
    """Known speeds of the Macs. Macs are device ids."""

    chips: Mapping[str, str]  # chip names
    rtt: Callable[[str, str], float | None]  # round trip between two Macs in seconds
    curves: Curves
    simulated: bool = False  # chip names don't predict prefill: no GPU computes

    def measured(self, kind: Kind, amount: float, *macs: str) -> Estimate | None:
        seconds = seconds_for(self.curves.get(curve_name(kind, *macs), ()), amount, REACH[kind])
        return None if seconds is None else Estimate(seconds, True)

    def stage_s(self, layout: Layout, mac: str, layers: range, output: bool) -> float | None:
        """Seconds per token of these layers on a Mac, extrapolated without limit; None if nothing was measured."""
        reads = layout.read_bytes(layers.start, layers.stop, output=output)
        return seconds_for(self.curves.get(curve_name("token", mac), ()), reads, inf)

    def by_chip(self, kind: Kind, amount: float, mac: str, gain: float) -> Estimate | None:
        """Measured time, else an estimate from `gain` times the chip's bandwidth; None if both are unknown."""
        bytes_per_s = memory_bytes_per_s(self.chips.get(mac, ""))
        guess = None if bytes_per_s is None else Estimate(amount / (gain * bytes_per_s), False)
        return self.measured(kind, amount, mac) or guess

    def hop(self, size: float, source: str, target: str) -> Estimate:
        """Time of a frame of `size` bytes in either direction; small frames take as long as the smallest measured."""
        for pair in sorted(((source, target), (target, source)), key=lambda pair: not self._has_measured(size, *pair)):
            curve = self.curves.get(curve_name("hop", *pair), ())
            if curve and (found := self.measured("hop", max(size, curve[0].amount), *pair)):
                return found
        rtt_s = self.rtt(source, target)
        guess = HOP_WORK_S + (HOP_RTT_S if rtt_s is None else rtt_s) / 2 + size / HOP_BYTES_PER_S
        return Estimate(guess, False)

    def _has_measured(self, size: float, *pair: str) -> bool:
        curve = self.curves.get(curve_name("hop", *pair), ())
        return bool(curve) and size <= curve[-1].amount

    def reduce(self, size: int, macs: Sequence[str], *, rdma: bool) -> Estimate:
        """Time until the ranks `macs`, a ring, have summed `size` bytes."""
        if rdma:
            steps = ring_steps(size, len(macs))
            return Estimate(steps.number * (RDMA_S + steps.bytes / RDMA_BYTES_PER_S), False)
        if found := self.measured("reduce", size, macs[0], str(len(macs))):
            return found
        steps = sealed_steps(size, len(macs))
        hops = [self.hop(steps.bytes, *pair) for pair in zip(macs, [*macs[1:], macs[0]], strict=True)]
        return Estimate(steps.number * max(hop.seconds for hop in hops), all(hop.measured for hop in hops))

    def flat(self, kind: Kind, mac: str, guess_s: float) -> Estimate:
        return self.measured(kind, 1, mac) or Estimate(guess_s, False)


def forecast(work: PlanWork, macs: MacSpeeds) -> Forecast | None:
    found = _by_parts(work, macs)
    if found is None:
        return None
    told = _as_it_ran(found.told, shape_of(work.plan), macs)
    return _advised(told, work, sum(found.told.stages_s)) if found.compares else told


def _as_it_ran(told: Forecast, shape: str, macs: MacSpeeds) -> Forecast:
    """Scale the forecast to what a token and a prompt took when the same plan ran."""
    token, prompt = (macs.measured("plan", tokens, shape) for tokens in (1, PROMPT_TOKENS))
    share = token.seconds / told.token_s if token and token.seconds > 0 and told.token_s > 0 else 1.0
    return msgspec.structs.replace(
        told,
        stages_s=tuple(share * seconds for seconds in told.stages_s),
        hops_s=tuple(share * seconds for seconds in told.hops_s),
        reduces_s=None if told.reduces_s is None else share * told.reduces_s,
        prompt_s=prompt.seconds if prompt else told.prompt_s,
    )


class _Parts(NamedTuple):
    """A forecast from the parts of a plan; `compares`: the head alone was estimated the same way."""

    told: Forecast
    compares: bool


def _by_parts(work: PlanWork, macs: MacSpeeds) -> _Parts | None:
    plan, head = work.plan, work.plan.head.device_id
    owners = [stage.device_id for stage in plan.stages]
    lead = macs.flat("lead", head, LEAD_S)
    pairs = list(zip(owners, [*owners[1:], owners[0]], strict=True)) if len(owners) > 1 else []
    sizes = list(work.hop_bytes) or [HIDDEN_BYTES] * len(pairs)
    hops = _hops(work, macs, pairs, sizes)
    stages, prompt = _computed(work, macs, 1), _prompt(work, macs, pairs, sizes)
    if stages is None:
        return None
    stages = [Estimate(stages[0].seconds + lead.seconds, stages[0].measured and lead.measured), *stages[1:]]
    load, reduces = _load(plan, macs), _reduces(work, macs, 1)
    alone = macs.by_chip("token", work.whole_reads, head, EFFICIENCY) if work.whole_reads else None
    moves = [*hops, *([reduces] if reduces else [])]
    is_measured = all(each.measured for each in [*stages, *moves, load, *([alone] if alone else [])])
    told = Forecast(
        stages_s=tuple(each.seconds for each in stages),
        hops_s=tuple(each.seconds for each in hops),
        reduces_s=reduces.seconds if reduces else None,
        # a guess shown with measurements would pass for one of them
        prompt_s=prompt.seconds if prompt and (prompt.measured or not (is_measured or macs.simulated)) else None,
        load_s=load.seconds,
        measured=is_measured,
        alone_tokens_per_s=1 / alone_s if alone and (alone_s := alone.seconds + lead.seconds) > 0 else None,
    )
    is_like = alone is not None and alone.measured == all(each.measured for each in (*stages, *moves))
    return _Parts(told, is_like or reduces is not None)


def apart_s(work: PlanWork, macs: MacSpeeds, tokens: float) -> float | None:
    """Seconds of a step of `tokens` tokens on ranks without reduces; None if not measured, or without ranks."""
    stages = _computed(work, macs, tokens) if has_ranks(work.plan) else None
    if not stages or not all(each.measured for each in stages):
        return None
    if tokens > 1:
        return max(each.seconds for each in stages)
    found = _by_parts(work, macs)
    return found.told.token_s - (found.told.reduces_s or 0.0) if found else None


def _hops(work: PlanWork, macs: MacSpeeds, pairs: Sequence[tuple[str, str]], sizes: Sequence[int]) -> list[Estimate]:
    hops = [macs.hop(size, *pair) for size, pair in zip(sizes, pairs, strict=True)]
    return [*hops[:-1], Estimate(0.0, hops[-1].measured)] if has_ranks(work.plan) else hops


def _reduces(work: PlanWork, macs: MacSpeeds, tokens: int) -> Estimate | None:
    if not has_ranks(work.plan):
        return None
    owners, how = [stage.device_id for stage in work.plan.stages], work.plan.parallelism
    one = macs.reduce(work.reduced_bytes * tokens, owners, rdma=how is not None and how.group == "rdma")
    return Estimate(work.reduces * one.seconds, one.measured)


def _computed(work: PlanWork, macs: MacSpeeds, tokens: float) -> list[Estimate] | None:
    kind: Kind = "token" if tokens == 1 else "prompt"
    gain = EFFICIENCY if tokens == 1 else PROMPT_GAIN
    found = [
        macs.by_chip(kind, read * tokens, stage.device_id, gain)
        for read, stage in zip(work.reads, work.plan.stages, strict=True)
    ]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _prompt(work: PlanWork, macs: MacSpeeds, pairs: Sequence[tuple[str, str]], sizes: Sequence[int]) -> Estimate | None:
    """Prefill of `PROMPT_TOKENS` tokens in pipelined chunks: the first passes every step, the rest the slowest one."""
    tokens = min(work.plan.chunk, PROMPT_TOKENS)
    stages = _computed(work, macs, tokens)
    if stages is None:
        return None
    frames = [size * tokens for size in sizes]
    if frames and departing(work.plan).runs:
        frames[-1] = ACK_BYTES  # a head with the first layers gets only this back for all chunks but the last
    hops, chunks = _hops(work, macs, pairs, frames), PROMPT_TOKENS / tokens
    if reduces := _reduces(work, macs, tokens):
        every_s = max(each.seconds for each in stages) + reduces.seconds
        whole_s = sum(hop.seconds for hop in hops) + chunks * every_s
        return Estimate(whole_s, all(each.measured for each in (*stages, *hops, reduces)))
    steps = [*stages, *hops]
    seconds = [each.seconds for each in steps]
    every_s = sum(seconds) if work.plan.window == 1 else max(seconds)
    return Estimate(sum(seconds) + (chunks - 1) * every_s, all(each.measured for each in steps))


def _load(plan: Plan, macs: MacSpeeds) -> Estimate:
    join = macs.flat("join", plan.head.device_id, JOIN_S)
    reads = [
        macs.measured("load", stage.weight_bytes, stage.device_id)
        or Estimate(stage.weight_bytes / DISK_BYTES_PER_S, False)
        for stage in plan.stages
    ]
    slowest = max(each.seconds for each in reads)
    return Estimate(slowest + join.seconds, join.measured and all(each.measured for each in reads))


def _advised(told: Forecast, work: PlanWork, one_by_one_s: float) -> Forecast:
    """Add advice if the head alone is clearly faster, or if ranks are slower than the alternatives."""
    head = work.plan.head.peer
    if told.reduces_s is not None:
        return msgspec.structs.replace(told, advice=_advice_to_ranks(told, head, work.reduces, one_by_one_s))
    ratio = (told.alone_tokens_per_s or 0.0) * told.token_s
    if ratio < CLEARLY_FASTER:
        return told
    advice = (
        f"This model fits on {head} alone and would run about {ratio:.1f}× faster there. "
        "Splitting is for models that don't fit."
    )
    return msgspec.structs.replace(told, advice=advice)


def kept_advice(told: Forecast, before: str) -> str:
    """Keep earlier advice while the alternative is faster at all, so that one answer's figures don't flip it."""
    instead = told.alone_tokens_per_s or 0.0
    return told.advice or (before if instead > told.tokens_per_s else "")


def _advice_to_ranks(told: Forecast, head: str, reduces: int, one_by_one_s: float) -> str:
    """Advice if ranks are slower than the head alone, or (if that doesn't fit) than splitting by layers; else ""."""
    instead, other = told.alone_tokens_per_s, f"{head} alone"
    if instead is None:
        instead, other = 1 / one_by_one_s, "splitting by layers"
    if told.reduces_s is None or told.tokens_per_s >= instead:
        return ""
    return (
        f"Tensor would be slower than {other}: about {told.tokens_per_s:.1f} instead of {instead:.1f} tokens/s. "
        f"Its {reduces} reduces per token take {1e3 * told.reduces_s:.0f} ms over these links."
    )
