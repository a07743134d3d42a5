"""Measures the Macs' speed in the node's own events: one answer, or one load. Pure.

A hop sample is a sum since the ring was last idle, so only an answer that runs alone counts: the difference of two
rounds of samples, over the tokens between them. Frames and reports keep their order, so a round holds exactly the work
whose tokens were reported before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

from core.events import HopSample, Plan, Progress, RequestDone, StageState, StageStatus, TokenEvent
from core.plan.cost_curve import curve_name
from core.plan.forecast import PlanWork, shape_of
from core.plan.stage_roles import departing
from core.plan.topology import has_ranks

LEAST_TOKENS: Final = 4
_READ: Final[tuple[StageStatus, ...]] = ("linking", "ready")


class Measured(NamedTuple):
    """One measurement: an amount of work and its time."""

    curve: str  # as `core.plan.cost_curve.curve_name` names it
    amount: float
    seconds: float


class MeasuredLoad(NamedTuple):
    """A running plan, and its Macs' work."""

    plan: Plan
    work: PlanWork

    @property
    def pairs(self) -> list[tuple[str, str]]:
        macs = [stage.device_id for stage in self.plan.stages]
        return list(zip(macs, [*macs[1:], macs[0]], strict=True)) if len(macs) > 1 else []


class _Round(NamedTuple):
    """Samples of all hops, in ring order."""

    read: int  # prompt tokens so far
    chunks: int  # number of prompt chunks
    tokens: int  # of the answer so far
    hops: tuple[HopSample, ...]


class _MeasuredStep(NamedTuple):
    """One token at a stage."""

    computed_s: float
    size: float  # bytes sent
    spent_s: float  # by both ends, on sending them


class AnswerMeasurement:
    """Measures one answer that runs alone."""

    def __init__(self, request_id: str, loaded: MeasuredLoad) -> None:
        self.request_id = request_id
        self._loaded = loaded
        self._read = self._chunks = self._tokens = 0
        self._samples: dict[tuple[str, str], HopSample] = {}
        self._rounds: list[_Round] = []  # the first one, the first one with a token, the last one

    def handle_event(self, event: Progress | TokenEvent | HopSample) -> None:
        match event:
            case Progress(done=done):
                self._read, self._chunks = done, self._chunks + 1
            case TokenEvent():
                self._tokens += 1
            case HopSample():
                self._samples[event.source, event.target] = event
                pairs = self._loaded.pairs
                if pairs and (event.source, event.target) == pairs[-1] and self._samples.keys() == set(pairs):
                    self._note(_Round(self._read, self._chunks, self._tokens, tuple(self._samples[p] for p in pairs)))

    def ended(self, done: RequestDone, lead_s: float, apart_s: Callable[[float], float | None]) -> list[Measured]:
        """Measurements from a finished answer. `lead_s`: the known time that the head adds to a token. `apart_s`: the
        known time of a tensor step of that number of tokens without its reduces, or None.
        """
        rate = done.decode_tokens_per_s
        if done.problem or not rate:
            return []
        whole = self._whole(done, 1 / rate)
        if has_ranks(self._loaded.plan):
            return [*whole, *self._adding_up(done, 1 / rate, apart_s)]
        beside = [*whole, *self._read_beside(done, 1 / rate)]
        if not self._loaded.pairs:
            return [*beside, *self._alone(done, rate, lead_s)]
        steps = self._steps()
        return [*beside, *self._prompt(done, steps), *self._decoding(steps, 1 / rate)] if steps else beside

    def _note(self, found: _Round) -> None:
        has_token = [bool(each.tokens) for each in self._rounds]
        if has_token[-1:] == [True] and has_token.count(True) > 1:
            self._rounds.pop()
        elif has_token[-1:] == [False] and not found.tokens:
            return
        self._rounds.append(found)

    def _whole(self, done: RequestDone, token_s: float) -> list[Measured]:
        """A token and the prompt, by the answer's clock; accepted drafts make it useless."""
        if done.tokens < LEAST_TOKENS or done.accepted_tokens:
            return []
        name = curve_name("plan", shape_of(self._loaded.plan))
        found, read = [Measured(name, 1, token_s)], done.prompt_tokens - done.reused_tokens
        if done.ttft_s and done.ttft_s > token_s and read >= LEAST_TOKENS and not done.beside_tokens:
            found.append(Measured(name, read, done.ttft_s - token_s))
        return found

    def _alone(self, done: RequestDone, rate: float, lead_s: float) -> list[Measured]:
        """With one Mac there are no hops; the answer's clock counts."""
        (mac,), (read,) = self._loaded.plan.stages, self._loaded.work.reads
        tokens, token_s = done.prompt_tokens - done.reused_tokens - done.beside_tokens, 1 / rate
        found: list[Measured] = []
        if done.tokens >= LEAST_TOKENS:
            found = _step_of(mac.device_id, read, max(token_s - lead_s, token_s / 2))
        if done.ttft_s and tokens >= LEAST_TOKENS and done.ttft_s > token_s:
            chunks = ceil(tokens / self._loaded.plan.chunk)
            seconds = (done.ttft_s - token_s) / chunks
            found.append(Measured(curve_name("prompt", mac.device_id), read * tokens / chunks, seconds))
        return found

    def _read_beside(self, done: RequestDone, token_s: float) -> list[Measured]:
        prefill, tokens = self._loaded.plan.prefill, done.beside_tokens
        if prefill is None or tokens < LEAST_TOKENS or not done.ttft_s or done.ttft_s <= token_s:
            return []
        chunks = ceil(tokens / self._loaded.plan.chunk)
        amount, seconds = sum(self._loaded.work.reads) * tokens / chunks, (done.ttft_s - token_s) / chunks
        return [Measured(curve_name("prompt", prefill.stage.device_id), amount, seconds)]

    def _adding_up(self, done: RequestDone, token_s: float, apart_s: Callable[[float], float | None]) -> list[Measured]:
        """Seconds of a reduce: the step without its known compute time."""
        plan, work = self._loaded.plan, self._loaded.work
        if plan.parallelism is None or plan.parallelism.group != "sealed":
            return []
        name = curve_name("reduce", plan.head.device_id, str(len(plan.stages)))
        steps = [(1.0, token_s)] if done.tokens >= LEAST_TOKENS else []
        read = done.prompt_tokens - done.reused_tokens
        if done.ttft_s and read >= LEAST_TOKENS and done.ttft_s > token_s:
            chunks = ceil(read / plan.chunk)
            steps.append((read / chunks, (done.ttft_s - token_s) / chunks))
        known = [(tokens, step_s, alone_s) for tokens, step_s in steps if (alone_s := apart_s(tokens)) is not None]
        return [
            Measured(name, work.reduced_bytes * tokens, max(0.0, step_s - alone_s) / work.reduces)
            for tokens, step_s, alone_s in known
        ]

    def _steps(self) -> list[_MeasuredStep] | None:
        base, last = self._base(), self._rounds[-1] if self._rounds else None
        if base is None or last is None or (tokens := last.tokens - base.tokens) < LEAST_TOKENS:
            return None
        return [
            _MeasuredStep(
                max(0.0, after.compute_s - before.compute_s) / tokens,
                (after.bytes - before.bytes) / tokens,
                max(0.0, _spent(after) - _spent(before)) / tokens,
            )
            for after, before in zip(last.hops, base.hops, strict=True)
        ]

    def _prompt(self, done: RequestDone, steps: Sequence[_MeasuredStep]) -> list[Measured]:
        """One prompt chunk, by the first round, which may include a decode step."""
        first, plan = self._rounds[0], self._loaded.plan
        read, chunks, tokens = first.read - done.reused_tokens - done.beside_tokens, first.chunks, first.tokens
        if tokens > LEAST_TOKENS or read < LEAST_TOKENS:
            return []
        found = []
        for stage, weights, hop, step in zip(plan.stages, self._loaded.work.reads, first.hops, steps, strict=True):
            computed_s = hop.compute_s - tokens * step.computed_s
            # a head that has the last layers computes when the work is back, after its own sample
            if computed_s > 0 and (stage is not plan.head or departing(plan).runs):
                found.append(
                    Measured(curve_name("prompt", stage.device_id), weights * read / chunks, computed_s / chunks)
                )
            own_s = max(_spent(hop) - tokens * step.spent_s, hop.wire_s, 0.0)
            # a head with the first layers gets back only an acknowledgement
            if hop.target != plan.head.device_id or not departing(plan).runs:
                size = (hop.bytes - tokens * step.size) / chunks
                found.append(Measured(_hop_name(hop), size, own_s / chunks + _trip(hop)))
        return found

    def _decoding(self, steps: Sequence[_MeasuredStep], token_s: float) -> list[Measured]:
        """One decoded token. The head gets the time that stages and hops do not explain. Two Macs' clocks differ, so a
        hop takes half a round trip, or less if there was less time.
        """
        hops, stages = self._rounds[-1].hops, self._loaded.plan.stages
        trips_s = sum(map(_trip, hops))
        left_s = max(0.0, token_s - sum(step.computed_s + step.spent_s for step in steps))
        share = min(1.0, left_s / trips_s) if trips_s else 0.0
        found = [Measured(curve_name("lead", self._loaded.plan.head.device_id), 1, max(0.0, left_s - share * trips_s))]
        for stage, weights, hop, step in zip(stages, self._loaded.work.reads, hops, steps, strict=True):
            found += _step_of(stage.device_id, weights, step.computed_s)
            found.append(Measured(_hop_name(hop), step.size, step.spent_s + share * _trip(hop)))
        return found

    def _base(self) -> _Round | None:
        """The round to count tokens from: the first that holds the whole prompt and nothing after it."""
        first = self._rounds[0] if self._rounds else None
        is_read = first is not None and first.chunks > 0 and first.chunks == self._chunks
        if first and not first.tokens and is_read and departing(self._loaded.plan).runs:
            return first
        return next((each for each in self._rounds if each.tokens), None)


class LoadMeasurement:
    """Measures one load. Macs that `held` layers of the model read only what they lack, which says nothing of their
    speed.
    """

    def __init__(self, plan: Plan, now: float, held: Collection[str] = ()) -> None:
        self.plan, self._made_at, self._held = plan, now, held
        self._began: dict[str, float] = {}
        self._took: dict[str, float] = {}
        self._read: dict[str, int] = {}  # most bytes of a report: the head may read the whole model once

    def handle_event(self, state: StageState, now: float) -> None:
        if state.status in ("fetching", "comparing"):
            self._made_at = now  # copying before loading does not count
        elif state.status == "loading":
            self._began.setdefault(state.device_id, now)
            self._read[state.device_id] = max(state.total_bytes, self._read.get(state.device_id, 0))
        elif state.status in _READ:
            # progress reports of fast reads come too late
            began = self._began.get(state.device_id, self._made_at)
            self._took.setdefault(state.device_id, now - began)

    def ended(self, now: float) -> list[Measured]:
        sizes: Mapping[str, int] = {stage.device_id: stage.weight_bytes for stage in self.plan.stages}
        reads = [
            Measured(curve_name("load", mac), max(sizes[mac], self._read.get(mac, 0)), seconds)
            for mac, seconds in self._took.items()
            if sizes.get(mac) and seconds > 0 and mac not in self._held
        ]
        join_s = now - self._made_at - max(self._took.values(), default=0.0)
        return [*reads, Measured(curve_name("join", self.plan.head.device_id), 1, max(0.0, join_s))]


def _step_of(mac: str, weights: int, seconds: float) -> list[Measured]:
    """A step is also a prompt chunk of one token, so that short prompts extend the prompt curve. One of no time, as of
    an answer that was cut off, measured nothing.
    """
    return [Measured(curve_name(kind, mac), weights, seconds) for kind in ("token", "prompt") if seconds > 0]


def _hop_name(hop: HopSample) -> str:
    return curve_name("hop", hop.source, hop.target)


def _spent(hop: HopSample) -> float:
    return hop.codec_s + hop.seal_s + hop.send_s + hop.open_s


def _trip(hop: HopSample) -> float:
    return (hop.rtt_s or 0.0) / 2
