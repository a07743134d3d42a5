"""Our engine over a whole model in one process, against mlx_lm over the same model in the same process.

Scheduler, compositions, pipeline and samplers are those of every head; without links, pipes and a second process, what
is missing to 1 is their own cost. Both sides answer the same prompt in turns; the order changes. There are no drafts.
Speed is measured between the first token and the last. CPU time is that of a whole answer; on a busy machine it is the
better figure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

import msgspec

from core.bench.results import cores, end_in_order, system
from core.engine.constraints import Grammars
from core.engine.steps import TRY_S
from core.errors import error_from
from core.local.macs import make_macs
from core.local.plans import plan_of
from core.models.files.model_folder import read_folder
from core.models.metal import obey_device
from core.models.slicing.loading import load_slice
from core.models.text.vocabulary import read_vocabulary
from core.plan.topology import LONE_MAC_TOPOLOGY
from core.worker.head import Head
from core.worker.messages import AnswerDone, Report, Token
from core.worker.pipeline import Pipeline
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.benches.figures import speed
from tests.benches.made_models import FIRST_TOKEN, ModelSize, make, run_sized
from tests.benches.mlx_lm_process import MlxLmAnswer, mlx_lm_answer
from tests.benches.results import Result
from tests.support.worker_ring import a_request

DEFAULT: Final = ModelSize(12, 1024, "float32")
PROMPT: Final = (FIRST_TOKEN,)
WARM_UP_TOKENS: Final = 4

Side = Callable[[Sequence[int], int], MlxLmAnswer]


class LoopRun(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides once: tokens a second, and seconds of the processor."""

    solo_tokens_per_s: float
    loop_tokens_per_s: float
    solo_processor_s: float
    loop_processor_s: float
    same_tokens: bool


class LoopResult(Result, frozen=True, kw_only=True):
    """Medians over `runs`."""

    tokens: int
    sizes: ModelSize
    solo_tokens_per_s: float
    loop_tokens_per_s: float
    same_tokens: bool
    runs: list[LoopRun]


class EngineLoop:
    """The head of a ring of one over the model in this directory, in this process."""

    def __init__(self, model: Path) -> None:
        layout = read_folder(model).layout()
        with TemporaryDirectory(prefix="macluster-loop-") as folder:
            plan = plan_of(model.name, layout.layers, (), make_macs(Path(folder), 1), LONE_MAC_TOPOLOGY)
        layers = load_slice(read_folder(model), 0, layout.layers, embed=True, output=True)
        size = layers.vocab_size
        grammars = Grammars(partial(read_vocabulary, model, size), size)
        pipeline = Pipeline(LoadedStage(layers, StageMeter(0)), plan, TRY_S)
        self._head = Head(plan, pipeline, self._handle_report, grammars, draft=0)
        self._tokens: list[int] = []
        self._times: list[float] = []

    def generate(self, prompt: Sequence[int], tokens: int) -> MlxLmAnswer:
        """Greedy tokens after `prompt`. Raises StageFailed."""
        self._tokens, self._times = [], []
        asked = perf_counter()
        self._head.submit(a_request(prompt, max_tokens=tokens))
        while self._head.is_busy:
            self._head.turn(None)
        return MlxLmAnswer(asked, tuple(self._tokens), tuple(self._times))

    def _handle_report(self, report: Report) -> None:
        if isinstance(report, Token):
            self._times.append(perf_counter())
            self._tokens.append(report.token)
        elif isinstance(report, AnswerDone) and report.problem:
            raise error_from(report.problem)


def measure(runs: int, tokens: int, sizes: ModelSize) -> LoopResult:
    """`runs` answers of `tokens` tokens on each side. Raises BadModel or StageFailed."""
    from mlx_lm import load

    obey_device()
    with TemporaryDirectory(prefix="macluster-loop-") as folder:
        model = make(Path(folder), sizes)
        sides: dict[str, Side] = {
            "solo": partial(mlx_lm_answer, *load(str(model))[:2]),
            "loop": EngineLoop(model).generate,
        }
        _run(sides, WARM_UP_TOKENS)
        turns = [sides, dict(reversed(sides.items()))]
        return summary([_run(turns[number % 2], tokens) for number in range(runs)], tokens, sizes)


def _run(sides: dict[str, Side], tokens: int) -> LoopRun:
    """One answer of each side, in their order."""
    said, spent = dict[str, MlxLmAnswer](), dict[str, float]()
    for name, side in sides.items():
        began = process_time()
        said[name] = side(PROMPT, tokens)
        spent[name] = process_time() - began
    return LoopRun(
        solo_tokens_per_s=speed(said["solo"].times),
        loop_tokens_per_s=speed(said["loop"].times),
        solo_processor_s=spent["solo"],
        loop_processor_s=spent["loop"],
        same_tokens=said["solo"].tokens == said["loop"].tokens,
    )


def summary(runs: list[LoopRun], tokens: int, sizes: ModelSize) -> LoopResult:
    """Medians over runs; the ratio is the median of the ratios within a run."""
    return LoopResult(
        ratios={
            "loop_over_solo": median(run.loop_tokens_per_s / run.solo_tokens_per_s for run in runs),
            "loop_over_solo_processor": median(run.solo_processor_s / run.loop_processor_s for run in runs),
        },
        reach={},
        cores=cores(),
        system=system(),
        tokens=tokens,
        sizes=sizes,
        solo_tokens_per_s=median(run.solo_tokens_per_s for run in runs),
        loop_tokens_per_s=median(run.loop_tokens_per_s for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
        runs=runs,
    )


def describe(result: LoopResult) -> str:
    """The result for people."""
    return "\n".join(
        [
            f"Decode of one row in one process, {result.tokens} tokens, {result.sizes}; {result.system}, "
            f"{result.cores} cores; medians of {len(result.runs)} runs, sides taking turns.",
            "",
            f"  mlx_lm            {result.solo_tokens_per_s:7.2f} tokens/s",
            f"  our loop, alone   {result.loop_tokens_per_s:7.2f} tokens/s",
            f"  The answers {'are the same' if result.same_tokens else 'DIFFER'}.",
            "",
            f"Tokens a second, our loop over mlx_lm: {result.ratios['loop_over_solo']:.2f}",
            f"Tokens a second of the processor: {result.ratios['loop_over_solo_processor']:.2f}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench."""
    return run_sized("loop", "What the loop of the ring costs.", measure, describe, DEFAULT, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
