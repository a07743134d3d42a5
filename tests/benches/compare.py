"""The same prompts for four programs with one model: mlx_lm in one process, its server, mlx-lm's pipeline and our ring.

The server is used over HTTP on loopback; the two pipelines have two processes each, and only ours encrypts. All sides
run all the time and take turns in a rotating order, so that a machine that slows down favours none; every run has a
prompt that is not cached. There are no drafts. Memory is that of all processes of a side, sampled while it answers.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec
import psutil
from tokenizers import Tokenizer

from core.bench.results import cores, end_in_order, positive, system
from core.settings import MIB
from tests.benches.figures import speed
from tests.benches.made_models import ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.mlx_lm_process import MlxLmAnswer, mlx_lm_process
from tests.benches.mlx_server import mlx_server
from tests.benches.plain import FAMILY, plain_pipeline
from tests.benches.results import Result, print_result
from tests.support.worker_ring import WorkerRing, ask, worker_ring

DEFAULT: Final = ModelSize(12, 1024, "float32")
WORDS: Final = 128
WARM_UP_TOKENS: Final = 4
LOOK_S: Final = 0.02
SIDES: Final = {
    "solo": "mlx_lm, one process",
    "server": "mlx_lm.server, one process, over HTTP",
    "pipeline": "mlx-lm's pipeline, two processes, in the open",
    "ring": "our ring, two processes, sealed",
}
_VOCABULARY: Final = (
    "three",
    "small",
    "machines",
    "sit",
    "on",
    "a",
    "shelf",
    "and",
    "share",
    "the",
    "work",
    "of",
    "one",
)


class CompareTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a side. `prefill_tokens_per_s`: the prompt over the time to the first token; `peak_mib` and
    `processor_s`: of all its processes together.
    """

    decode_tokens_per_s: float
    prefill_tokens_per_s: float
    first_s: float
    peak_mib: float
    processor_s: float


class CompareResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`, by side. `prompt`: tokens of the longest prompt. `same_tokens`: those sides that answered as
    mlx_lm does in one process.
    """

    tokens: int
    prompt: int
    sizes: ModelSize
    sides: dict[str, CompareTurn]
    same_tokens: dict[str, bool]
    runs: list[dict[str, CompareTurn]]


class ComparePrompt(NamedTuple):
    """The same question as text and as token ids."""

    text: str
    ids: tuple[int, ...]


class CompareSide(NamedTuple):
    """A side: how to ask it, its processes, and how to get token ids if its answers have none."""

    generate: Callable[[ComparePrompt, int], MlxLmAnswer]
    pids: Sequence[int]
    tokens: Callable[[ComparePrompt, int], tuple[int, ...]] | None = None


class ComparePlayed(NamedTuple):
    """One turn, and the tokens of its answer."""

    turn: CompareTurn
    tokens: tuple[int, ...]


@contextmanager
def all_sides(model: Path, cut: int) -> Iterator[dict[str, CompareSide]]:
    """The four, ready, in the order of `SIDES`."""
    with (
        mlx_lm_process(model) as solo,
        mlx_server(model) as server,
        plain_pipeline(model) as pipe,
        worker_ring(model, (cut,), draft=0) as ring,
    ):
        yield {
            "solo": CompareSide(lambda prompt, tokens: solo.generate(prompt.ids, tokens), [solo.pid]),
            "server": CompareSide(
                lambda prompt, tokens: server.generate(prompt.text, tokens),
                [server.pid],
                lambda prompt, tokens: server.tokens(prompt.text, tokens),
            ),
            "pipeline": CompareSide(lambda prompt, tokens: pipe.generate(prompt.ids, tokens), pipe.pids),
            "ring": CompareSide(lambda prompt, tokens: _of_ring(ring, prompt, tokens), [w.pid for w in ring.workers]),
        }


def _of_ring(ring: WorkerRing, prompt: ComparePrompt, tokens: int) -> MlxLmAnswer:
    timed = ask(ring, prompt.ids, tokens, fresh=False)
    return MlxLmAnswer(timed.answer.times[0] - timed.first_s, timed.answer.tokens, timed.answer.times)


def play(side: CompareSide, prompt: ComparePrompt, tokens: int) -> ComparePlayed:
    """One answer. Raises what the side reports."""
    processes = [psutil.Process(pid) for pid in side.pids]
    before = _processor_s(processes)
    with _peak(processes) as peak:
        answer = side.generate(prompt, tokens)
    first_s = answer.times[0] - answer.asked
    turn = CompareTurn(
        decode_tokens_per_s=speed(answer.times),
        prefill_tokens_per_s=len(prompt.ids) / first_s,
        first_s=first_s,
        peak_mib=max(peak) / MIB,
        processor_s=_processor_s(processes) - before,
    )
    return ComparePlayed(turn, side.tokens(prompt, tokens) if side.tokens else answer.tokens)


def prompts(model: Path, words: int) -> Callable[[int], ComparePrompt]:
    """Prompts by number: the number and then random words."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))

    def prompt(number: int) -> ComparePrompt:
        text = " ".join([str(number), *random.Random(number).choices(_VOCABULARY, k=words)])
        return ComparePrompt(text, tuple(tokenizer.encode(text, add_special_tokens=False).ids))

    return prompt


def measure(runs: int, tokens: int, words: int, sizes: ModelSize) -> CompareResult:
    """`runs` answers of `tokens` tokens to prompts of `words` words on each side. Raises WorkerError and what a side
    reports.
    """
    with ExitStack() as stack:
        model = make(Path(stack.enter_context(TemporaryDirectory(prefix="macluster-compare-"))), sizes, FAMILY)
        prompt = prompts(model, words)
        sides = stack.enter_context(all_sides(model, sizes.cut))
        for side in sides.values():
            play(side, prompt(0), WARM_UP_TOKENS)
        played, asked = [], [prompt(1 + number) for number in range(runs)]
        for number, question in enumerate(asked):
            first = number % len(SIDES)
            order = [*SIDES][first:] + [*SIDES][:first]
            said = {name: play(sides[name], question, tokens) for name in order}
            played.append({name: said[name] for name in SIDES})
        return summary(played, tokens, max(len(question.ids) for question in asked), sizes)


def summary(played: list[dict[str, ComparePlayed]], tokens: int, prompt: int, sizes: ModelSize) -> CompareResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    runs = [{name: one.turn for name, one in run.items()} for run in played]
    return CompareResult(
        ratios={
            f"ring_over_{name}": median(r["ring"].decode_tokens_per_s / r[name].decode_tokens_per_s for r in runs)
            for name in SIDES
            if name != "ring"
        },
        reach={},
        cores=cores(),
        system=system(),
        tokens=tokens,
        prompt=prompt,
        sizes=sizes,
        sides={name: _median([run[name] for run in runs]) for name in SIDES},
        same_tokens={name: all(run[name].tokens == run["solo"].tokens for run in played) for name in SIDES},
        runs=runs,
    )


def _median(turns: Sequence[CompareTurn]) -> CompareTurn:
    return CompareTurn(
        **{name: median(getattr(turn, name) for turn in turns) for name in CompareTurn.__struct_fields__}
    )


def _processor_s(processes: Sequence[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


@contextmanager
def _peak(processes: Sequence[psutil.Process]) -> Iterator[list[int]]:
    """Peak of the processes' memory together, in bytes, sampled until the end of the block."""
    seen = [sum(process.memory_info().rss for process in processes)]
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            seen.append(sum(process.memory_info().rss for process in processes))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield seen
    finally:
        is_over.set()
        looking.join()


def describe(result: CompareResult) -> str:
    """The result for people, as a table that a text can take over."""
    return "\n".join(
        [
            f"{result.tokens} tokens after prompts of {result.prompt} tokens, {result.sizes}; {result.system}, "
            f"{result.cores} cores; medians of {len(result.runs)} runs, sides taking turns.",
            "",
            "| | decode, tokens/s | prefill, tokens/s | first token | memory at most | processor time | tokens |",
            "|---|---|---|---|---|---|---|",
            *(_line(name, side, result.same_tokens[name]) for name, side in result.sides.items()),
            "",
            *(f"Tokens a second, {name.replace('_', ' ')}: {ratio:.2f}" for name, ratio in result.ratios.items()),
        ]
    )


def _line(name: str, side: CompareTurn, is_same: bool) -> str:
    same = "–" if name == "solo" else "the same" if is_same else "OTHERS"
    return (
        f"| {SIDES[name]} | {side.decode_tokens_per_s:.1f} | {side.prefill_tokens_per_s:.0f} | {side.first_s:.2f} s | "
        f"{side.peak_mib:.0f} MiB | {side.processor_s:.1f} s | {same} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench compare", description="Against mlx-lm's ways to serve.")
    parser.add_argument("--runs", type=positive, default=4, help="runs for the median (default %(default)s)")
    parser.add_argument("--tokens", type=at_least_two, default=48, help="tokens per answer (default %(default)s)")
    parser.add_argument("--words", type=positive, default=WORDS, help="words of a prompt (default %(default)s)")
    add_sizes(parser, DEFAULT)
    return print_result(
        parser, lambda args: measure(args.runs, args.tokens, args.words, sizes_of(args)), describe, arguments
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
