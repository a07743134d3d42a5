"""`macluster bench scenarios`: ten load tests of the API, each over clusters of simulated Macs.

A provider is a Mac besides the head, with its own identity, node and worker, over sealed links. Models have random
weights and answers without an end. With `--url` the same load goes to any server of OpenAI's chat completions; times
that it does not report are missing then, and their rows fail.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from core.bench.results import cores, end_in_order, positive, print_result, system
from core.bench.scenarios.definitions import SCENARIOS, Scenario, chosen
from core.bench.scenarios.load_generator import AskedModel, measured, model_of
from core.bench.scenarios.report import AskedServer, LoadLevel, ScenarioResult, ScenariosResult, markdown, result
from core.bench.scenarios.throughput_chart import svg
from core.errors import NodeError, UsageError
from core.requests.plans import LoadRequest
from core.trust.api_keys import ApiKeys
from tui.cli.demo import DemoConfig, simulated
from tui.cli.made_model import made_model

RAM_GB: Final = 4.0
CONTEXT: Final = 1024
HEAVY_CONTEXT: Final = 12_288  # one token per byte
NAMES: Final = ("made-a", "made-b")
HEAVY: Final = "made-heavy"
_SIZES: Final = {"head-dim": 32, "kv-heads": 1, "vocab": 512}
# MLX's CPU build is slow at attention over many tokens, so most layers of the heavy model have a sliding window
MODELS: Final = {
    **{
        name: {"family": "llama", "layers": 6, "hidden": 64, "intermediate": 128, "heads": 2, "seed": seed}
        for seed, name in enumerate(NAMES)
    },
    HEAVY: {"family": "llama_sliding", "layers": 4, "hidden": 32, "intermediate": 64, "heads": 1},
}


async def measure_all(scenarios: Sequence[Scenario], args: argparse.Namespace) -> ScenariosResult:
    """Run the scenarios one by one, each over clusters of its own. Raises MaclusterError."""
    results, began = list[ScenarioResult](), datetime.now(UTC)
    runner = f"{system()}, {cores()} cores, load average {os.getloadavg()[0]:.1f} at the start"
    if not args.url:
        runner += "; made models of random weights: " + "; ".join(map(_made, MODELS))
    loads = [LoadLevel(rate=rate, seed=args.seed, warm_up=args.warm_up) for rate in args.rate or (None,)]
    with TemporaryDirectory(prefix="macluster-scenarios-") as folder:
        for scenario in scenarios:
            async with _served(scenario, args, Path(folder)) as (targets, models):
                for load in loads:
                    reported = await measured(scenario, load, targets)
                    results.append(result(scenario, load, models, reported))
                    _say(results[-1])
    return ScenariosResult(runner=runner, date=began.strftime("%Y-%m-%d %H:%M"), scenarios=results)


def _say(one: ScenarioResult) -> None:
    passed = sum(row.passed for row in one.assertions)
    words = f"{one.succeeded} of {one.requests} in {one.duration_s:.1f} s, {passed} of {len(one.assertions)} rows PASS"
    print(f"{one.name}: {words}", file=sys.stderr, flush=True)


@asynccontextmanager
async def _served(
    scenario: Scenario, args: argparse.Namespace, folder: Path
) -> AsyncIterator[tuple[list[AskedModel], list[AskedServer]]]:
    """APIs that get the load, and what the report says about their models."""
    if url := args.url.rstrip("/"):
        model = args.model or await model_of(url, args.key)
        yield [AskedModel(url, model, [args.key])], [AskedServer(model=model)]
        return
    async with AsyncExitStack() as stack:
        targets, models = [], []
        names = (HEAVY,) if scenario.prompt_bytes else NAMES
        for name, providers in zip(names, scenario.providers, strict=False):
            directory = await _model(folder, name)
            targets.append(await stack.enter_async_context(_cluster(directory, providers, scenario)))
            models.append(AskedServer(model=name, providers=providers, ram_gb=(RAM_GB,) * (providers + 1)))
        yield targets, models


@asynccontextmanager
async def _cluster(model: Path, providers: int, scenario: Scenario) -> AsyncIterator[AskedModel]:
    config = DemoConfig(
        budgets_gb=(RAM_GB,) * (providers + 1),
        model=model,
        load=LoadRequest(model="", context=HEAVY_CONTEXT if scenario.prompt_bytes else CONTEXT),
        multicast=False,
        has_spare=False,
        api_ports=(0,),
        api_queue=scenario.queue,
    )
    async with simulated(config) as demo:
        plan, api = demo.head.now.plan, demo.head.now.api
        if api is None or plan is None or len(plan.stages) != providers + 1:
            raise NodeError(f"The model is not loaded on {providers + 1} Macs.", "Run the scenario again.")
        keys = ApiKeys(demo.home.api_keys)
        users = [keys.add(f"user-{user}", time.time()) for user in range(scenario.users)]
        yield AskedModel(api.url, model.name, users)


def _made(name: str) -> str:
    sizes = MODELS[name]
    return f"{name} of {sizes['layers']} layers, {sizes['hidden']} wide ({sizes['family']})"


async def _model(folder: Path, name: str) -> Path:
    """The model, made the first time; its context is the longest of all scenarios."""
    directory = folder / name
    if not directory.exists():
        await asyncio.to_thread(made_model, directory, {**MODELS[name], **_SIZES, "context": HEAVY_CONTEXT})
    return directory


def scenarios_of(args: argparse.Namespace) -> tuple[Scenario, ...]:
    """The named scenarios with the changes of the command line. Raises UsageError."""
    changes = {name: value for name in ("requests", "concurrency") if (value := getattr(args, name)) is not None}
    return tuple(msgspec.structs.replace(one, **changes) for one in chosen(args.names))


def run(args: argparse.Namespace) -> ScenariosResult:
    """Measure, and write the report files if `--report` is given. Raises MaclusterError."""
    if args.model and not args.url:
        raise UsageError("--model needs --url.", "Add the --url of the server.")
    reported = asyncio.run(measure_all(scenarios_of(args), args))
    if args.report:
        try:
            args.report.mkdir(parents=True, exist_ok=True)
            (args.report / "scenarios.md").write_text(markdown(reported), "utf-8")
            (args.report / "scenarios.json").write_bytes(msgspec.json.format(msgspec.json.encode(reported), indent=1))
            (args.report / "scenarios.svg").write_text(svg(reported.scenarios, reported.runner), "utf-8")
        except OSError as error:
            what = f"Can't write the report to {args.report}: {error.strerror}."
            raise UsageError(what, "Choose another --report.") from error
    return reported


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of this bench; the status is 1 if a row fails."""
    what = "Ten load tests of the API on simulated clusters, or on any server."
    parser = argparse.ArgumentParser(prog="macluster bench scenarios", description=what)
    names = f"any of {', '.join(SCENARIOS)} (default: all)"
    parser.add_argument("names", nargs="*", metavar="NAME", help=names)
    server = "test this server (http://host:port/v1) instead of simulated clusters"
    parser.add_argument("--url", default="", help=server)
    parser.add_argument("--key", default="", help="API key of that server")
    parser.add_argument("--model", default="", help="model of that server (default: the first in its list)")
    rate = "open loop: requests per second at random times, one load level per figure (default: closed loop)"
    parser.add_argument("--rate", type=_rates, metavar="R[,R…]", help=rate)
    parser.add_argument("--seed", type=int, default=0, help="random seed of those times (default %(default)s)")
    before = "requests before measuring (default %(default)s)"
    parser.add_argument("--warm-up", type=int, default=3, metavar="N", help=before)
    parser.add_argument("--requests", type=positive, metavar="N", help="number of requests (default: the scenario's)")
    in_flight = "requests in flight in a closed loop (default: the scenario's)"
    parser.add_argument("--concurrency", type=positive, metavar="N", help=in_flight)
    report = "also write scenarios.md, .json and .svg to this folder"
    parser.add_argument("--report", type=Path, metavar="DIR", help=report)
    held = True

    def measure(args: argparse.Namespace) -> ScenariosResult:
        nonlocal held
        reported = run(args)
        held = reported.holds
        return reported

    return print_result(parser, measure, markdown, arguments) or int(not held)


def _rates(text: str) -> list[float]:
    rates = [float(part) for part in text.split(",")]
    if not all(0 < rate < 1e6 for rate in rates):
        raise argparse.ArgumentTypeError("must be above 0")
    return rates


if __name__ == "__main__":
    end_in_order()
    sys.exit(main())
