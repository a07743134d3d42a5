"""Two stages as private, forward and reverse, and one process: the cost of choosing which Mac sees what.

A private ring brings hidden states back to the head; it also runs with each dtype of `--wire`. In forward the last Mac
has the output head and samples, so a token comes back instead. Reverse sends token ids away and keeps the last layers.
Each stage notes what it handles; those notes, not the plan, say what a Mac saw.

All ways take turns in one run in a changing order, so that a machine that slows down favours none. There are no drafts,
and no prompt is cached.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import eq
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple, cast, get_args

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.events import Sight, Topology, WireType
from core.plan.stage_roles import sights
from core.plan.topology import DEFAULT_TOPOLOGY, TOPOLOGIES
from tests.benches.made_models import FIRST_TOKEN, ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.prompts import STEADY, a_prompt
from tests.benches.results import Result, print_result
from tests.support.worker_ring import RingAnswer, Settings, WorkerRing, ask, worker_ring

DEFAULT: Final = ModelSize(8, 768, "bfloat16")
TOKENS: Final = 24
PROMPT_TOKENS: Final = 256
WARM_UP_TOKENS: Final = 3
RINGS: Final = tuple(way for way, row in TOPOLOGIES.items() if not row.ranks)  # those have a bench of their own
WIRES: Final[dict[str, WireType]] = {f"private as {wire}": wire for wire in get_args(WireType)}
WAYS: Final = (*RINGS, *WIRES)


class TopologyRun(msgspec.Struct, frozen=True, kw_only=True):
    """One way once: decode of one row, the seconds from a long prompt to its first token, and the bytes that all links
    carried together for a token of the decode.
    """

    tokens_per_s: float
    first_s: float
    wire_bytes: float


class TopologyResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, with one turn of every way each.

    `sights`: values that each Mac saw, the head first; `as_planned`: whether they are those of its plan. `same_tokens`:
    whether all topologies gave the same answer; `same_as_private`: the share of equal tokens of the first run with
    hidden states of another dtype.
    """

    tokens: int
    prompt: int
    sizes: ModelSize
    ways: dict[str, TopologyRun]
    sights: dict[str, list[tuple[Sight, ...]]]
    as_planned: bool
    same_tokens: bool
    same_as_private: dict[str, float]
    runs: list[dict[str, TopologyRun]]


class TopologySeen(NamedTuple):
    """Kinds of values that each Mac of a ring saw, and those of its plan, the head first."""

    reported: list[tuple[Sight, ...]]
    planned: list[tuple[Sight, ...]]


class TopologyPlayed(NamedTuple):
    """One turn, and the tokens of both answers."""

    turn: TopologyRun
    tokens: tuple[int, ...]


class TopologyRings:
    """A ring for each way, over one model."""

    def __init__(self, rings: dict[str, WorkerRing], tokens: int, prompt: int) -> None:
        self._rings, self._tokens, self._prompt = rings, tokens, prompt

    def run(self, number: int) -> dict[str, TopologyPlayed]:
        """Every way once, every other time the last one first. Raises what a ring reports."""
        ways = WAYS if number % 2 == 0 else WAYS[::-1]
        played = {way: self._play(self._rings[way], number) for way in ways}
        return {way: played[way] for way in WAYS}

    def seen(self) -> dict[str, TopologySeen]:
        """Kinds of values that each Mac saw so far."""
        return {way: _seen(ring) for way, ring in self._rings.items()}

    def _play(self, ring: WorkerRing, number: int) -> TopologyPlayed:
        before = _carried(ask(ring, [FIRST_TOKEN + number], 1).answer)
        decoded = ask(ring, [FIRST_TOKEN + number], self._tokens).answer
        read = ask(ring, a_prompt(self._prompt, number), 1)
        turn = TopologyRun(
            tokens_per_s=(self._tokens - 1) / (decoded.times[-1] - decoded.times[0]),
            first_s=read.first_s,
            wire_bytes=(_carried(decoded) - before) / self._tokens,
        )
        return TopologyPlayed(turn, decoded.tokens + read.answer.tokens)


@contextmanager
def rings(sizes: ModelSize, tokens: int, prompt: int) -> Iterator[TopologyRings]:
    """A ring for each way over a model of these sizes, made and warm."""
    with TemporaryDirectory(prefix="macluster-topology-") as folder, ExitStack() as stack:
        model = make(Path(folder), sizes)
        made: dict[str, WorkerRing] = {}
        for way in WAYS:
            topology = DEFAULT_TOPOLOGY if way in WIRES else cast(Topology, way)
            cuts = (sizes.cut,) if TOPOLOGIES[topology].several else ()
            settings: Settings = {**STEADY, "wire": WIRES.get(way)}
            made[way] = stack.enter_context(worker_ring(model, cuts, topology=topology, draft=0, **settings))
        for ring in made.values():
            ask(ring, [FIRST_TOKEN], WARM_UP_TOKENS)
        yield TopologyRings(made, tokens, prompt)


def measure(runs: int, tokens: int, prompt: int, sizes: ModelSize) -> TopologyResult:
    """`runs` turns of every way: `tokens` tokens of one row, and a prompt of `prompt` tokens. Raises WorkerError and
    what a stage reports.
    """
    with rings(sizes, tokens, prompt) as all_rings:
        played = [all_rings.run(number) for number in range(runs)]
        return summary(played, all_rings.seen(), tokens, prompt, sizes)


def _carried(answer: RingAnswer) -> int:
    """Bytes that the links of a ring had carried when an answer ended."""
    return sum(sample.key.bytes for sample in answer.samples)


def _seen(ring: WorkerRing) -> TopologySeen:
    plan = ring.plan
    return TopologySeen(ring.sights(), [tuple(sorted(sights(plan, index))) for index in range(len(plan.stages))])


def summary(
    played: list[dict[str, TopologyPlayed]],
    seen: dict[str, TopologySeen],
    tokens: int,
    prompt: int,
    sizes: ModelSize,
) -> TopologyResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    runs = [{str(way): one.turn for way, one in run.items()} for run in played]
    return TopologyResult(
        ratios={
            f"{way}_over_private": median(r[way].tokens_per_s / r["private"].tokens_per_s for r in runs)
            for way in ("forward", "reverse", *WIRES)
        },
        reach={},
        cores=cores(),
        system=system(),
        tokens=tokens,
        prompt=prompt,
        sizes=sizes,
        ways={way: _median_turn([run[way] for run in runs]) for way in WAYS},
        sights={way: each.reported for way, each in seen.items()},
        as_planned=all(each.reported == each.planned for each in seen.values()),
        same_tokens=all(len({run[way].tokens for way in RINGS}) == 1 for run in played),
        same_as_private={
            way: sum(map(eq, run[way].tokens, run["private"].tokens)) / len(run[way].tokens)
            for run in played[:1]
            for way in WIRES
        },
        runs=runs,
    )


def _median_turn(turns: Sequence[TopologyRun]) -> TopologyRun:
    return TopologyRun(
        tokens_per_s=median(t.tokens_per_s for t in turns),
        first_s=median(t.first_s for t in turns),
        wire_bytes=median(t.wire_bytes for t in turns),
    )


def describe(result: TopologyResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"Two stages in every topology, and one process; {result.tokens} tokens of one row, and a prompt of "
            f"{result.prompt} tokens, {result.sizes}; {result.system}, {result.cores} cores; medians of "
            f"{len(result.runs)} runs, ways taking turns.",
            "",
            "                        tokens/s   ms a token   first token, s   bytes a token",
            *(_line(way, turn) for way, turn in result.ways.items()),
            f"  The answers of the topologies {'are the same' if result.same_tokens else 'DIFFER'}.",
            *(
                f"  {way}: {100 * same:.0f} % of the tokens are the same."
                for way, same in result.same_as_private.items()
            ),
            "",
            f"  What each Mac saw, {'as its plan says' if result.as_planned else 'OTHER than its plan says'}:",
            *(line for way, macs in result.sights.items() for line in _saw(way, macs)),
            "",
            *(f"Tokens a second, {name.replace('_', ' ')}: {ratio:.2f}" for name, ratio in result.ratios.items()),
        ]
    )


def _line(way: str, turn: TopologyRun) -> str:
    return (
        f"  {way:20} {turn.tokens_per_s:9.2f} {1e3 / turn.tokens_per_s:12.1f} {turn.first_s:16.2f}"
        f" {turn.wire_bytes:15.0f}"
    )


def _saw(way: str, macs: Sequence[Sequence[Sight]]) -> Iterator[str]:
    for index, kinds in enumerate(macs):
        yield f"  {'' if index else way:20}   {'another Mac' if index else 'the head':12} {', '.join(kinds)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench topology", description="What each topology costs.")
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    parser.add_argument("--tokens", type=at_least_two, default=TOKENS, help="tokens a run (default %(default)s)")
    prompt = "tokens of the long prompt (default %(default)s)"
    parser.add_argument("--prompt", type=at_least_two, default=PROMPT_TOKENS, help=prompt)
    add_sizes(parser, DEFAULT)
    return print_result(
        parser, lambda args: measure(args.runs, args.tokens, args.prompt, sizes_of(args)), describe, arguments
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
