"""Decode of one row over two workers of this machine, and over one, against mlx_lm in one process.

All sides have the same model and answer the same prompt in turns; the order changes, so that a machine that slows down
favours none. There are no drafts. Speed is measured between the first token and the last, as they leave each side.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, system
from core.worker.messages import StageSample
from tests.benches.figures import medians, reach, speed
from tests.benches.made_models import FIRST_TOKEN, ModelSize, make, run_sized
from tests.benches.mlx_lm_process import MlxLmProcess, mlx_lm_process
from tests.benches.results import Result
from tests.support.worker_ring import WorkerRing, ask, worker_ring

REACH: Final = 0.97
COUNTS_FROM_S: Final = 0.020
DEFAULT: Final = ModelSize(12, 1024, "float32")
PROMPT: Final = (FIRST_TOKEN,)  # one token: no prefill, so that every pass of a stage is a step of decode
WARM_UP_TOKENS: Final = 4


class SoloRun(msgspec.Struct, frozen=True, kw_only=True):
    """All sides once: tokens a second, the median token in milliseconds, each stage's parts of a token over two stages,
    and the time outside of both stages' compute, ms.
    """

    solo_tokens_per_s: float
    one_tokens_per_s: float
    split_tokens_per_s: float
    solo_token_ms: float
    split_token_ms: float
    same_tokens: bool
    stages_ms: list[dict[str, float]]
    outside_compute_ms: float


class SoloResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`; `stages_ms` are milliseconds a token of each stage's parts, by its own clock."""

    tokens: int
    sizes: ModelSize
    solo_tokens_per_s: float
    one_tokens_per_s: float
    split_tokens_per_s: float
    solo_token_ms: float
    split_token_ms: float
    same_tokens: bool
    stages_ms: list[dict[str, float]]
    outside_compute_ms: float
    runs: list[SoloRun]


def measure(runs: int, tokens: int, sizes: ModelSize) -> SoloResult:
    """`runs` answers of `tokens` tokens on each side. Raises WorkerError and what a stage reports."""
    with TemporaryDirectory(prefix="macluster-solo-") as folder:
        model = make(Path(folder), sizes)
        with (
            mlx_lm_process(model) as solo,
            worker_ring(model, (), draft=0) as one,
            worker_ring(model, (sizes.cut,), draft=0) as ring,
        ):
            sides = _Sides(solo, one, ring)
            sides.run(WARM_UP_TOKENS, solo_first=True)
            return summary([sides.run(tokens, solo_first=n % 2 == 0) for n in range(runs)], tokens, sizes)


class _Sides(NamedTuple):
    solo: MlxLmProcess
    one: WorkerRing
    ring: WorkerRing

    def run(self, tokens: int, *, solo_first: bool) -> SoloRun:
        """One answer of each side."""
        said = self.solo.generate(PROMPT, tokens) if solo_first else None
        one, answer = ask(self.one, PROMPT, tokens).answer, ask(self.ring, PROMPT, tokens).answer
        said = said or self.solo.generate(PROMPT, tokens)
        stages = [_parts(sample, tokens) for sample in answer.samples]
        return SoloRun(
            solo_tokens_per_s=speed(said.times),
            one_tokens_per_s=speed(one.times),
            split_tokens_per_s=speed(answer.times),
            solo_token_ms=_median_ms(said.times),
            split_token_ms=_median_ms(answer.times),
            same_tokens=said.tokens == one.tokens == answer.tokens,
            stages_ms=stages,
            outside_compute_ms=1e3 / speed(answer.times) - sum(stage["compute"] for stage in stages),
        )


def _median_ms(times: Sequence[float]) -> float:
    return 1e3 * median(after - before for before, after in pairwise(times))


def _parts(sample: StageSample, tokens: int) -> dict[str, float]:
    seconds = {
        "compute": sample.compute_s,
        "codec": sample.codec_s,
        "seal": sample.seal_s,
        "send": sample.send_s,
        "wait": sample.wait_s,
        "open": sample.open_s,
    }
    return {name: 1e3 * spent / tokens for name, spent in seconds.items()}


def summary(runs: list[SoloRun], tokens: int, sizes: ModelSize) -> SoloResult:
    """Medians over runs; the ratio is the median of the ratios within a run."""
    ratio = median(r.split_tokens_per_s / r.solo_tokens_per_s for r in runs)
    solo = median(r.solo_tokens_per_s for r in runs)
    counts = 1 / solo >= COUNTS_FROM_S
    return SoloResult(
        ratios={
            "one_stage_over_solo": median(r.one_tokens_per_s / r.solo_tokens_per_s for r in runs),
            "two_stages_over_solo": ratio,
            "two_stages_over_solo_median_token": median(r.solo_token_ms / r.split_token_ms for r in runs),
        },
        reach={"two_stages_over_solo": reach(ratio, at_least=REACH, counts=counts)},
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        solo_tokens_per_s=solo,
        one_tokens_per_s=median(r.one_tokens_per_s for r in runs),
        split_tokens_per_s=median(r.split_tokens_per_s for r in runs),
        solo_token_ms=median(r.solo_token_ms for r in runs),
        split_token_ms=median(r.split_token_ms for r in runs),
        same_tokens=all(r.same_tokens for r in runs),
        stages_ms=[medians([r.stages_ms[index] for r in runs]) for index in range(len(runs[0].stages_ms))],
        outside_compute_ms=median(r.outside_compute_ms for r in runs),
        runs=runs,
    )


def describe(result: SoloResult) -> str:
    """The result for people."""
    name = "two_stages_over_solo"
    solo, split = result.solo_tokens_per_s, result.split_tokens_per_s
    spent = ["    " + ", ".join(f"{part} {ms:.2f}" for part, ms in stage.items()) for stage in result.stages_ms]
    return "\n".join(
        [
            f"Decode of one row, {result.tokens} tokens, {result.sizes}; {result.system}, {result.cores} cores; "
            f"medians of {len(result.runs)} runs, sides taking turns.",
            "",
            f"  mlx_lm, one process         {solo:7.2f} tokens/s  {result.solo_token_ms:7.2f} ms the median token",
            f"  one stage, one process      {result.one_tokens_per_s:7.2f} tokens/s",
            f"  two stages, two processes   {split:7.2f} tokens/s  {result.split_token_ms:7.2f} ms the median token",
            f"  The answers {'are the same' if result.same_tokens else 'DIFFER'}.",
            "",
            "  Where a token's time goes, ms by each stage's own clock:",
            *spent,
            f"  outside of both stages' compute: {result.outside_compute_ms:.2f} ms a token",
            "",
            f"By the median token: {result.ratios[name + '_median_token']:.2f}; "
            f"one stage over one process: {result.ratios['one_stage_over_solo']:.2f}",
            f"{result.verdict(name, 'Tokens a second, two stages over one process')}"
            f" (counts where a token takes {1e3 * COUNTS_FROM_S:.0f} ms or more)",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    return run_sized("solo", "What splitting over two workers costs.", measure, describe, DEFAULT, arguments, runs=7)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
