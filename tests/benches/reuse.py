"""Later turns of a conversation on a ring that kept its rows, against one that reads them again.

A turn sends the whole conversation and something new. A ring that keeps earlier rows reads the new tokens and the last
token of the answer, which was never fed. If the caches of a model can be trimmed, a turn that changes something early
is read from there on. If not, as with a sliding window, only a whole row is useful: as it was at the end of a prompt or
an answer.

The other ring has memory for one turn and gets a request in between that fills it, so nothing of the turns is cached.
Both answer the same turns one by one in a changing order; each run has a conversation of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from tests.benches.figures import reach
from tests.benches.made_models import FIRST_TOKEN, VOCABULARY, ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.prompts import STEADY, a_prompt
from tests.benches.results import Result, print_result
from tests.support.worker_ring import Settings, Timed, WorkerRing, ask, worker_ring

MOST_OVER_NEW: Final = 1.05  # room for the one token that was not fed yet
DEFAULT: Final = ModelSize(8, 384, "bfloat16")
PROMPT_TOKENS: Final = 512
ANSWER_TOKENS: Final = 16
NEW_TOKENS: Final = 32
MODELS: Final = {"trimmed": "llama", "whole": "llama_sliding"}
MEANING: Final = {
    "trimmed": "Caches that can be trimmed",
    "whole": "Caches that cannot (a sliding window)",
}
TURNS: Final = {
    "first": "a long prompt",
    "next": "with its answer, and new text",
    "answer_edited": "the same, the answer changed",
    "prompt_edited": "the prompt, changed in the middle",
}
OTHER: Final = tuple(range(FIRST_TOKEN - 8, FIRST_TOKEN))  # a prefix that no turn has


class ReuseRun(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: tokens of its prompt, tokens that are `new` in the conversation, tokens that were read, and seconds to
    the first token with kept rows and `fresh`.
    """

    prompt: int
    new: int
    prefilled: int
    first_s: float
    fresh_first_s: float


class ReuseResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, by kind of model and turn. `same_tokens`: both rings answered alike."""

    sizes: ModelSize
    turns: dict[str, dict[str, ReuseRun]]
    same_tokens: bool
    runs: list[dict[str, dict[str, ReuseRun]]]


class ReusePlayed(NamedTuple):
    """The turns of a conversation, and whether both rings answered alike."""

    turns: dict[str, ReuseRun]
    same_tokens: bool


class Lengths(NamedTuple):
    """Tokens of the first prompt, of an answer, and of each addition by a turn."""

    prompt: int
    answer: int
    new: int


class Pair(NamedTuple):
    """Two rings over one model: one keeps the rows of earlier turns, and one has to forget them."""

    keeps: WorkerRing
    forgets: WorkerRing

    def run(self, number: int, lengths: Lengths) -> ReusePlayed:
        """A conversation. Raises what the rings report."""
        prompt = a_prompt(lengths.prompt, number)
        turns, same = {}, True
        said: tuple[int, ...] = ()
        for name in TURNS:
            tokens, new = a_turn(name, prompt, said, lengths.new)
            kept, fresh = self._ask(tokens, lengths.answer, fresh_first=number % 2 == 0)
            said = said or fresh.answer.tokens
            same = same and kept.answer.tokens == fresh.answer.tokens
            turns[name] = ReuseRun(
                prompt=len(tokens),
                new=new,
                prefilled=len(tokens) - kept.answer.done.reused_tokens,
                first_s=kept.first_s,
                fresh_first_s=fresh.first_s,
            )
        return ReusePlayed(turns, same)

    def _ask(self, tokens: tuple[int, ...], answer: int, *, fresh_first: bool) -> tuple[Timed, Timed]:
        if fresh_first:
            fresh = self._fresh(tokens, answer)
            return ask(self.keeps, tokens, answer, fresh=False), fresh
        return ask(self.keeps, tokens, answer, fresh=False), self._fresh(tokens, answer)

    def _fresh(self, tokens: tuple[int, ...], answer: int) -> Timed:
        ask(self.forgets, tuple(islice(cycle(OTHER), self.forgets.plan.context - 1)), 1, fresh=False)
        return ask(self.forgets, tokens, answer)


def a_turn(name: str, prompt: tuple[int, ...], said: tuple[int, ...], new: int) -> tuple[tuple[int, ...], int]:
    """Tokens of a turn after the first one's prompt and answer, and how many of them are new: no earlier turn has them
    after the same text.
    """
    added = _others(prompt[-1], new)
    match name:
        case "next":
            return prompt + said + added, new
        case "answer_edited":
            return prompt + _others(said[0], len(said)) + added, len(said) + new
        case "prompt_edited":
            middle = len(prompt) // 2
            return prompt[:middle] + _others(prompt[middle], 1) + prompt[middle + 1 :], len(prompt) - middle
        case _:
            return prompt, len(prompt)


def _others(token: int, count: int) -> tuple[int, ...]:
    """`count` tokens that do not begin with `token`."""
    return tuple(FIRST_TOKEN + (token + 11 * at) % (VOCABULARY - FIRST_TOKEN) for at in range(1, count + 1))


@contextmanager
def pair(kind: str, sizes: ModelSize, lengths: Lengths) -> Iterator[Pair]:
    """Both rings over a model of one kind, made and warm."""
    small: Settings = {**STEADY, "context": lengths.prompt + 2 * lengths.answer + lengths.new}
    with TemporaryDirectory(prefix="macluster-reuse-") as folder, ExitStack() as stack:
        model = make(Path(folder), sizes, MODELS[kind])
        cuts = (sizes.cut,)
        keeps = stack.enter_context(worker_ring(model, cuts, draft=0, **STEADY))
        forgets = stack.enter_context(worker_ring(model, cuts, draft=0, **small))
        both = Pair(keeps, forgets)
        for ring in both:
            ask(ring, OTHER, 1)
        yield both


def measure(runs: int, lengths: Lengths, sizes: ModelSize) -> ReuseResult:
    """`runs` conversations with a model of each kind. Raises WorkerError and what a stage reports."""
    played: list[dict[str, ReusePlayed]] = [{} for _ in range(runs)]
    for kind in MODELS:
        with pair(kind, sizes, lengths) as both:
            for number in range(runs):
                played[number][kind] = both.run(number, lengths)
    return summary(played, sizes)


def summary(played: list[dict[str, ReusePlayed]], sizes: ModelSize) -> ReuseResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    runs = [{kind: one.turns for kind, one in run.items()} for run in played]
    ratios = {}
    for kind, prefix in (("trimmed", ""), ("whole", "whole_")):
        turns = [run[kind]["next"] for run in runs]
        ratios[f"{prefix}prefilled_over_new_tokens"] = median(t.prefilled / t.new for t in turns)
        ratios[f"{prefix}second_turn_over_fresh"] = median(t.first_s / t.fresh_first_s for t in turns)
    return ReuseResult(
        ratios=ratios,
        reach={
            name: reach(ratio, at_most=MOST_OVER_NEW) for name, ratio in ratios.items() if name.endswith("new_tokens")
        },
        cores=cores(),
        system=system(),
        sizes=sizes,
        turns={kind: {name: _median_turn([run[kind][name] for run in runs]) for name in TURNS} for kind in MODELS},
        same_tokens=all(one.same_tokens for run in played for one in run.values()),
        runs=runs,
    )


def _median_turn(turns: Sequence[ReuseRun]) -> ReuseRun:
    return msgspec.structs.replace(
        turns[0],
        prefilled=int(median(t.prefilled for t in turns)),
        first_s=median(t.first_s for t in turns),
        fresh_first_s=median(t.fresh_first_s for t in turns),
    )


def describe(result: ReuseResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"A conversation over two stages, {result.sizes}; {result.system}, {result.cores} cores; medians of "
            f"{len(result.runs)} runs, a ring that keeps it and one that does not taking turns.",
            *(line for kind, turns in result.turns.items() for line in _table(kind, turns)),
            "",
            f"  Both rings answer {'the same' if result.same_tokens else 'OTHERWISE'}.",
            "",
            *(_verdict(result, prefix, kind) for prefix, kind in (("", "trimmed"), ("whole_", "whole"))),
        ]
    )


def _table(kind: str, turns: dict[str, ReuseRun]) -> Iterator[str]:
    yield ""
    yield f"  {MEANING[kind]:40} prompt    new   read   first token, s    fresh"
    for name, turn in turns.items():
        yield (
            f"    {TURNS[name]:38} {turn.prompt:6} {turn.new:6} {turn.prefilled:6} {turn.first_s:16.2f}"
            f" {turn.fresh_first_s:8.2f}"
        )


def _verdict(result: ReuseResult, prefix: str, kind: str) -> str:
    read, first = f"{prefix}prefilled_over_new_tokens", f"{prefix}second_turn_over_fresh"
    line = result.verdict(read, "Second turn, tokens read over new ones")
    return f"{MEANING[kind]}. {line}; time to the first token over fresh: {result.ratios[first]:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench reuse", description="What memory of a conversation saves.")
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    lengths = {
        "prompt": (PROMPT_TOKENS, "tokens of the first prompt"),
        "answer": (ANSWER_TOKENS, "tokens of its answer"),
        "new": (NEW_TOKENS, "tokens that the second turn adds"),
    }
    for name, (default, meaning) in lengths.items():
        parser.add_argument(f"--{name}", type=at_least_two, default=default, help=f"{meaning} (default %(default)s)")
    add_sizes(parser, DEFAULT)

    def run(args: argparse.Namespace) -> ReuseResult:
        return measure(args.runs, Lengths(args.prompt, args.answer, args.new), sizes_of(args))

    return print_result(parser, run, describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
