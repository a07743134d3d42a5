"""Prefill of a long prompt over two stages with several chunks in flight, against one chunk in flight.

With a window of one, a chunk passes both stages before the next one leaves, so each stage waits while the other
computes. With more in flight both compute at once, and only the first and the last chunk leave one of them idle: n
chunks take the time of n + 1 instead of 2 n. Small chunks gain more unless small matrices are slow: on the CPU of a
Linux machine 64 tokens cost no more each than 256 do, so that is the default.

All ways take turns in one run in a changing order, so that a machine that slows down favours none. Each run has a
prompt that is not cached. mlx_lm in one process reads the same chunks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.local.second_process import SecondProcess, second_process
from core.sampling_options import Sampling
from tests.benches.figures import reach
from tests.benches.made_models import FIRST_TOKEN, ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.prompts import a_prompt
from tests.benches.results import Result, print_result
from tests.benches.stage_timeline import Activity, Traces, activity, bars, end_s, labelled, median_activity, timeline
from tests.support.worker_ring import WorkerRing, a_request, ask_all, worker_ring

REACH: Final = 1.8
COUNTS_FROM_MS: Final = 20.0
DEFAULT: Final = ModelSize(4, 192, "bfloat16")
PROMPT_TOKENS: Final = 2048
CHUNKS: Final = (64, 128, 256)
WINDOWS: Final = (1, 2, 3)
PLANNED: Final = WINDOWS[-1]  # the start value of a plan of two stages
ASKED: Final = Sampling(logprobs=20)
SOLO_S: Final = 300.0
BAR: Final = 72

TopLogprobs = dict[int, float]  # logprobs of the most probable tokens, by id


class PrefillWay(NamedTuple):
    """Tokens per chunk, and chunks in flight."""

    chunk: int
    window: int


class PrefillRun(msgspec.Struct, frozen=True, kw_only=True):
    """One way once: the seconds from the question to the first token."""

    chunk: int
    window: int
    seconds: float
    activity: Activity


class PrefillResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, with one turn of every way each. Ratios, bars and `solo_s` (seconds of mlx_lm in one
    process) are of the first chunk size. `same_logits`: the most probable tokens after the prompt and their logprobs
    are the same for every window; `solo_difference`: largest difference of a logprob to mlx_lm's. `bars`: the last run
    by window, in `bar_s` seconds.
    """

    prompt: int
    sizes: ModelSize
    ways: list[PrefillRun]
    solo_s: float
    same_logits: bool
    solo_difference: float
    bar_s: float
    bars: dict[int, list[str]]
    runs: list[list[PrefillRun]]


class PrefillAsked(NamedTuple):
    """A prompt for mlx_lm, its model and the chunk size."""

    directory: str
    prompt: tuple[int, ...]
    chunk: int


class PrefillAlone(NamedTuple):
    """How long mlx_lm took, in seconds, and the logarithms of the probabilities of all tokens."""

    seconds: float
    logprobs: list[float]


class PrefillPlayed(NamedTuple):
    """One turn with its logprobs and traces."""

    turn: PrefillRun
    top_logprobs: TopLogprobs
    traces: Traces


class PrefillTrace(NamedTuple):
    """Every way once, and mlx_lm once."""

    ways: list[PrefillPlayed]
    alone: PrefillAlone


class PrefillSides:
    """A ring for each way, and mlx_lm in a process of its own, over one model; all get the same prompt in a run."""

    def __init__(self, model: Path, rings: dict[PrefillWay, WorkerRing], solo: SecondProcess, prompt: int) -> None:
        self._model, self._rings, self._solo = model, rings, solo
        self._tokens = prompt

    @property
    def ways(self) -> list[PrefillWay]:
        """All of them, in order."""
        return list(self._rings)

    def run(self, number: int) -> PrefillTrace:
        """Every side once, every other time the last one first. Raises WorkerError and what a stage reports."""
        if number % 2:
            return PrefillTrace([self.play(way, number) for way in reversed(self.ways)][::-1], self._alone(number))
        alone = self._alone(number)
        return PrefillTrace([self.play(way, number) for way in self.ways], alone)

    def play(self, way: PrefillWay, number: int) -> PrefillPlayed:
        """The prompt of run `number` in this way."""
        ring = self._rings[way]
        ring.traces()  # discards traces of earlier work
        prompt = a_prompt(self._tokens, number)
        started = perf_counter()
        (answer,) = ask_all(ring, [a_request(prompt, max_tokens=1, sampling=ASKED)])
        traces = ring.traces()
        turn = PrefillRun(
            chunk=way.chunk,
            window=way.window,
            seconds=answer.times[0] - started,
            activity=activity(timeline(traces, "step")),
        )
        return PrefillPlayed(turn, dict(answer.reports[0].top), traces)

    def _alone(self, number: int) -> PrefillAlone:
        self._solo.send(PrefillAsked(str(self._model), a_prompt(self._tokens, number), self.ways[0].chunk))
        alone: PrefillAlone = self._solo.receive(SOLO_S)
        return alone


@contextmanager
def sides(prompt: int, chunks: Sequence[int], sizes: ModelSize) -> Iterator[PrefillSides]:
    """All sides over a model of these sizes, made and warm."""
    with TemporaryDirectory(prefix="macluster-prefill-") as folder, ExitStack() as stack:
        model = make(Path(folder), sizes)
        rings = {
            way: stack.enter_context(worker_ring(model, (sizes.cut,), chunk=way.chunk, window=way.window, adapts=False))
            for way in (PrefillWay(chunk, window) for chunk, window in product(chunks, WINDOWS))
        }
        for ring in rings.values():
            ring.generate([FIRST_TOKEN] * 2, max_tokens=1)
        yield PrefillSides(model, rings, stack.enter_context(second_process(read_alone)), prompt)


def read_alone(pipe: Connection[Any, Any]) -> None:
    """The process of mlx_lm: loads the model when first asked, then reads prompts."""
    from mlx_lm import load, stream_generate

    asked: PrefillAsked = pipe.recv()
    model, tokenizer = load(asked.directory)[:2]
    while True:
        started = perf_counter()
        prompt, chunk = list(asked.prompt), asked.chunk
        (first,) = stream_generate(model, tokenizer, prompt, max_tokens=1, prefill_step_size=chunk)
        pipe.send(PrefillAlone(perf_counter() - started, first.logprobs.tolist()))
        asked = pipe.recv()


def measure(runs: int, prompt: int, chunks: Sequence[int], sizes: ModelSize) -> PrefillResult:
    """`runs` turns of every way on a prompt of `prompt` tokens. Raises WorkerError and what a stage reports."""
    with sides(prompt, chunks, sizes) as all_sides:
        return summary([all_sides.run(number) for number in range(runs)], prompt, sizes)


def summary(runs: list[PrefillTrace], prompt: int, sizes: ModelSize) -> PrefillResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    chunk = runs[0].ways[0].turn.chunk
    first = [[p for p in run.ways if p.turn.chunk == chunk] for run in runs]
    compared = [{p.turn.window: p.turn.seconds for p in ways} for ways in first]
    ratios = {
        "windowed_over_window_1": median(seconds[1] / seconds[PLANNED] for seconds in compared),
        "windowed_over_solo": median(r.alone.seconds / s[PLANNED] for r, s in zip(runs, compared, strict=True)),
    }
    chunk_ms = 1e3 * median(seconds[1] for seconds in compared) * chunk / prompt
    last = {p.turn.window: timeline(p.traces, "step") for p in first[-1]}
    bar_s = max(end_s(stages) for stages in last.values())
    return PrefillResult(
        ratios=ratios,
        reach={
            "windowed_over_window_1": reach(
                ratios["windowed_over_window_1"], at_least=REACH, counts=chunk_ms >= COUNTS_FROM_MS
            )
        },
        cores=cores(),
        system=system(),
        prompt=prompt,
        sizes=sizes,
        ways=[_median_turn([p.turn for p in way]) for way in zip(*(run.ways for run in runs), strict=True)],
        solo_s=median(run.alone.seconds for run in runs),
        same_logits=all(_is_same(run) for run in runs),
        solo_difference=max(
            _difference(p.top_logprobs, run.alone) for run in runs for p in run.ways if p.turn.chunk == chunk
        ),
        bar_s=bar_s,
        bars={window: bars(stages, bar_s, BAR) for window, stages in last.items()},
        runs=[[p.turn for p in run.ways] for run in runs],
    )


def _median_turn(turns: Sequence[PrefillRun]) -> PrefillRun:
    return PrefillRun(
        chunk=turns[0].chunk,
        window=turns[0].window,
        seconds=median(t.seconds for t in turns),
        activity=median_activity([t.activity for t in turns]),
    )


def _is_same(run: PrefillTrace) -> bool:
    """Whether each chunk size gave the same with every window; to a bit, since the same is computed."""
    firsts: dict[int, TopLogprobs] = {}
    return all(firsts.setdefault(p.turn.chunk, p.top_logprobs) == p.top_logprobs for p in run.ways)


def _difference(top_logprobs: TopLogprobs, alone: PrefillAlone) -> float:
    return max(abs(logprob - alone.logprobs[token]) for token, logprob in top_logprobs.items())


def describe(result: PrefillResult) -> str:
    """The result for people."""
    name, chunk = "windowed_over_window_1", result.ways[0].chunk
    return "\n".join(
        [
            f"Prefill of {result.prompt} tokens over two stages, {result.sizes}; {result.system}, "
            f"{result.cores} cores; medians of {len(result.runs)} runs, ways taking turns.",
            "",
            "  chunk  window   tokens/s   seconds   stages compute  both at once",
            *(_line(result.prompt, turn) for turn in result.ways),
            f"  {chunk:5}  mlx_lm, one process {result.prompt / result.solo_s:.0f} tokens/s, {result.solo_s:.2f} s",
            "",
            f"  The logits after the prompt {'are the same' if result.same_logits else 'DIFFER'} with every window; "
            f"at most {result.solo_difference:.2g} from those of mlx_lm.",
            "",
            f"  Who computed when, {result.bar_s:.2f} s of the last run, chunks of {chunk} in shades of their own:",
            *(line for window, lines in result.bars.items() for line in labelled(f"window {window}", lines)),
            "",
            f"Tokens a second, windowed over mlx_lm in one process: {result.ratios['windowed_over_solo']:.2f}",
            f"{result.verdict(name, f'Tokens a second, window {PLANNED} over 1')}"
            f" (counts where a chunk takes {COUNTS_FROM_MS:.0f} ms or more)",
        ]
    )


def _line(prompt: int, turn: PrefillRun) -> str:
    busy = " ".join(f"{share:5.0%}" for share in turn.activity.busy)
    return (
        f"  {turn.chunk:5} {turn.window:7} {prompt / turn.seconds:10.0f} {turn.seconds:9.2f}"
        f"      {busy}       {turn.activity.together:5.0%}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench prefill", description="What a window of chunks gives.")
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    parser.add_argument(
        "--prompt", type=at_least_two, default=PROMPT_TOKENS, help="tokens of the prompt (default %(default)s)"
    )
    parser.add_argument(
        "--chunks",
        type=positive,
        nargs="+",
        default=CHUNKS,
        metavar="TOKENS",
        help="sizes of chunks; ratios are of the first (default 64 128 256)",
    )
    add_sizes(parser, DEFAULT)
    return print_result(
        parser, lambda args: measure(args.runs, args.prompt, args.chunks, sizes_of(args)), describe, arguments
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
