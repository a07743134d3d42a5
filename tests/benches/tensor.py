"""Decode of one row by two tensor ranks, against one process and against two stages with layers of their own.

All have the same model and answer the same prompt in turns, in a changing order. There are no drafts. On one machine
ranks share memory and cores, so they show only the cost of adding up. On a machine with two NVIDIA GPUs (`--group
nccl`) each rank, and each stage, has a GPU of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import msgspec

from core.bench.results import cores, end_in_order, positive, system
from core.events import GroupKind
from tests.benches.figures import speed
from tests.benches.made_models import FIRST_TOKEN, ModelSize, add_sizes, at_least_two, make, sizes_of
from tests.benches.mlx_lm_process import MlxLmAnswer, mlx_lm_process
from tests.benches.results import Result, print_result
from tests.support.worker_ring import RingAnswer, ask, worker_ring

DEFAULT: Final = ModelSize(12, 1024, "float32")
PROMPT: Final = (FIRST_TOKEN,)
WARM_UP_TOKENS: Final = 4
RANKS: Final = 2
WAYS: Final = {"solo": "mlx_lm, one process", "tensor": "two ranks", "pipeline": "two stages, sealed"}
GROUPS: Final[tuple[GroupKind, ...]] = ("sealed", "nccl")


Ask = Callable[[int], MlxLmAnswer | RingAnswer]  # takes the number of tokens


class TensorRun(msgspec.Struct, frozen=True, kw_only=True):
    """Every way once: tokens a second between the first and the last."""

    tokens_per_s: dict[str, float]
    same_tokens: bool


class TensorResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`."""

    tokens: int
    sizes: ModelSize
    group: GroupKind
    weight_bytes: int
    tokens_per_s: dict[str, float]
    same_tokens: bool
    runs: list[TensorRun]


class _Setting(NamedTuple):
    """Settings of a comparison: tokens per answer, model, and how the ranks add up."""

    tokens: int
    sizes: ModelSize
    group: GroupKind
    weight_bytes: int


def measure(runs: int, tokens: int, sizes: ModelSize, group: GroupKind) -> TensorResult:
    """`runs` answers of `tokens` tokens each way. Raises WorkerError and what a stage reports."""
    own_gpus = group == "nccl"
    with TemporaryDirectory(prefix="macluster-tensor-") as folder:
        model = make(Path(folder), sizes)
        setting = _Setting(tokens, sizes, group, sum(f.stat().st_size for f in model.glob("*.safetensors")))
        with (
            mlx_lm_process(model) as solo,
            worker_ring(model, (), ranks=RANKS, group=group, own_gpus=own_gpus, draft=0) as ranks,
            worker_ring(model, (sizes.cut,), own_gpus=own_gpus, draft=0) as stages,
        ):
            ways: dict[str, Ask] = {
                "solo": lambda count: solo.generate(PROMPT, count),
                "tensor": lambda count: ask(ranks, PROMPT, count).answer,
                "pipeline": lambda count: ask(stages, PROMPT, count).answer,
            }
            _run(ways, WARM_UP_TOKENS, 0)
            return summary([_run(ways, tokens, number) for number in range(runs)], setting)


def _run(ways: dict[str, Ask], tokens: int, number: int) -> TensorRun:
    order = deque(ways)
    order.rotate(number)
    said = {way: ways[way](tokens) for way in order}
    return TensorRun(
        tokens_per_s={way: speed(said[way].times) for way in WAYS},
        same_tokens=len({each.tokens for each in said.values()}) == 1,
    )


def summary(runs: list[TensorRun], setting: _Setting) -> TensorResult:
    """Medians over runs; a ratio is the median of the ratios within a run."""
    return TensorResult(
        ratios={
            f"tensor_over_{way}": median(run.tokens_per_s["tensor"] / run.tokens_per_s[way] for run in runs)
            for way in ("solo", "pipeline")
        },
        reach={},
        cores=cores(),
        system=system(),
        **setting._asdict(),
        tokens_per_s={way: median(run.tokens_per_s[way] for run in runs) for way in WAYS},
        same_tokens=all(run.same_tokens for run in runs),
        runs=runs,
    )


def describe(result: TensorResult) -> str:
    """The result for people."""
    speeds = [f"  {meaning:20} {result.tokens_per_s[way]:9.2f} tokens/s" for way, meaning in WAYS.items()]
    return "\n".join(
        [
            f"Decode of one row, {result.tokens} tokens, {result.sizes}, {result.weight_bytes / 1e9:.1f} GB; ranks add "
            f"up through the group {result.group}; {result.system}, {result.cores} cores; "
            f"medians of {len(result.runs)} runs, ways taking turns.",
            "",
            *speeds,
            f"  The answers {'are the same' if result.same_tokens else 'DIFFER'}.",
            "",
            f"Tokens a second, two ranks over one process: {result.ratios['tensor_over_solo']:.2f}",
            f"Tokens a second, two ranks over two stages: {result.ratios['tensor_over_pipeline']:.2f}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    parser = argparse.ArgumentParser(prog="macluster bench tensor", description="What ranks gain.")
    parser.add_argument("--runs", type=positive, default=5, help="runs for the median (default %(default)s)")
    parser.add_argument("--tokens", type=at_least_two, default=48, help="tokens per answer (default %(default)s)")
    parser.add_argument(
        "--group",
        choices=GROUPS,
        default=GROUPS[0],
        help="how ranks add up; nccl needs two NVIDIA GPUs (default sealed)",
    )
    add_sizes(parser, DEFAULT)
    return print_result(
        parser, lambda args: measure(args.runs, args.tokens, sizes_of(args), args.group), describe, arguments
    )


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
