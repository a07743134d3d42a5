"""Answers in a JSON schema against free text for one user on two stages, and the gain of their fixed parts.

Free text is decoded under a grammar that allows nearly all of it, and without one: same model, same number of tokens,
in turns on one ring, so the difference is the work of the grammar. The answers differ where the random model's tokens
are not text.

A form is a JSON schema with long names and one value each; its fixed parts are drafts that cannot fail. It is decoded
on a ring with drafts and on one without. No name resembles another, so little else is drafted. An answer is timed from
its first token to its last, and all ways take turns in one run in a changing order.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.constraint import Constraint
from core.models.text.tokenizer import Tokens
from core.settings import MAX_DRAFT
from tests.benches.figures import reach
from tests.benches.made_models import ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.prompts import a_prompt
from tests.benches.results import Result, print_result
from tests.support.worker_ring import RingAnswer, WorkerRing, a_request, ask_all, worker_ring

CONSTRAINED_OVER_FREE: Final = 0.95
FORCED_OVER_PLAIN: Final = 1.5
COUNTS_FROM_MS: Final = 20.0
DEFAULT: Final = ModelSize(8, 768, "bfloat16")
TOKENS: Final = 96
FORM_TOKENS: Final = 600  # more than any form has
PROMPT: Final = 16
TEXT: Final = Constraint(kind="regex", source="(.|\\n)*")
FIELDS: Final = (
    "name_of_the_person_who_reports",
    "street_and_number",
    "date when it was seen first",
    "COLOUR/BEHIND/THE/DOOR",
    "machines: how many?",
)

WAYS: Final = {
    "free": "free text",
    "constrained": "free text, with a grammar",
    "plain": "a form, token by token",
    "forced": "a form, what is fixed at once",
}


def a_form() -> Constraint:
    """All fields, each with one of few short values."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "pattern": "^[a-z]{2}$"} for name in FIELDS},
        "required": list(FIELDS),
        "additionalProperties": False,
    }
    return Constraint(kind="json_schema", source=json.dumps(schema))


class SchemaRun(msgspec.Struct, frozen=True, kw_only=True):
    """Every way once on the same prompt: tokens a second between the first and the last.

    `forced`: tokens of the form that went round as guesses, of `form_tokens`; `same_tokens`: whether both forms are
    equal.
    """

    tokens_per_s: dict[str, float]
    forced: int
    form_tokens: int
    same_tokens: bool


class SchemaResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`. `tokens`: of free text."""

    tokens: int
    sizes: ModelSize
    tokens_per_s: dict[str, float]
    forced: float
    form_tokens: float
    same_tokens: bool
    runs: list[SchemaRun]


class SchemaSides(NamedTuple):
    """The same model twice, with guesses and without; and the tokens that end its answers."""

    guessing: WorkerRing
    plain: WorkerRing
    eos: tuple[int, ...]

    def run(self, prompt: tuple[int, ...], tokens: int, number: int) -> SchemaRun:
        """Every way once; each run begins with another one. Raises what a ring reports, WorkerDied or WorkerError."""
        order = deque(WAYS)
        order.rotate(number)
        said = {way: self._play(way, prompt, tokens) for way in order}
        return SchemaRun(
            tokens_per_s={way: _speed(said[way]) for way in WAYS},
            forced=said["forced"].done.accepted_tokens,
            form_tokens=len(said["forced"].tokens),
            same_tokens=said["forced"].tokens == said["plain"].tokens,
        )

    def _play(self, way: str, prompt: tuple[int, ...], tokens: int) -> RingAnswer:
        ring = self.guessing if way == "forced" else self.plain
        is_form = way in ("plain", "forced")
        asked = a_request(prompt, max_tokens=FORM_TOKENS if is_form else tokens, eos=self.eos)
        shape = None if way == "free" else a_form() if is_form else TEXT
        return ask_all(ring, [msgspec.structs.replace(asked, constraint=shape)], fresh=False)[0]


def _speed(answer: RingAnswer) -> float:
    return (len(answer.tokens) - 1) / (answer.times[-1] - answer.times[0])


@contextmanager
def sides(sizes: ModelSize) -> Iterator[SchemaSides]:
    """Both rings over one model, made and warm."""
    with TemporaryDirectory(prefix="macluster-schema-") as folder:
        model = make(Path(folder), sizes)
        with worker_ring(model, (sizes.cut,)) as guessing, worker_ring(model, (sizes.cut,), draft=0) as plain:
            both = SchemaSides(guessing, plain, tuple(Tokens.load(model).eos))
            both.run((1, 2), 3, 0)
            yield both


def measure(runs: int, tokens: int, sizes: ModelSize) -> SchemaResult:
    """`runs` answers of each kind, those of free text `tokens` long. Raises WorkerError and what a stage reports."""
    with sides(sizes) as both:
        return summary([both.run(a_prompt(PROMPT, number), tokens, number) for number in range(runs)], tokens, sizes)


def summary(runs: list[SchemaRun], tokens: int, sizes: ModelSize) -> SchemaResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    ratios = {
        "constrained_over_free": _ratio(runs, "constrained", "free"),
        "forced_over_plain": _ratio(runs, "forced", "plain"),
    }
    speeds = {way: median(run.tokens_per_s[way] for run in runs) for way in WAYS}
    counts = 1e3 / speeds["free"] >= COUNTS_FROM_MS
    least = {"constrained_over_free": CONSTRAINED_OVER_FREE, "forced_over_plain": FORCED_OVER_PLAIN}
    return SchemaResult(
        ratios=ratios,
        reach={name: reach(ratios[name], at_least=limit, counts=counts) for name, limit in least.items()},
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        tokens_per_s=speeds,
        forced=median(run.forced for run in runs),
        form_tokens=median(run.form_tokens for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
        runs=runs,
    )


def _ratio(runs: list[SchemaRun], way: str, over: str) -> float:
    return median(run.tokens_per_s[way] / run.tokens_per_s[over] for run in runs)


def describe(result: SchemaResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"One user, {result.tokens} tokens of text and forms of {result.form_tokens:g}, {result.sizes}; "
            f"{result.system}, {result.cores} cores; medians of {len(result.runs)} runs, ways taking turns.",
            "",
            *(f"  {WAYS[way]:30} {speed:7.2f} tokens/s" for way, speed in result.tokens_per_s.items()),
            "",
            f"{result.forced:g} of {result.form_tokens:g} tokens of a form went round at once, at most {MAX_DRAFT} a "
            f"step; the forms {'are the same' if result.same_tokens else 'DIFFER'}.",
            result.verdict("constrained_over_free", "Tokens a second, with a grammar over without"),
            result.verdict("forced_over_plain", "Tokens a second of a form, what is fixed at once over one by one"),
            f"(they count where a token takes {COUNTS_FROM_MS:.0f} ms or more)",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench schema", description="What an answer's shape costs.")
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    parser.add_argument(
        "--tokens", type=at_least_two, default=TOKENS, help="tokens of text a run (default %(default)s)"
    )
    add_sizes(parser, DEFAULT)
    return print_result(parser, lambda args: measure(args.runs, args.tokens, sizes_of(args)), describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
