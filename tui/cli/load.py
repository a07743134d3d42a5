"""`macluster load` and `macluster unload`."""

from __future__ import annotations

import argparse
from pathlib import Path

from core.errors import NodeError
from core.events import Plan, PlanLoaded, PlanProposed, StageState, Transfer
from core.requests.plans import LoadRequest, PreviewRequest
from tui.cli.launch import home_of
from tui.cli.output import print_facts
from tui.cli.plan import macs_without, path_of, plan_lines, plan_options, proof_lines, reader_of
from tui.cli.status import status_facts
from tui.cli.transfers import Shown
from tui.cli.watch import LOAD_S, Watch, watching
from tui.client import check
from tui.state.plan_words import is_of_ranks


async def load(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        loaded = await load_model(watch, args, verify=args.verify, take_over=args.take_over)
        assert watch.now.plan
        lines = [*plan_lines(watch.now.plan), *proof_lines(loaded)]
        print_facts(args, status_facts(watch.now) | {"proof": loaded.proof}, lines)


async def unload(args: argparse.Namespace) -> None:
    async with watching(home_of(args)) as watch:
        plan = watch.now.plan
        await watch.client.unload()
    words = f"{plan.model} unloaded." if plan is not None else "No model is loaded."
    print_facts(args, {"unloaded": plan is not None}, [words])


async def is_loaded(watch: Watch, args: argparse.Namespace) -> bool:
    """Whether the model is loaded as requested, or recovering: another load would end the waiting answers. If another
    Mac leads a model, its name decides.
    """
    if host := watch.now.host:
        return host.takes_relayed and host.model == Path(args.model).name
    loaded, recovery = watch.now.plan, watch.now.recovery
    is_there = recovery.state != "parked" if recovery else watch.now.plan_status == "ready"
    if loaded is None or not is_there or not is_shared_so(loaded, args):
        return False
    without = macs_without(watch, args)
    if any(stage.device_id in without for stage in loaded.stages):
        return False
    asked = reader_of(watch, args)
    if loaded.model == args.model and not args.layers and asked in ("off", _reader(loaded)):
        return True
    request = PreviewRequest(model=path_of(args.model), layers=args.layers, without=without, prefill=asked)
    meant = await watch.client.plan(request)
    split = meant.plan or meant.draft
    if split is None or split.fingerprint != loaded.fingerprint:
        return False
    is_read_so = asked == "off" or _reader(split) == _reader(loaded)
    return is_read_so and (not args.layers or _owners(split) == _owners(loaded))


def is_shared_so(plan: Plan, args: argparse.Namespace) -> bool:
    """Whether `plan` has the requested topology, parallelism, cable and wire dtype, made for the same choice."""
    how = plan.parallelism
    if args.draft and not plan.draft:
        return False
    if args.wire not in (None, plan.wire) and len(plan.stages) > 1 and not is_of_ranks(plan):
        return False
    if args.topology not in (None, plan.topology) or args.parallelism not in (None, how and how.choice):
        return False
    adds_up = how is not None and how.strategy == "tp" and bool(args.topology or args.parallelism)
    return not adds_up or (how is not None and how.group == "rdma") == args.rdma


def _reader(plan: Plan) -> str:
    return plan.prefill.stage.device_id if plan.prefill else ""


def _owners(plan: Plan) -> list[tuple[str, int]]:
    return [(stage.device_id, stage.start) for stage in plan.stages] + [(plan.output, plan.layers)]


async def load_model(
    watch: Watch, args: argparse.Namespace, *, verify: bool = False, take_over: bool = False
) -> PlanLoaded:
    """Load the model and wait until it is ready; raises NodeError, LinkTimeout and the node's refusal."""
    without, reader = macs_without(watch, args), reader_of(watch, args)
    options = plan_options(args)
    model = path_of(args.model)
    request = LoadRequest(model=model, verify=verify, take_over=take_over, without=without, prefill=reader, **options)
    check(request)
    return await loaded(watch, request)


async def loaded(watch: Watch, request: LoadRequest) -> PlanLoaded:
    """Send `request` and wait until the model is ready; earlier copies go to standard error. Raises as `load_model`."""
    mark = len(watch.seen)
    await watch.client.load(request)

    def settled(w: Watch) -> bool:
        proposed = any(isinstance(e, PlanProposed) for e in w.seen[mark:])
        return proposed and w.now.plan_status in ("ready", "broken")

    shown = Shown()
    while not settled(watch):
        count = len(watch.seen)

        def moved(w: Watch, count: int = count) -> bool:
            return settled(w) or any(isinstance(e, Transfer | StageState) for e in w.seen[count:])

        await watch.until(moved, LOAD_S, "Loading the model")
        shown.show(watch, {t.mac: t for t in watch.seen[count:] if isinstance(t, Transfer)})
    if watch.now.plan_problem:
        raise NodeError(watch.now.plan_problem.what, watch.now.plan_problem.fix)
    return next(e for e in reversed(watch.seen) if isinstance(e, PlanLoaded))
