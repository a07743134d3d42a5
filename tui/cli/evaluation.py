"""`macluster eval TASK`: lm-eval evaluates the loaded model through this Mac's API, and mlx_lm in one process."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from core.bench.evaluation.lm_eval_tasks import EvalApi, EvalRequest, Figures, check_harness
from core.errors import NodeError, NotLoaded, UsageError
from core.requests.api import ApiKeyName
from tui.cli.launch import home_of
from tui.cli.output import print_facts, print_progress, prints_facts, table
from tui.cli.watch import Watch, watching

RING: Final = "ring"
ALONE: Final = "one_process"
WORDS: Final = {RING: "over the ring", ALONE: "in one process"}


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("task", metavar="TASK", help="a task of lm-eval, or tiny (eight questions, included)")
    command.add_argument("--limit", type=int, metavar="N", help="most questions per task")
    at_once = "questions in flight at a time (default %(default)s)"
    command.add_argument("--together", type=int, default=4, metavar="N", help=at_once)
    only = "skip mlx_lm in one process (for a model that does not fit this Mac)"
    command.add_argument("--ring-only", action="store_true", help=only)
    prints_facts(command, evaluate)


async def evaluate(args: argparse.Namespace) -> None:
    """Evaluate the loaded model over the ring, then in one process."""
    check_harness()
    reported: dict[str, Figures] = {}
    async with watching(home_of(args)) as watch:
        wanted = EvalRequest(task=args.task, limit=args.limit, directory=await directory_of(watch))
        async with api_of(watch, args.together) as api:
            print_progress(f"Asking {api.model} at {api.url} …")
            reported[RING] = await ask(msgspec.structs.replace(wanted, api=api))
    if not args.ring_only:
        print_progress("Asking mlx_lm in one process …")
        reported[ALONE] = await ask(wanted)
    print_facts(args, {"task": args.task, "limit": args.limit, **reported}, lines(reported))


async def directory_of(watch: Watch) -> str:
    """Folder of the loaded model on this Mac, its head. Raises NotLoaded or UsageError."""
    plan = watch.now.plan
    if host := watch.now.host:
        raise NotLoaded(f"{host.led_by} leads {host.model}.", f"Run this on {host.led_by}.")
    if plan is None or watch.now.plan_status != "ready":
        raise NotLoaded("No model is ready on this Mac.", "Load one first: `macluster load MODEL`.")
    found = (each.path for each in await watch.client.models() if each.fingerprint == plan.fingerprint and each.path)
    directory = next(found, "")
    if not directory:
        what = f"{plan.name} is not complete on this Mac's disk."
        raise UsageError(what, "Run this on a Mac that has all of its files.")
    return directory


@asynccontextmanager
async def api_of(watch: Watch, together: int) -> AsyncIterator[EvalApi]:
    """This Mac's API with a temporary key; the API is on during the block even if it was off."""
    plan, was_on = watch.now.plan, watch.now.api is not None
    served, name = await watch.client.start_api(), f"eval {secrets.token_hex(4)}"
    made = await watch.client.new_api_key(ApiKeyName(name=name))
    try:
        yield EvalApi(
            url=served.url,
            model=plan.name if plan else "",
            key=made.key,
            together=together,
            certificate=str(watch.client.home.api_certificate / "api.crt") if served.fingerprint else None,
        )
    finally:
        await watch.client.revoke_api_key(ApiKeyName(name=name))
        if not was_on:
            await watch.client.stop_api()


async def ask(wanted: EvalRequest) -> Figures:
    """Evaluate in a process of its own, since lm-eval imports a lot. Raises NodeError if it fails."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "core.bench.evaluation"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    try:
        reported, _ = await process.communicate(msgspec.json.encode(wanted))
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise NodeError(f"lm-eval failed on {wanted.task}.", "Its output is above.")
    return msgspec.json.decode(reported, type=Figures)


def lines(reported: Mapping[str, Figures]) -> list[str]:
    names = list(dict.fromkeys(name for found in reported.values() for name in found))
    rows = [(name, *(f"{found[name]:.4f}" if name in found else "–" for found in reported.values())) for name in names]
    return table(("", *(WORDS[side] for side in reported)), rows)
