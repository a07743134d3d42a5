"""Decode of one user with a draft model on three stages: `macluster bench speculate --draft`.

The draft model is small and right 70 times in 100, or never where the text wanders. The n-grams of neither text repeat,
so nothing else drafts. Weights are float16, because a step of a few tokens then takes about as long as one of one
token, as on a Mac's GPU: MLX's own CPU code prepares each matrix once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, system
from tests.benches.figures import reach
from tests.benches.made_models import CIRCLE, ModelSize, make_striding
from tests.benches.prompts import a_prompt
from tests.benches.results import Result
from tests.support.worker_ring import WorkerRing, ask, worker_ring

DRAFTED_OVER_PLAIN: Final = 1.6
WANDERING_OVER_PLAIN: Final = 0.97
COUNTS_FROM_MS: Final = 20.0
DEFAULT: Final = ModelSize(6, 768, "float16")
DRAFT: Final = ModelSize(1, 64, "float32")
WARM_UP_TOKENS: Final = 24  # until the draft knows how long everything takes
RATES: Final = {"drafted": 0.7, "wandering": 0.0}
MEANING: Final = {"drafted": "A draft that is right 70 times in 100", "wandering": "A draft that is never right"}


class DraftRun(msgspec.Struct, frozen=True, kw_only=True):
    """Both ways once on the same prompt, in tokens a second from the question to the last token; `drafted` guesses went
    round; `accepted` were right.
    """

    drafted_tokens_per_s: float
    plain_tokens_per_s: float
    drafted: int
    accepted: int
    same_tokens: bool


class DraftFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over runs."""

    drafted_tokens_per_s: float
    plain_tokens_per_s: float
    drafted: float
    accepted: float
    same_tokens: bool


class DraftResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, by text."""

    tokens: int
    sizes: ModelSize
    texts: dict[str, DraftFigures]
    runs: dict[str, list[DraftRun]]


class DraftSides(NamedTuple):
    """The same model twice, over three stages each."""

    drafted: WorkerRing
    plain: WorkerRing

    def run(self, prompt: tuple[int, ...], tokens: int, number: int) -> DraftRun:
        """Both once; each run begins with the other one. Raises what a ring reports, WorkerDied or WorkerError."""
        order = [self.drafted, self.plain] if number % 2 else [self.plain, self.drafted]
        timed = {ring: ask(ring, prompt, tokens) for ring in order}
        drafted, plain = timed[self.drafted], timed[self.plain]
        return DraftRun(
            drafted_tokens_per_s=tokens / drafted.seconds,
            plain_tokens_per_s=tokens / plain.seconds,
            drafted=drafted.answer.done.drafted_tokens,
            accepted=drafted.answer.done.accepted_tokens,
            same_tokens=drafted.answer.tokens == plain.answer.tokens,
        )


@contextmanager
def draft_sides(rate: float, sizes: ModelSize) -> Iterator[DraftSides]:
    """Both rings, made and warm; `rate` is the share of right drafts."""
    with TemporaryDirectory(prefix="macluster-drafts-") as name:
        folder, cuts = Path(name), (sizes.layers // 3, 2 * sizes.layers // 3)
        model, draft = make_striding(folder / "model", sizes), make_striding(folder / "draft", DRAFT, rate)
        with worker_ring(model, cuts, drafter=draft) as drafted, worker_ring(model, cuts, draft=0) as plain:
            both = DraftSides(drafted, plain)
            both.run((1,), WARM_UP_TOKENS, 0)
            yield both


def measure_drafts(runs: int, tokens: int, sizes: ModelSize) -> DraftResult:
    """`runs` answers of `tokens` tokens with each draft. Raises WorkerError and what a stage reports."""
    turns: dict[str, list[DraftRun]] = {}
    for text, rate in RATES.items():
        with draft_sides(rate, sizes) as both:
            turns[text] = [both.run(a_prompt(CIRCLE, number), tokens, number) for number in range(runs)]
    return summary_of_drafts(turns, tokens, sizes)


def summary_of_drafts(turns: dict[str, list[DraftRun]], tokens: int, sizes: ModelSize) -> DraftResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    ratios = {
        name: median(run.drafted_tokens_per_s / run.plain_tokens_per_s for run in turns[text])
        for name, text in (("drafted_over_plain", "drafted"), ("wandering_drafted_over_plain", "wandering"))
    }
    texts = {text: _figures(runs) for text, runs in turns.items()}
    counts = 1e3 / texts["drafted"].plain_tokens_per_s >= COUNTS_FROM_MS
    least = {"drafted_over_plain": DRAFTED_OVER_PLAIN, "wandering_drafted_over_plain": WANDERING_OVER_PLAIN}
    return DraftResult(
        ratios=ratios,
        reach={name: reach(ratios[name], at_least=limit, counts=counts) for name, limit in least.items()},
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        texts=texts,
        runs=turns,
    )


def _figures(runs: Sequence[DraftRun]) -> DraftFigures:
    return DraftFigures(
        drafted_tokens_per_s=median(run.drafted_tokens_per_s for run in runs),
        plain_tokens_per_s=median(run.plain_tokens_per_s for run in runs),
        drafted=median(run.drafted for run in runs),
        accepted=median(run.accepted for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
    )


def describe_drafts(result: DraftResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"One user, three stages, {result.tokens} tokens, {result.sizes}; {result.system}, {result.cores} cores; "
            f"medians of {len(result.runs['drafted'])} runs, ways taking turns.",
            *(line for text, figures in result.texts.items() for line in _table(MEANING[text], figures)),
            "",
            result.verdict("drafted_over_plain", "Tokens a second, with the draft over without guesses"),
            result.verdict("wandering_drafted_over_plain", "The same where it is never right"),
            f"(they count where a token takes {COUNTS_FROM_MS:.0f} ms or more)",
        ]
    )


def _table(meaning: str, figures: DraftFigures) -> Iterator[str]:
    yield ""
    yield f"  {meaning}: {figures.drafted:g} guesses, {figures.accepted:g} of them right"
    yield f"    with the draft   {figures.drafted_tokens_per_s:7.2f} tokens/s"
    yield f"    without guesses  {figures.plain_tokens_per_s:7.2f} tokens/s"
    yield f"    The answers {'are the same' if figures.same_tokens else 'DIFFER'}."
