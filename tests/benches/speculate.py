"""Decode of one user with drafts against without, on two stages, and against mlx_lm in one process.

A step with drafts confirms several tokens at once if they are right, and takes longer if not. The cost depends on the
machine: a GPU reads the weights once for all of them, while on a CPU every token takes its time, as rows in one lane do
(see the bench `batch` for why weights are bfloat16).

One text repeats: the model goes round in circles, and its prompt holds the circle once. The other wanders through few
tokens, so drafts are always found and always wrong: drafting has to stop there, at next to no cost. An answer is timed
from its request to its last token. All ways take turns in one run in a changing order.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.settings import MAX_DRAFT
from tests.benches import drafts
from tests.benches.figures import reach
from tests.benches.made_models import (
    CIRCLE,
    ModelSize,
    add_sizes,
    at_least_two,
    circle,
    make_babbling,
    make_circling,
    sizes_of,
)
from tests.benches.mlx_lm_process import MlxLmProcess, mlx_lm_process
from tests.benches.prompts import a_prompt
from tests.benches.results import Result, print_result
from tests.support.worker_ring import WorkerRing, ask, worker_ring

REPEATING_OVER_PLAIN: Final = 1.5
WANDERING_OVER_PLAIN: Final = 0.9  # a few guesses have to be wrong before it ends
COUNTS_FROM_MS: Final = 20.0
DEFAULT: Final = ModelSize(8, 768, "bfloat16")
TOKENS: Final = 96
WARM_UP_TOKENS: Final = 3


class Text(NamedTuple):
    """How its model is made, and the prompt of a run."""

    make: Callable[[Path, ModelSize], Path]
    prompt: Callable[[int], tuple[int, ...]]
    meaning: str


TEXTS: Final = {
    "repeating": Text(make_circling, circle, "A text that repeats itself"),
    "wandering": Text(make_babbling, lambda number: a_prompt(CIRCLE, number), "A text that wanders"),
}
WAYS: Final = {
    "speculative": "two stages, with guesses",
    "plain": "two stages, without",
    "solo": "mlx_lm, one process",
}


class SpeculateRun(msgspec.Struct, frozen=True, kw_only=True):
    """Every way once on the same prompt: tokens a second, from the question to the last token. `drafted`: guesses that
    went round; `accepted` were right.
    """

    tokens_per_s: dict[str, float]
    drafted: int
    accepted: int
    same_tokens: bool


class TextFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over runs. `acceptance`: the share of the guesses that were right, None where there were none;
    `tokens_per_step`: those of the answer, for each time that work went round for them.
    """

    tokens_per_s: dict[str, float]
    drafted: float
    acceptance: float | None
    tokens_per_step: float
    same_tokens: bool


class SpeculateResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, by text. `draft`: the most guesses in a step."""

    tokens: int
    draft: int
    sizes: ModelSize
    texts: dict[str, TextFigures]
    runs: list[dict[str, SpeculateRun]]


class _Once(NamedTuple):
    """One way, once: the time of the answer, its tokens, and its guesses."""

    seconds: float
    tokens: tuple[int, ...]
    drafted: int = 0
    accepted: int = 0


class SpeculateSides(NamedTuple):
    """The same model three times."""

    speculative: WorkerRing
    plain: WorkerRing
    solo: MlxLmProcess

    def run(self, prompt: tuple[int, ...], tokens: int, number: int) -> SpeculateRun:
        """Every way once; each run begins with another one. Raises what a ring reports, WorkerDied or WorkerError."""
        order = deque(WAYS)
        order.rotate(number)
        played = {way: self._play(way, prompt, tokens) for way in order}
        return SpeculateRun(
            tokens_per_s={way: tokens / played[way].seconds for way in WAYS},
            drafted=played["speculative"].drafted,
            accepted=played["speculative"].accepted,
            same_tokens=len({once.tokens for once in played.values()}) == 1,
        )

    def _play(self, way: str, prompt: tuple[int, ...], tokens: int) -> _Once:
        if way == "solo":
            said = self.solo.generate(prompt, tokens)
            return _Once(said.times[-1] - said.asked, said.tokens)
        answer, _, seconds = ask(self.speculative if way == "speculative" else self.plain, prompt, tokens)
        return _Once(seconds, answer.tokens, answer.done.drafted_tokens, answer.done.accepted_tokens)


@contextmanager
def sides(text: Text, sizes: ModelSize) -> Iterator[SpeculateSides]:
    """All sides over the model of a text, made and warm."""
    with TemporaryDirectory(prefix="macluster-speculate-") as folder:
        model, cuts = text.make(Path(folder), sizes), (sizes.cut,)
        with (
            worker_ring(model, cuts) as speculative,
            worker_ring(model, cuts, draft=0) as plain,
            mlx_lm_process(model) as solo,
        ):
            all_sides = SpeculateSides(speculative, plain, solo)
            all_sides.run((1,), WARM_UP_TOKENS, 0)
            yield all_sides


def measure(runs: int, tokens: int, sizes: ModelSize) -> SpeculateResult:
    """`runs` answers of `tokens` tokens to each text. Raises WorkerError and what a stage reports."""
    turns: list[dict[str, SpeculateRun]] = [{} for _ in range(runs)]
    for name, text in TEXTS.items():
        with sides(text, sizes) as all_sides:
            for number in range(runs):
                turns[number][name] = all_sides.run(text.prompt(number), tokens, number)
    return summary(turns, tokens, sizes)


def summary(runs: list[dict[str, SpeculateRun]], tokens: int, sizes: ModelSize) -> SpeculateResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    texts = {name: _figures([run[name] for run in runs], tokens) for name in TEXTS}
    ratios = {
        "speculative_over_plain": _ratio(runs, "repeating", "plain"),
        "speculative_over_solo": _ratio(runs, "repeating", "solo"),
        "wandering_speculative_over_plain": _ratio(runs, "wandering", "plain"),
    }
    counts = 1e3 / texts["repeating"].tokens_per_s["plain"] >= COUNTS_FROM_MS
    least = {"speculative_over_plain": REPEATING_OVER_PLAIN, "wandering_speculative_over_plain": WANDERING_OVER_PLAIN}
    return SpeculateResult(
        ratios=ratios,
        reach={name: reach(ratios[name], at_least=limit, counts=counts) for name, limit in least.items()},
        cores=cores(),
        system=system(),
        tokens=tokens,
        draft=MAX_DRAFT,
        sizes=sizes,
        texts=texts,
        runs=runs,
    )


def _ratio(runs: list[dict[str, SpeculateRun]], text: str, way: str) -> float:
    return median(r[text].tokens_per_s["speculative"] / r[text].tokens_per_s[way] for r in runs)


def _figures(turns: Sequence[SpeculateRun], tokens: int) -> TextFigures:
    shares = [turn.accepted / turn.drafted for turn in turns if turn.drafted]
    return TextFigures(
        tokens_per_s={way: median(turn.tokens_per_s[way] for turn in turns) for way in WAYS},
        drafted=median(turn.drafted for turn in turns),
        acceptance=median(shares) if shares else None,
        tokens_per_step=median(tokens / (tokens - turn.accepted) for turn in turns),
        same_tokens=all(turn.same_tokens for turn in turns),
    )


def describe(result: SpeculateResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"One user, {result.tokens} tokens, at most {result.draft} guesses a step, {result.sizes}; "
            f"{result.system}, {result.cores} cores; medians of {len(result.runs)} runs, ways taking turns.",
            *(line for name, figures in result.texts.items() for line in _table(TEXTS[name].meaning, figures)),
            "",
            f"Tokens a second, with guesses over mlx_lm in one process: {result.ratios['speculative_over_solo']:.2f}",
            result.verdict("speculative_over_plain", "Tokens a second, with guesses over without"),
            result.verdict("wandering_speculative_over_plain", "The same where the text wanders"),
            f"(they count where a token takes {COUNTS_FROM_MS:.0f} ms or more)",
        ]
    )


def _table(meaning: str, figures: TextFigures) -> Iterator[str]:
    right = "" if figures.acceptance is None else f", {figures.acceptance:.0%} of them right"
    yield ""
    yield f"  {meaning}: {figures.drafted:g} guesses{right}, {figures.tokens_per_step:.1f} tokens a step"
    yield from (f"    {WAYS[way]:26} {speed:7.2f} tokens/s" for way, speed in figures.tokens_per_s.items())
    yield f"    The answers {'are the same' if figures.same_tokens else 'DIFFER'}."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench speculate", description="What guessed tokens give one user.")
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    parser.add_argument("--tokens", type=at_least_two, default=TOKENS, help="tokens a run (default %(default)s)")
    parser.add_argument("--draft", action="store_true", help="a draft on three stages, in place of n-grams on two")
    add_sizes(parser, drafts.DEFAULT if "--draft" in (sys.argv if arguments is None else arguments) else DEFAULT)
    return print_result(parser, _measured, _described, arguments)


def _measured(args: argparse.Namespace) -> SpeculateResult | drafts.DraftResult:
    how = drafts.measure_drafts if args.draft else measure
    return how(args.runs, args.tokens, sizes_of(args))


def _described(result: SpeculateResult | drafts.DraftResult) -> str:
    return drafts.describe_drafts(result) if isinstance(result, drafts.DraftResult) else describe(result)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
