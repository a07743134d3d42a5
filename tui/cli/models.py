"""`macluster models`: what is on the disks of the Macs, and how it fits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import msgspec

from core.models.files.layers_here import layers_text
from core.plan.fit import missing_bytes
from core.requests import ModelChoice
from core.text import clean_text
from tui.cli.launch import home_of
from tui.cli.output import Facts, gigabytes, print_facts, table
from tui.cli.plan import preview_facts
from tui.client import NodeClient


async def models(args: argparse.Namespace) -> int:
    """Models on this Mac and how they fit."""
    async with NodeClient(home_of(args)) as client:
        found = await client.models()
    lines = model_lines(found) if found else ["No model is on this Mac yet."]
    print_facts(args, [model_facts(m) for m in found], lines)
    return 0


def model_lines(models: Sequence[ModelChoice]) -> list[str]:
    """What `macluster models` prints."""
    head = ("model", "family", "weights", "size", "layers", "context", "fit")
    return table(head, [(m.name, *_about(m), fit_words(m)) for m in models], left=(0, 1, len(head) - 1))


def _about(model: ModelChoice) -> tuple[str, ...]:
    if not model.layers:
        return ("–",) * 5
    size = gigabytes(model.total_bytes)
    return model.model_type, model.quantization, size, str(model.layers), str(model.context_max)


def model_facts(model: ModelChoice) -> Facts:
    """A model as `macluster models --json` prints it."""
    facts: Facts = msgspec.to_builtins(model)
    return facts | {"fit": fit_words(model), "preview": preview_facts(model.preview)}


def fit_words(model: ModelChoice) -> str:
    """How a model fits, in a few words."""
    if model.loaded:
        return "loaded"
    here = f"{layers_text(model.layers_here)} here; " if model.layers_here else ""
    return here + _fit_words(model)


def _fit_words(model: ModelChoice) -> str:
    plan, draft, problem = model.preview.plan, model.preview.draft, model.preview.problem
    if plan and model.preview.missing_on:
        return f"{len(plan.stages)} Macs; copies {gigabytes(model.preview.missing_bytes)} first"
    if plan:
        return "1 Mac, no hops" if len(plan.stages) == 1 else f"{len(plan.stages)} Macs"
    if draft:
        worst = max(draft.stages, key=missing_bytes)
        return f"needs {gigabytes(missing_bytes(worst))} more on {worst.peer}"
    return clean_text(problem.what) if problem else "does not fit"
