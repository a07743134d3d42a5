"""A fast prefill Mac next to a ring of slow ones: the time to the first token of a long prompt.

The workers of the stages run only a part of the time (`tests.benches.slow_macs`), so they are that much slower; the
prefill Mac runs all the time. One ring reads every prompt itself, the other one leaves it to the prefill Mac. Both
answer the same prompts in turns, in an order that changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from tests.benches.figures import reach
from tests.benches.made_models import ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.prompts import STEADY, a_prompt
from tests.benches.results import Result, print_result
from tests.benches.slow_macs import slowed
from tests.support.worker_ring import Timed, WorkerRing, ask, worker_ring

LEAST_GAIN: Final = 1.2  # of the 1.2 to 2.8 that others report
DEFAULT: Final = ModelSize(8, 384, "bfloat16")
PROMPT_TOKENS: Final = 512
ANSWER_TOKENS: Final = 8
TIMES: Final = 4


class BesideRun(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt: the seconds to its first token where the ring read it, and where it was read `beside` it."""

    ring_s: float
    beside_s: float
    same_tokens: bool


class BesideResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`; the stages were `times` times slower than the prefill Mac."""

    sizes: ModelSize
    prompt: int
    times: int
    ring_s: float
    beside_s: float
    same_tokens: bool
    runs: list[BesideRun]


def measure(runs: int, prompt: int, times: int, sizes: ModelSize) -> BesideResult:
    """`runs` prompts. Raises WorkerError and what a stage reports."""
    with TemporaryDirectory(prefix="macluster-beside-") as folder, ExitStack() as stack:
        model = make(Path(folder), sizes)
        alone, helped = (
            stack.enter_context(worker_ring(model, (sizes.cut,), prefill=least, **STEADY)) for least in (None, 2)
        )
        for ring in (alone, helped):
            ask(ring, a_prompt(prompt, runs), 1)
        stack.enter_context(slowed([worker.pid for ring in (alone, helped) for worker in ring.workers], times))
        return summary([_run(alone, helped, a_prompt(prompt, n), n) for n in range(runs)], prompt, times, sizes)


def _run(alone: WorkerRing, helped: WorkerRing, prompt: Sequence[int], number: int) -> BesideRun:
    turns = (alone, helped) if number % 2 else (helped, alone)
    told: dict[WorkerRing, Timed] = {ring: ask(ring, prompt, ANSWER_TOKENS) for ring in turns}
    by_ring, beside = told[alone], told[helped]
    return BesideRun(
        ring_s=by_ring.first_s,
        beside_s=beside.first_s,
        same_tokens=by_ring.answer.tokens == beside.answer.tokens
        and (by_ring.answer.done.beside_tokens, beside.answer.done.beside_tokens) == (0, len(prompt) - 1),
    )


def summary(runs: list[BesideRun], prompt: int, times: int, sizes: ModelSize) -> BesideResult:
    """The ratio is the median of the ratios within a run."""
    ratio = median(run.ring_s / run.beside_s for run in runs)
    return BesideResult(
        ratios={"ring_over_beside": ratio},
        reach={"ring_over_beside": reach(ratio, at_least=LEAST_GAIN)},
        cores=cores(),
        system=system(),
        sizes=sizes,
        prompt=prompt,
        times=times,
        ring_s=median(run.ring_s for run in runs),
        beside_s=median(run.beside_s for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
        runs=runs,
    )


def describe(result: BesideResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"A prompt of {result.prompt} tokens, {result.sizes}, two stages {result.times} times as slow as the "
            f"prefill Mac; {result.system}, {result.cores} cores; medians of {len(result.runs)} runs.",
            "",
            f"  First token where the ring reads    {result.ring_s:8.2f} s",
            f"  where the prefill Mac reads         {result.beside_s:8.2f} s",
            f"  Both say {'the same' if result.same_tokens else 'OTHERWISE'}.",
            "",
            result.verdict("ring_over_beside", "The ring's time over that with a prefill Mac"),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    about = "What a quick Mac that reads prompts is worth to a ring of slow ones."
    parser = argparse.ArgumentParser(prog="macluster bench beside", description=about)
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    words = "tokens of a prompt (default %(default)s)"
    parser.add_argument("--prompt", type=at_least_two, default=PROMPT_TOKENS, help=words)
    words = "how many times as slow the stages are (default %(default)s)"
    parser.add_argument("--times", type=at_least_two, default=TIMES, help=words)
    add_sizes(parser, DEFAULT)

    def run(args: argparse.Namespace) -> BesideResult:
        return measure(args.runs, args.prompt, args.times, sizes_of(args))

    return print_result(parser, run, describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
