"""`macluster models`: lists models on the Macs' disks or on the hub, and how they fit; `trim` frees disk space."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from core.models.files.layers_on_disk import layers_text, size_text
from core.plan.make_plan import missing_bytes
from core.requests.disks import Trimmable, TrimRequest
from core.requests.plans import ModelChoice
from core.text import clean_text
from tui.cli.asking import agreed, can_ask
from tui.cli.launch import home_of
from tui.cli.output import Facts, print_facts, prints_facts, table
from tui.cli.plan import preview_facts
from tui.client import NodeClient
from tui.state.format import day, plural
from tui.state.plan_words import weights_text

NOTHING = "No model is on this Mac yet. `macluster download REPO` downloads one of these, or any other from the hub."
SNAPSHOTS: Final = " Where Time Machine is on, its local snapshots hold the space for about a day."


async def models(args: argparse.Namespace) -> None:
    """List models on this Mac and how they fit; if there are no models, or with `--known`, models on the hub."""
    async with NodeClient(home_of(args)) as client:
        found = [] if args.known else await client.models()
        known = [] if found or (args.json and not args.known) else await client.known_models()
    nothing = [] if args.known else [NOTHING, ""]
    lines = model_lines(found) if found else [*nothing, *known_lines(known)]
    print_facts(args, [model_facts(m) for m in found or known], lines)


def known_lines(models: Sequence[ModelChoice]) -> list[str]:
    if not models:
        return ["Your Macs have every known model of the hub."]
    splits = [m.preview.plan or m.preview.draft for m in models]
    budget = max((sum(s.budget_bytes for s in split.stages) for split in splits if split), default=0)
    head = ("known on the hub", "weights", "size", "context", "tokens/s", "fit")
    sizes = ((weights_text(m), size_text(m.total_bytes), str(m.context_max)) for m in models)
    rows = [(m.name, *size, _speed(m), fit_words(m)) for m, size in zip(models, sizes, strict=True)]
    best = f"Models that fit {size_text(budget)}, the memory of these Macs, largest first; then the others"
    dated = f" (catalogue of {day(offer.listed_on)})" if (offer := models[0].offer) else ""
    return [f"{best}{dated}:", *table(head, rows, left=(0, 1, len(head) - 1))]


def _speed(model: ModelChoice) -> str:
    forecast = model.preview.forecast
    return f"≈ {forecast.tokens_per_s:.1f}" if forecast and model.preview.plan else "–"


def model_lines(models: Sequence[ModelChoice]) -> list[str]:
    head = ("model", "family", "weights", "size", "layers", "context", "fit")
    return table(head, [(m.name, *_about(m), fit_words(m)) for m in models], left=(0, 1, len(head) - 1))


def _about(model: ModelChoice) -> tuple[str, ...]:
    if not model.layers:
        return ("–",) * 5
    size = size_text(model.total_bytes)
    return model.model_type, model.quantization, size, str(model.layers), str(model.context_max)


def model_facts(model: ModelChoice) -> Facts:
    facts: Facts = msgspec.to_builtins(model)
    return facts | {"fit": fit_words(model), "preview": preview_facts(model.preview)}


def fit_words(model: ModelChoice) -> str:
    if model.loaded:
        return "loaded"
    if model.led_by:
        return clean_text(f"loaded, led by {model.led_by}")
    here = f"{layers_text(model.layers_here)} here; " if model.layers_here else ""
    return here + _fit_words(model)


def _fit_words(model: ModelChoice) -> str:
    plan, draft, problem = model.preview.plan, model.preview.draft, model.preview.problem
    if plan and model.preview.missing_on:
        return f"{len(plan.stages)} Macs; copies {size_text(model.preview.missing_bytes)} first"
    if plan and model.offer:
        return plural(len(plan.stages), "Mac")
    if plan:
        return "1 Mac, no hops" if len(plan.stages) == 1 else f"{len(plan.stages)} Macs"
    worst = max(draft.stages, key=missing_bytes) if draft else None
    if worst and missing_bytes(worst) > 0:
        return f"needs {size_text(missing_bytes(worst))} more on {worst.peer}"
    return clean_text(problem.what) if problem else "does not fit"


def add_trim(listed: argparse.ArgumentParser) -> None:
    sub = listed.add_subparsers(dest="action", metavar="trim")
    command = sub.add_parser("trim", help="delete downloaded layers that no plan needs; asks first")
    command.add_argument("model", metavar="MODEL", nargs="?", default="", help="only of this model (default: of all)")
    can_ask(command)
    prints_facts(command, trim)


async def trim(args: argparse.Namespace) -> int:
    """Free what no plan needs; with --json and without --yes, only list it."""
    async with NodeClient(home_of(args)) as client:
        found = await client.trim(TrimRequest(model=args.model))
        nbytes = sum(each.nbytes for each in found)
        lines = trim_lines(found)
        is_done = False
        if found and (args.yes or not args.json):
            print("\n".join(lines), file=sys.stderr)
            if is_done := await agreed(args, f"This frees {size_text(nbytes)} on this Mac's disk."):
                nbytes = sum(each.nbytes for each in await client.trim(TrimRequest(model=args.model, go=True)))
    done = [f"Freed {size_text(nbytes)}.{SNAPSHOTS * (sys.platform == 'darwin')}"] if is_done else []
    facts = {"freed_bytes": nbytes if is_done else 0, "found": found}
    print_facts(args, facts, done if found else ["There is nothing to delete: plans need everything here."])
    return 0 if is_done or not found or args.json else 1


def trim_lines(found: Sequence[Trimmable]) -> list[str]:
    return [clean_text(f"{each.name}: {size_text(each.nbytes)}, {_why(each)}") for each in found]


def _why(each: Trimmable) -> str:
    if not each.layers:
        return "an unfinished download" if not each.kept else "data around its layers"
    alone = f"; {layers_text(each.only_here)} would be on no other linked Mac" if each.only_here else ""
    if not each.kept:
        return f"everything here ({layers_text(each.layers)}); no plan has used it{alone}"
    return f"{layers_text(each.layers)}; its last plan needs {layers_text(each.kept)} here{alone}"
