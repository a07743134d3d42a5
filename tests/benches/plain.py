"""Decode of one row over two sealed stages, against mlx-lm's own plain pipeline over mx.distributed's ring.

Both sides have the same model in two processes of this machine and answer the same prompt in turns; the order changes.
There are no drafts. Speed is measured between the first token and the last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import mlx.core as mx
import msgspec

from core.bench.results import cores, end_in_order, system
from core.local.second_process import SecondProcess
from core.models.metal import obey_device
from core.worker.group_init import init_group
from core.worker.group_variables import ring_variables
from tests.benches.comms import RANKS, plain_group
from tests.benches.figures import reach, speed
from tests.benches.made_models import FIRST_TOKEN, ModelSize, make, run_sized
from tests.benches.mlx_lm_process import ANSWER_S, MlxLmAnswer, mlx_lm_answer
from tests.benches.results import Result
from tests.support.worker_ring import ask, worker_ring

REACH: Final = 1.3
FAMILY: Final = "qwen2"  # mlx-lm has a pipeline for it
DEFAULT: Final = ModelSize(12, 1024, "float32")
PROMPT: Final = (FIRST_TOKEN,)
WARM_UP_TOKENS: Final = 4


class PlainRun(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides once: tokens a second."""

    plain_tokens_per_s: float
    sealed_tokens_per_s: float
    same_tokens: bool


class PlainResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`."""

    tokens: int
    sizes: ModelSize
    plain_tokens_per_s: float
    sealed_tokens_per_s: float
    same_tokens: bool
    runs: list[PlainRun]


class Pipe:
    """mlx-lm's pipeline: every rank answers the same question, and all choose the same tokens."""

    def __init__(self, ranks: Sequence[SecondProcess]) -> None:
        self._ranks = ranks
        self.pids = tuple(rank.pid for rank in ranks)

    def generate(self, prompt: Sequence[int], tokens: int) -> MlxLmAnswer:
        """Greedy tokens after `prompt`. Raises WorkerDied or WorkerError."""
        for rank in self._ranks:
            rank.send((tuple(prompt), tokens))
        said: list[MlxLmAnswer] = [rank.receive(ANSWER_S) for rank in self._ranks]
        return said[0]


@contextmanager
def plain_pipeline(model: Path) -> Iterator[Pipe]:
    """The model in this directory, half of its layers in each of two processes, until the end."""
    with plain_group(plain_stage) as ranks:
        for rank in ranks:
            rank.send(str(model))
        yield Pipe(ranks)


def plain_stage(pipe: Connection[Any, Any]) -> None:
    """A process of the pipeline, without MLX's own output about its ring."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(null, stream)
    from mlx_lm import load

    obey_device()
    index, hosts = pipe.recv()
    group = init_group("ring", ring_variables(index, hosts), RANKS)
    pipe.send(None)
    try:
        model, tokenizer = load(pipe.recv(), lazy=True)[:2]
        model.model.pipeline(group)
        while True:
            pipe.send(mlx_lm_answer(model, tokenizer, *pipe.recv()))
    except (EOFError, ConnectionError):
        os._exit(0)  # a rank whose partner is gone would wait for ever to end in order


def measure(runs: int, tokens: int, sizes: ModelSize) -> PlainResult:
    """`runs` answers of `tokens` tokens on each side. Raises WorkerError and what a stage reports."""
    with TemporaryDirectory(prefix="macluster-plain-") as folder:
        model = make(Path(folder), sizes, FAMILY)
        with plain_pipeline(model) as plain, worker_ring(model, (sizes.cut,), draft=0) as ring:

            def run(count: int, *, plain_first: bool) -> PlainRun:
                said = plain.generate(PROMPT, count) if plain_first else None
                sealed = ask(ring, PROMPT, count).answer
                said = said or plain.generate(PROMPT, count)
                return PlainRun(
                    plain_tokens_per_s=speed(said.times),
                    sealed_tokens_per_s=speed(sealed.times),
                    same_tokens=said.tokens == sealed.tokens,
                )

            run(WARM_UP_TOKENS, plain_first=True)
            return summary([run(tokens, plain_first=n % 2 == 0) for n in range(runs)], tokens, sizes)


def summary(runs: list[PlainRun], tokens: int, sizes: ModelSize) -> PlainResult:
    """Medians over runs; the ratio is the median of the ratios within a run."""
    ratio = median(run.sealed_tokens_per_s / run.plain_tokens_per_s for run in runs)
    return PlainResult(
        ratios={"two_stages_over_plain": ratio},
        reach={"two_stages_over_plain": reach(ratio, at_least=REACH, counts=mx.default_device() == mx.gpu)},
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        plain_tokens_per_s=median(run.plain_tokens_per_s for run in runs),
        sealed_tokens_per_s=median(run.sealed_tokens_per_s for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
        runs=runs,
    )


def describe(result: PlainResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"Decode of one row, {result.tokens} tokens, {result.sizes}; {result.system}, {result.cores} cores; "
            f"medians of {len(result.runs)} runs, sides taking turns.",
            "",
            f"  mlx-lm's pipeline, in the open   {result.plain_tokens_per_s:7.2f} tokens/s",
            f"  two stages, sealed               {result.sealed_tokens_per_s:7.2f} tokens/s",
            f"  The answers {'are the same' if result.same_tokens else 'DIFFER'}.",
            "",
            result.verdict("two_stages_over_plain", "Tokens a second, two sealed stages over the pipeline")
            + " (counts on a GPU)",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    return run_sized("plain", "Against mlx-lm's pipeline in the open.", measure, describe, DEFAULT, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
