"""Decode of eight rows against one, and of lanes against all rows in one lane, on two stages.

A row that decodes alone leaves every stage waiting for the others. Rows in one lane share the reading of the weights,
but the stages still take turns; with one lane per stage, all stages compute at once. All ways take turns in one run in
a changing order, so that a machine that slows down favours none. There are no drafts.

Weights are bfloat16 by default, as in checkpoints, and because rows share work only where a matrix is read or prepared
once for all of them: on a Mac's GPU, and in MLX's own CPU code for bfloat16 and float16, where four rows cost twice as
much as one. In float32 and 4-bit every row costs as much as the first on a CPU under Linux: lanes gain, shared lanes
don't.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, system
from tests.benches.figures import reach
from tests.benches.made_models import FIRST_TOKEN, ModelSize, make, run_sized
from tests.benches.results import Result
from tests.benches.stage_timeline import Activity, Traces, activity, bars, labelled, median_activity, middle, timeline
from tests.support.worker_ring import RingAnswer, WorkerRing, a_request, ask_all, worker_ring

EIGHT_OVER_ONE: Final = 2.5
LANES_OVER_ONE_LANE: Final = 1.5
COUNTS_FROM_MS: Final = 20.0
DEFAULT: Final = ModelSize(8, 768, "bfloat16")
TOKENS: Final = 24
WARM_UP_TOKENS: Final = 3
BAR: Final = 72


class BatchWay(NamedTuple):
    """How many rows decode together, and in how many lanes: one for each stage, or one for all."""

    rows: int
    is_one_lane: bool
    meaning: str


WAYS: Final = {
    "rows_1": BatchWay(1, False, "1 row"),
    "rows_2": BatchWay(2, False, "2 rows in two lanes"),
    "rows_4": BatchWay(4, False, "4 rows in two lanes"),
    "rows_8": BatchWay(8, False, "8 rows in two lanes"),
    "rows_8_one_lane": BatchWay(8, True, "8 rows in one lane"),
}
SHOWN: Final = ("rows_1", "rows_8_one_lane", "rows_8")


class BatchRun(msgspec.Struct, frozen=True, kw_only=True):
    """One way once: tokens a second of all rows together, milliseconds from a row's token to its next."""

    tokens_per_s: float
    step_ms: float
    activity: Activity


class BatchResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, with one turn of every way each. `bars`: `bar_ms` of the last run, a line per stage.
    `same_tokens`: eight rows in lanes and in one lane gave the same answers.
    """

    tokens: int
    sizes: ModelSize
    ways: dict[str, BatchRun]
    same_tokens: bool
    bar_ms: float
    bars: dict[str, list[str]]
    runs: list[dict[str, BatchRun]]


class BatchPlayed(NamedTuple):
    """One turn, with its answers and traces."""

    turn: BatchRun
    answers: Sequence[tuple[int, ...]]
    traces: Traces


class BatchRings(NamedTuple):
    """Two rings over one model: with a lane for each stage, and with one lane."""

    lanes: WorkerRing
    one_lane: WorkerRing

    def play(self, name: str, tokens: int) -> BatchPlayed:
        """Rows of `tokens` tokens each, asked for at once. Raises what the ring reports."""
        way = WAYS[name]
        ring = self.one_lane if way.is_one_lane else self.lanes
        ring.traces()  # discards traces of earlier work
        answers = ask_all(ring, [a_request([FIRST_TOKEN + row], max_tokens=tokens) for row in range(way.rows)])
        traces = ring.traces()
        turn = BatchRun(
            tokens_per_s=speed([answer.times for answer in answers]),
            step_ms=_step_ms(answers),
            activity=activity(timeline(traces, "handle")),
        )
        return BatchPlayed(turn, [answer.tokens for answer in answers], traces)


@contextmanager
def rings(sizes: ModelSize) -> Iterator[BatchRings]:
    """Both rings over a model of these sizes, made and warm."""
    with TemporaryDirectory(prefix="macluster-batch-") as folder:
        model = make(Path(folder), sizes)
        cuts = (sizes.cut,)
        with worker_ring(model, cuts, draft=0) as lanes, worker_ring(model, cuts, draft=0, lanes=1) as one_lane:
            both = BatchRings(lanes, one_lane)
            for name in WAYS:
                both.play(name, WARM_UP_TOKENS)
            yield both


def measure(runs: int, tokens: int, sizes: ModelSize) -> BatchResult:
    """`runs` turns of every way, of `tokens` tokens a row. Raises WorkerError and what a stage reports."""
    with rings(sizes) as both:
        played = []
        for number in range(runs):
            names = list(WAYS) if number % 2 == 0 else list(reversed(WAYS))
            played.append({name: both.play(name, tokens) for name in names})
    return summary(played, tokens, sizes)


def speed(rows: Sequence[Sequence[float]]) -> float:
    """Tokens a second of all rows together, counted from the moment when every row has its first token."""
    start, end = max(times[0] for times in rows), max(times[-1] for times in rows)
    return sum(at > start for times in rows for at in times) / (end - start)


def _step_ms(answers: Sequence[RingAnswer]) -> float:
    return 1e3 * median(after - before for answer in answers for before, after in pairwise(answer.times))


def summary(played: list[dict[str, BatchPlayed]], tokens: int, sizes: ModelSize) -> BatchResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    runs = [{name: run[name].turn for name in WAYS} for run in played]
    ratios = {
        "eight_rows_over_one": median(r["rows_8"].tokens_per_s / r["rows_1"].tokens_per_s for r in runs),
        "lanes_over_one_lane": median(r["rows_8"].tokens_per_s / r["rows_8_one_lane"].tokens_per_s for r in runs),
    }
    ways = {name: _median_turn([run[name] for run in runs]) for name in WAYS}
    counts = ways["rows_1"].step_ms >= COUNTS_FROM_MS
    bar_ms = 2.5 * ways["rows_8_one_lane"].step_ms
    pieces = {name: timeline(middle(played[-1][name].traces, bar_ms / 1e3), "handle") for name in SHOWN}
    return BatchResult(
        ratios=ratios,
        reach={
            "eight_rows_over_one": reach(ratios["eight_rows_over_one"], at_least=EIGHT_OVER_ONE, counts=counts),
            "lanes_over_one_lane": reach(ratios["lanes_over_one_lane"], at_least=LANES_OVER_ONE_LANE, counts=counts),
        },
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        ways=ways,
        same_tokens=all(run["rows_8"].answers == run["rows_8_one_lane"].answers for run in played),
        bar_ms=bar_ms,
        bars={name: bars(piece, bar_ms / 1e3, BAR) for name, piece in pieces.items()},
        runs=runs,
    )


def _median_turn(turns: Sequence[BatchRun]) -> BatchRun:
    return BatchRun(
        tokens_per_s=median(t.tokens_per_s for t in turns),
        step_ms=median(t.step_ms for t in turns),
        activity=median_activity([t.activity for t in turns]),
    )


def describe(result: BatchResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"Decode over two stages, {result.tokens} tokens a row, {result.sizes}; {result.system}, "
            f"{result.cores} cores; medians of {len(result.runs)} runs, ways taking turns.",
            "",
            "                      tokens/s   a row  ms a step   stages compute  both at once",
            *(_line(WAYS[name], turn) for name, turn in result.ways.items()),
            f"  Eight rows answer {'the same in lanes as' if result.same_tokens else 'OTHERWISE in lanes than'} "
            "in one lane.",
            "",
            f"  Who computed when, {result.bar_ms:.0f} ms of the last run, each lane in a shade of its own:",
            *(line for name, lines in result.bars.items() for line in labelled(WAYS[name].meaning, lines)),
            "",
            result.verdict("eight_rows_over_one", "Tokens a second, eight rows over one"),
            result.verdict("lanes_over_one_lane", "Tokens a second, eight rows, two lanes over one"),
            f"(they count where a token of one row takes {COUNTS_FROM_MS:.0f} ms or more)",
        ]
    )


def _line(way: BatchWay, turn: BatchRun) -> str:
    busy = " ".join(f"{share:5.0%}" for share in turn.activity.busy)
    return (
        f"  {way.meaning:20} {turn.tokens_per_s:7.2f} {turn.tokens_per_s / way.rows:7.2f} {turn.step_ms:10.1f}"
        f"      {busy}       {turn.activity.together:5.0%}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    return run_sized(
        "batch", "What decoding rows together gives.", measure, describe, DEFAULT, arguments, tokens=TOKENS
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
