"""`macluster bench pair`: several requests at a time against the same ones one after the other, over paired Macs.

Requests go to a node over real links: to this Mac's own node and its loaded model (`--paired`), or else to two Macs
simulated on this one with a model of random weights. Both ways take turns with the same prompts, and the order changes.
Speed is measured from the first request to the end of the last answer.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import msgspec

from core.bench.results import cores, end_in_order, positive, print_result, system
from core.errors import NodeError, NotLoaded, error_from
from core.events import RequestDone, TokenEvent
from core.requests.answers import ChatRequest, Message
from core.settings import default_home
from tui.cli.demo import DemoConfig, simulated
from tui.cli.made_model import made_llama
from tui.cli.watch import Watch, watching

MACS: Final = (1.0, 1.0)  # memory budget of each, GB
ANSWER_S: Final = 600.0


class PairRun(msgspec.Struct, frozen=True, kw_only=True):
    """Both ways once, in tokens per second of all rows."""

    one_by_one_tokens_per_s: float
    together_tokens_per_s: float
    same_tokens: bool


class PairResult(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over `runs`."""

    ratios: dict[str, float]
    cores: int
    system: str
    model: str
    macs: int
    simulated: bool  # all of them on this Mac
    rows: int  # requests at a time
    tokens: int  # per answer
    one_by_one_tokens_per_s: float
    together_tokens_per_s: float
    same_tokens: bool
    runs: list[PairRun]


class PairWays:
    """Sends `rows` requests of `tokens` tokens to the watched node."""

    def __init__(self, watch: Watch, rows: int, tokens: int) -> None:
        self._watch, self._rows, self._tokens = watch, rows, tokens

    async def run(self, number: int) -> PairRun:
        """Measure both ways with prompts that no other run has. Raises MaclusterError."""
        answers, seconds = dict[str, list[list[int]]](), dict[str, float]()
        ways = {"one_by_one": self._one_by_one, "together": self._together}
        for way in list(ways) if number % 2 else list(ways)[::-1]:
            began = perf_counter()
            answers[way] = await ways[way](number)
            seconds[way] = perf_counter() - began
        return PairRun(
            one_by_one_tokens_per_s=sum(map(len, answers["one_by_one"])) / seconds["one_by_one"],
            together_tokens_per_s=sum(map(len, answers["together"])) / seconds["together"],
            same_tokens=answers["one_by_one"] == answers["together"],
        )

    async def _one_by_one(self, number: int) -> list[list[int]]:
        return [await self._end(await self._begin(number, row)) for row in range(self._rows)]

    async def _together(self, number: int) -> list[list[int]]:
        begun = [await self._begin(number, row) for row in range(self._rows)]
        return [await self._end(request) for request in begun]

    async def _begin(self, number: int, row: int) -> str:
        message = Message(role="user", content=f"{number}.{row}: what does a ring of machines do?")
        wanted = ChatRequest(messages=(message,), min_tokens=self._tokens, max_tokens=self._tokens)
        return (await self._watch.client.chat(wanted)).request_id

    async def _end(self, request_id: str) -> list[int]:
        def ended() -> RequestDone | None:
            return next((e for e in seen if isinstance(e, RequestDone) and e.request_id == request_id), None)

        seen = self._watch.seen
        await self._watch.until(lambda _: ended() is not None, ANSWER_S, "An answer")
        if (done := ended()) and done.problem:
            raise error_from(done.problem)
        return [e.token for e in seen if isinstance(e, TokenEvent) and e.request_id == request_id]


@asynccontextmanager
async def head_of(args: argparse.Namespace, folder: Path) -> AsyncIterator[Watch]:
    """This Mac's node, or the head of two simulated Macs. Raises NotLoaded if this Mac has no model ready."""
    if not args.paired:
        model = made_llama(folder / "made", args.layers, args.hidden)
        async with simulated(DemoConfig(budgets_gb=MACS, model=model, multicast=False, has_spare=False)) as demo:
            yield demo.head
        return
    async with watching(default_home()) as watch:
        if watch.now.plan is None or watch.now.plan_status != "ready":
            raise NotLoaded("No model is ready on this Mac.", "Load one over its peers first: `macluster load MODEL`.")
        yield watch


async def measure(args: argparse.Namespace) -> PairResult:
    """Run both ways `args.runs` times. Raises MaclusterError."""
    with TemporaryDirectory(prefix="macluster-pair-") as folder:
        async with head_of(args, Path(folder)) as watch:
            ways = PairWays(watch, args.rows, args.tokens)
            plan = watch.now.plan
            if plan is None:
                raise NodeError("The model was unloaded.", "Run the bench again.")
            await PairWays(watch, 2, 4).run(0)
            runs = [await ways.run(1 + number) for number in range(args.runs)]
    return PairResult(
        ratios={"together_over_one_by_one": median(r.together_tokens_per_s / r.one_by_one_tokens_per_s for r in runs)},
        cores=cores(),
        system=system(),
        model=plan.model,
        macs=len(plan.stages),
        simulated=not args.paired,
        rows=args.rows,
        tokens=args.tokens,
        one_by_one_tokens_per_s=median(run.one_by_one_tokens_per_s for run in runs),
        together_tokens_per_s=median(run.together_tokens_per_s for run in runs),
        same_tokens=all(run.same_tokens for run in runs),
        runs=runs,
    )


def describe(result: PairResult) -> str:
    macs = f"{result.macs} Macs{', simulated on this one' if result.simulated else ''}"
    ratio = result.ratios["together_over_one_by_one"]
    return "\n".join(
        [
            f"{result.rows} answers of {result.tokens} tokens each, {result.model} over {macs}; {result.system}, "
            f"{result.cores} cores; medians of {len(result.runs)} runs, in turns.",
            "",
            f"  one after the other   {result.one_by_one_tokens_per_s:7.2f} tokens/s",
            f"  at once               {result.together_tokens_per_s:7.2f} tokens/s",
            f"  The answers {'are the same' if result.same_tokens else 'DIFFER'}.",
            "",
            f"Tokens per second, {result.rows} at once over one after the other: {ratio:.2f}",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    what = "Several requests at a time against one after the other."
    parser = argparse.ArgumentParser(prog="macluster bench pair", description=what)
    own = "use the loaded model and its Macs instead of simulated ones"
    parser.add_argument("--paired", action="store_true", help=own)
    parser.add_argument("--runs", type=positive, default=3, help="runs for the median (default %(default)s)")
    parser.add_argument("--rows", type=positive, default=4, help="requests at a time (default %(default)s)")
    parser.add_argument("--tokens", type=positive, default=64, help="tokens per answer (default %(default)s)")
    layers = "layers of the simulated Macs' model (default %(default)s)"
    parser.add_argument("--layers", type=positive, default=8, help=layers)
    hidden = "hidden size, a multiple of 64 (default %(default)s)"
    parser.add_argument("--hidden", type=positive, default=768, help=hidden)
    return print_result(parser, lambda args: asyncio.run(measure(args)), describe, arguments)


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
