"""One function a command; each prints its facts and returns the exit status."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from core.errors import MaclusterError, NodeError, UsageError
from core.events import Plan, PlanLoaded, PlanProposed
from core.requests import LoadRequest, PreviewRequest, SessionName, SpeedRequest, UnfinishedAnswer
from core.text import clean_text
from core.trust.name_matching import pick
from tui.cli import pairing, report
from tui.cli.demo import LOAD_S, Demo, DemoConfig, demo_budgets
from tui.cli.launch import home_of, preferences_of
from tui.cli.run import answer, asks_for_more, request_of
from tui.cli.watch import Watch
from tui.cli.what_if import budgets_of, imagined_plan
from tui.client import NodeClient, check

ATTACH_S = 5.0


async def demo(args: argparse.Namespace) -> int:
    """Simulated Macs: in a terminal with the UI, else one answer as text or JSON."""
    config = DemoConfig(
        budgets_gb=demo_budgets(args.memory, args.macs),
        model=args.model,
        load=LoadRequest(model="", verify=args.verify, **_how(args)),
        multicast=not args.no_multicast,
    )
    check(config.load)
    headless = args.json or args.prompt is not None or not (sys.stdin.isatty() and sys.stdout.isatty())
    demo = Demo(config, _to_stderr)
    try:
        if headless:
            return await _demo_answer(demo, args)
        return await _demo_tui(demo, args)
    finally:
        await demo.stop()


async def _demo_answer(demo: Demo, args: argparse.Namespace) -> int:
    prompt = args.prompt if args.prompt is not None else args.default_prompt
    request = request_of(prompt, args)
    _to_stderr(f"Starting {len(demo.budgets)} simulated Macs …")
    await demo.start()
    await demo.join()
    loaded = await demo.load()
    plan = demo.head.now.plan
    if plan is None:
        raise NodeError("The plan is gone before the answer began.", "The log of the node says more.")
    if not args.json:
        print(f"Found by {demo.found_by}; {len(plan.stages)} Mac(s), paired; loaded in {loaded.seconds:.1f} s")
        print("\n".join([*report.plan_lines(plan), *report.proof_lines(loaded)]))
        print(report.trust_line(demo.head.now.trust))
        print(f"\n> {clean_text(prompt)}", flush=True)
    await answer(demo.head, request, as_json=args.json, more={"proof": loaded.proof})
    return 0


async def _demo_tui(demo: Demo, args: argparse.Namespace) -> int:
    from tui.app import MaclusterApp

    _to_stderr(f"Starting {len(demo.budgets)} simulated Macs …")
    await demo.start()
    async with NodeClient(demo.home) as client:
        note = f"demo: {len(demo.budgets)} simulated Macs on this one"
        # what the person sets here is theirs; the state of the simulated Macs is thrown away
        app = MaclusterApp(client, note=note, folder=home_of(args).root, preferences=preferences_of(args))

        async def prepare() -> None:
            try:
                await demo.join()
                await demo.load()
            except MaclusterError as error:
                app.notify(f"{error.what} {error.fix}", severity="error", timeout=20)
            await demo.stop_watching()

        preparing = asyncio.create_task(prepare())
        await app.run_async()
        preparing.cancel()
        await asyncio.gather(preparing, return_exceptions=True)
    return app.return_code or 0


async def status(args: argparse.Namespace) -> int:
    """This Mac, its peers, the plan."""
    async with Watch(home_of(args)) as watch:
        await watch.attached(ATTACH_S)
        key = (await watch.client.trust()).key_storage
        unfinished = await watch.client.unfinished()
        facts = {"key_storage": key, "unfinished": report.unfinished_facts(unfinished)}
        lines = [f"Key: kept by {key}.", *report.unfinished_lines(unfinished)]
        _print(args, report.status_facts(watch.now) | facts, [*report.status_lines(watch.now), *lines])
    return 0


async def peers(args: argparse.Namespace) -> int:
    """The Macs that were seen."""
    async with Watch(home_of(args)) as watch:
        await watch.attached(ATTACH_S)
        _print(args, watch.now.peers, report.peer_lines(watch.now.peers))
    return 0


async def pair(args: argparse.Namespace) -> int:
    """Pair with another Mac, step by step."""
    await pairing.pair(home_of(args), args.mac, pairing.to_json if args.json else pairing.say)
    return 0


async def models(args: argparse.Namespace) -> int:
    """Models on this Mac and how they fit."""
    async with NodeClient(home_of(args)) as client:
        found = await client.models()
    lines = report.model_lines(found) if found else ["No model is on this Mac yet."]
    _print(args, [report.model_facts(m) for m in found], lines)
    return 0


async def plan(args: argparse.Namespace) -> int:
    """Who would own which layers: over the present cluster, or over Macs that need not exist."""
    request = PreviewRequest(model=_model(args), parts=args.parts, **_how(args))
    check(request)
    if args.macs and args.without:
        raise UsageError("--macs and --without do not go together.", "Leave those Macs out of --macs.")
    if args.macs:
        macs = budgets_of(args.macs, "--macs")
        preview = await imagined_plan(home_of(args), request, macs)
    else:
        async with Watch(home_of(args)) as watch:
            await watch.attached(ATTACH_S)
            without = _without(watch, args)
            preview = await watch.client.plan(msgspec.structs.replace(request, without=without))
    _print(args, report.preview_facts(preview), report.preview_lines(preview))
    return 0 if preview.plan else 1


async def load(args: argparse.Namespace) -> int:
    """Split a model over the paired Macs, and wait until it is ready."""
    async with Watch(home_of(args)) as watch:
        loaded = await _load(watch, args, verify=args.verify)
        assert watch.now.plan
        lines = [*report.plan_lines(watch.now.plan), *report.proof_lines(loaded)]
        _print(args, report.status_facts(watch.now) | {"proof": loaded.proof}, lines)
    return 0


async def unload(args: argparse.Namespace) -> int:
    """Free the memory on every Mac."""
    async with NodeClient(home_of(args)) as client:
        await client.unload()
    _print(args, {"unloaded": True}, ["Unloaded."])
    return 0


async def run(args: argparse.Namespace) -> int:
    """One answer, or the rest of one; loads the model first if it is not loaded."""
    if args.go_on is not None:
        return await _continue(args)
    prompt = await asyncio.to_thread(sys.stdin.read) if args.prompt == "-" else args.prompt
    request = request_of(prompt, args)
    async with Watch(home_of(args)) as watch:
        await watch.attached(ATTACH_S)
        if args.session:
            said = (await watch.client.session(SessionName(name=args.session))).messages
            request = msgspec.structs.replace(request, messages=(*said, *request.messages))
        if not await _is_loaded(watch, args):
            await _load(watch, args)
        await answer(watch, request, as_json=args.json, hops=False)
    return 0


async def _continue(args: argparse.Namespace) -> int:
    """What is written of an answer that was cut off, then the rest of it."""
    if args.session or asks_for_more(args):
        raise UsageError("A continued answer is asked for as it was.", "Give --continue without a session or options.")
    async with Watch(home_of(args)) as watch:
        await watch.attached(ATTACH_S)
        found = [one for one in await watch.client.unfinished() if one.request_id.startswith(args.go_on)]
        if not found:
            which = f" with an id that begins with {args.go_on!r}" if args.go_on else ""
            raise UsageError(f"No answer{which} is unfinished.", "`macluster status --json` lists those that are.")
        if not await _is_loaded(watch, args):
            await _load(watch, args)
        await answer(watch, _of_model(found, watch), as_json=args.json, hops=False)
    return 0


def _of_model(found: Sequence[UnfinishedAnswer], watch: Watch) -> UnfinishedAnswer:
    """The newest that goes on with what is loaded, else one for which the node says what to load."""
    loaded = watch.now.plan
    return next((one for one in found if loaded and one.model == loaded.model), found[0])


async def keys(args: argparse.Namespace) -> int:
    """Every action that has a key, by the name under which config.toml can give it another."""
    from tui.control.preferences import ACTIONS, config_file

    facts = {name: {"keys": action.keys.split(","), "does": action.title} for name, action in ACTIONS.items()}
    rows = [(name, action.keys, action.title) for name, action in ACTIONS.items()]
    how = f'\nOther keys: [keys] in {config_file()}, such as  models = "ctrl+k,f7"'
    _print(args, facts, [*report.table(("action", "keys", "does"), rows, left=(0, 1, 2)), how])
    return 0


async def speedtest(args: argparse.Namespace) -> int:
    """How fast the link between two Macs is."""
    async with NodeClient(home_of(args)) as client:
        try:
            found = await client.test_speed(SpeedRequest(source=args.source, target=args.target))
        except asyncio.CancelledError:
            await client.stop_speed_test()
            raise
    _print(args, report.speed_facts(found), report.speed_lines(found))
    return 0


async def bench(args: argparse.Namespace) -> int:
    """Run a bench in a process of its own, since it imports mlx."""
    command = [sys.executable, "-m", _bench_module(args.name), *(["--json"] if args.json else [])]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONSAFEPATH": "1"})
    try:
        return await process.wait()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # it takes its workers and its folder with it
        await process.wait()
        raise


def _bench_module(name: str) -> str:
    return "tui.bench" if name == "tui" else f"core.bench.{name}"


async def _is_loaded(watch: Watch, args: argparse.Namespace) -> bool:
    """Whether the model that is meant is ready, whatever it is called, in the ring that was asked for, if any was; or
    is kept alive, for another load would end what waits for it.
    """
    loaded, recovery = watch.now.plan, watch.now.recovery
    is_there = recovery.state != "parked" if recovery else watch.now.plan_status == "ready"
    if loaded is None or not is_there or args.topology not in (None, loaded.topology):
        return False
    without = _without(watch, args)
    if any(stage.device_id in without for stage in loaded.stages):
        return False
    if loaded.model == args.model and not args.layers:
        return True
    meant = await watch.client.plan(PreviewRequest(model=_model(args), layers=args.layers, without=without))
    split = meant.plan or meant.draft
    if split is None or split.fingerprint != loaded.fingerprint:
        return False
    return not args.layers or _owners(split) == _owners(loaded)


def _owners(plan: Plan) -> list[tuple[str, int]]:
    return [(stage.device_id, stage.start) for stage in plan.stages] + [(plan.output, plan.layers)]


def _how(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `core.requests.PlanRequest`."""
    names = ("context", "kv_bits", "rows", "chunk", "window", "topology", "layers")
    return {name: getattr(args, name) for name in names}


def _without(watch: Watch, args: argparse.Namespace) -> tuple[str, ...]:
    """Device ids of the Macs that are to hold no layers. Raises UsageError for a name that is none."""
    known = [(peer.device_id, peer.name) for peer in watch.now.peers]
    return tuple(pick(typed, known) for typed in args.without)


async def _load(watch: Watch, args: argparse.Namespace, *, verify: bool = False) -> PlanLoaded:
    await watch.attached(ATTACH_S)
    request = LoadRequest(model=_model(args), verify=verify, without=_without(watch, args), **_how(args))
    check(request)
    mark = len(watch.seen)
    await watch.client.load(request)

    def settled(w: Watch) -> bool:
        proposed = any(isinstance(e, PlanProposed) for e in w.seen[mark:])
        return proposed and w.now.plan_status in ("ready", "broken")

    await watch.until(settled, LOAD_S, "Loading the model")
    if watch.now.plan_problem:
        raise NodeError(watch.now.plan_problem.what, watch.now.plan_problem.fix)
    return next(e for e in reversed(watch.seen) if isinstance(e, PlanLoaded))


def _print(args: argparse.Namespace, facts: object, lines: Sequence[str]) -> None:
    print(report.to_json(facts) if args.json else "\n".join(lines))


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _model(args: argparse.Namespace) -> str:
    """A directory is made absolute, for the node runs elsewhere; names of the catalog may hold a slash."""
    name = os.path.expanduser(str(args.model))
    return os.path.abspath(name) if name.startswith(("/", "./", "../")) or os.path.isdir(name) else name
