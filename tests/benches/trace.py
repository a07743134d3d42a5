"""Decode of one row over two stages with the phases of every step traced, against untraced, in short turns.

Both ways run on the same two workers, one answer each per round, in a changing order. CPU time is that of both workers
from the request to the last token; unlike wall time it leaves out other work of the machine. The default model has next
to no arithmetic, so the share of tracing is as large as it gets. Traces are collected after the answer, as by
`macluster trace`; that cost is a figure of its own, per step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec
import psutil

from core.bench.results import cores, end_in_order, system
from core.bench.scenarios.percentiles import segment
from tests.benches.figures import reach
from tests.benches.made_models import FIRST_TOKEN, ModelSize, make, run_sized
from tests.benches.results import Result
from tests.support.worker_ring import WorkerRing, ask, worker_ring

AT_MOST: Final = 1.01
DEFAULT: Final = ModelSize(4, 64, "float32")
PROMPT: Final = (FIRST_TOKEN,)
WARM_UP: Final = 4
PROCESSOR: Final = "traced_over_untraced"
WALL: Final = "traced_over_untraced_wall"


class TraceTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer: microseconds a token, of the processor and by the clock on the wall."""

    processor_us: float
    wall_us: float


class TraceRun(msgspec.Struct, frozen=True, kw_only=True):
    """Both ways once. `noted`: turns of both stages; `taking_us`: of the processor, for each of them."""

    traced: TraceTurn
    untraced: TraceTurn
    noted: int
    taking_us: float
    same_tokens: bool


class TracedResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`; between two figures the true median lies with 95 % confidence. `added_us`: to a token, of
    the processor, whatever the model computes. `noted_a_token`: turns of both stages.
    """

    tokens: int
    sizes: ModelSize
    traced: TraceTurn
    untraced: TraceTurn
    between: dict[str, tuple[float, float]]
    added_us: float
    added_us_between: tuple[float, float]
    noted_a_token: float
    taking_us: float
    same_tokens: bool
    runs: list[TraceRun]


class _Played(NamedTuple):
    turn: TraceTurn
    tokens: tuple[int, ...]
    noted: int
    taking_s: float


def measure(runs: int, tokens: int, sizes: ModelSize) -> TracedResult:
    """`runs` answers of `tokens` tokens each way. Raises WorkerError and what a stage reports."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="macluster-trace-"))
        ring = stack.enter_context(worker_ring(make(Path(folder), sizes), (sizes.cut,), draft=0))
        for number in range(WARM_UP):
            _run(ring, tokens, traced_first=number % 2 == 0)
        return summary([_run(ring, tokens, traced_first=n % 2 == 0) for n in range(runs)], tokens, sizes)


def _run(ring: WorkerRing, tokens: int, *, traced_first: bool) -> TraceRun:
    played = {traced: _play(ring, tokens, traced=traced) for traced in (traced_first, not traced_first)}
    traced, untraced = played[True], played[False]
    return TraceRun(
        traced=traced.turn,
        untraced=untraced.turn,
        noted=traced.noted,
        taking_us=1e6 * traced.taking_s / traced.noted,
        same_tokens=traced.tokens == untraced.tokens,
    )


def _play(ring: WorkerRing, tokens: int, *, traced: bool) -> _Played:
    ring.phases(keep_tracing=traced)
    before = _processor_s(ring)
    timed = ask(ring, PROMPT, tokens, fresh=False)
    after = _processor_s(ring)
    noted = sum(map(len, ring.phases(keep_tracing=False)))
    return _Played(
        TraceTurn(processor_us=1e6 * (after - before) / tokens, wall_us=1e6 * timed.seconds / tokens),
        timed.answer.tokens,
        noted,
        _processor_s(ring) - after,
    )


def _processor_s(ring: WorkerRing) -> float:
    return sum(_spent_s(worker.pid) for worker in ring.workers)


def _spent_s(pid: int) -> float:
    """CPU seconds of all threads of a process; on Linux by the kernel's clock of each process, since /proc counts in
    hundredths of a second.
    """
    if sys.platform == "linux":
        return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes it
    spent = psutil.Process(pid).cpu_times()
    return float(spent.user + spent.system)


def summary(runs: Sequence[TraceRun], tokens: int, sizes: ModelSize) -> TracedResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    ratios = {
        PROCESSOR: segment([run.traced.processor_us / run.untraced.processor_us for run in runs]),
        WALL: segment([run.traced.wall_us / run.untraced.wall_us for run in runs]),
    }
    added = segment([run.traced.processor_us - run.untraced.processor_us for run in runs])
    return TracedResult(
        ratios={name: found.p50 for name, found in ratios.items()},
        reach={PROCESSOR: reach(ratios[PROCESSOR].p50, at_most=AT_MOST)},
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        traced=_middle([run.traced for run in runs]),
        untraced=_middle([run.untraced for run in runs]),
        between={name: found.p50_between for name, found in ratios.items()},
        added_us=added.p50,
        added_us_between=added.p50_between,
        noted_a_token=median(run.noted for run in runs) / tokens,
        taking_us=median(run.taking_us for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
        runs=list(runs),
    )


def _middle(turns: Sequence[TraceTurn]) -> TraceTurn:
    return TraceTurn(
        processor_us=median(turn.processor_us for turn in turns), wall_us=median(turn.wall_us for turn in turns)
    )


def describe(result: TracedResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"One row over two stages, {result.tokens} tokens, {result.sizes}; {result.system}, {result.cores} cores; "
            f"medians of {len(result.runs)} rounds, ways taking turns.",
            "",
            f"  {'':12} {'processor':>12} {'wall':>12}",
            *(
                f"  {words:12} {turn.processor_us:12.0f} {turn.wall_us:12.0f}   µs a token"
                for words, turn in (("not traced", result.untraced), ("traced", result.traced))
            ),
            f"  The answers {'are the same' if result.same_tokens else 'DIFFER'}.",
            "",
            f"{result.noted_a_token:.1f} turns are noted a token; to take one when it is over costs "
            f"{result.taking_us:.0f} µs.",
            f"Noting adds {result.added_us:.0f} µs of the processor to a token (95 % confidence: "
            f"{result.added_us_between[0]:.0f} to {result.added_us_between[1]:.0f}), whatever the model computes.",
            f"By the wall: {_words(result, WALL)}",
            f"By the processor: {_words(result, PROCESSOR)}",
            result.verdict(PROCESSOR, "Processor time, traced over not"),
        ]
    )


def _words(result: TracedResult, name: str) -> str:
    low, high = result.between[name]
    return f"{result.ratios[name]:.4f}, 95 % confidence: {low:.4f} to {high:.4f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    return run_sized("trace", "What noting phases costs.", measure, describe, DEFAULT, arguments, runs=400, tokens=8)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
