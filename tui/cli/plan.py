"""`macluster plan`: shows which Mac would hold which layers; prints plans."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from core.errors import UsageError
from core.events import Plan, PlanLoaded
from core.models.files.layers_on_disk import size_text
from core.plan.make_plan import missing_bytes, shortage
from core.plan.notes import before_which, sees
from core.plan.plan_inputs import PlanOptions
from core.plan.strategy import check_asked
from core.requests.plans import Forecast, PlanPreview, PreviewRequest
from core.text import clean_text
from core.trust.name_matching import pick
from tui.cli.launch import home_of
from tui.cli.output import Facts, fields_of, print_facts, table
from tui.cli.watch import Watch, watching
from tui.cli.what_if import budgets_of, imagined_plan
from tui.client import check
from tui.state.format import duration
from tui.state.plan_words import all_reduce_share, faster, is_of_ranks, part_of, survival


async def plan(args: argparse.Namespace) -> int:
    """Plan a model over the paired Macs, or over imaginary ones (`--macs`)."""
    request = PreviewRequest(model=path_of(args.model), parts=args.parts, **plan_options(args))
    check(request)
    if args.macs and args.without:
        raise UsageError("--macs and --without cannot be combined.", "Leave those Macs out of --macs.")
    if args.macs and args.prefill != "off":
        raise UsageError("--macs and --prefill cannot be combined.", "Leave --macs out to plan over your own Macs.")
    if args.macs and args.draft:
        fix = "Subtract the draft model's memory from the first of --macs."
        raise UsageError("--macs and --draft cannot be combined.", fix)
    if args.macs:
        macs = budgets_of(args.macs, "--macs")
        preview = await imagined_plan(home_of(args), request, macs)
    else:
        async with watching(home_of(args)) as watch:
            without = macs_without(watch, args)
            request = msgspec.structs.replace(request, without=without, prefill=reader_of(watch, args))
            preview = await watch.client.plan(request)
    print_facts(args, preview_facts(preview), preview_lines(preview))
    return 0 if preview.plan else 1


def plan_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options as fields of a PlanRequest; raises UsageError for options that exclude each other."""
    options = cast(PlanOptions, {name: getattr(args, name) for name in PlanOptions.__annotations__})
    check_asked(options)
    draft = path_of(args.draft) if args.draft else None
    return {**options, "mirror": args.mirror, "draft": draft}


def macs_without(watch: Watch, args: argparse.Namespace) -> tuple[str, ...]:
    """Device ids of the Macs that hold no layers; raises UsageError for an unknown name."""
    known = [(peer.device_id, peer.name) for peer in watch.now.peers]
    return tuple(pick(typed, known) for typed in args.without)


def reader_of(watch: Watch, args: argparse.Namespace) -> str:
    """The device id of the prefill Mac, "auto" or "off"; raises UsageError for an unknown name."""
    asked: str = args.prefill
    return asked if asked in ("auto", "off") else pick(asked, [(peer.device_id, peer.name) for peer in watch.now.peers])


def path_of(model: str) -> str:
    """Make a directory absolute, since the node runs elsewhere; names of the catalog may hold a slash."""
    name = os.path.expanduser(model)
    return os.path.abspath(name) if name.startswith(("/", "./", "../")) or os.path.isdir(name) else name


def plan_lines(plan: Plan, hop_bytes: Sequence[int] = ()) -> list[str]:
    """A table of stages with layers, memory and bytes per hop (if known), then notes and which Macs may drop out."""
    rows = [
        (
            s.peer + (" (head)" if s is plan.head else ""),
            part_of(plan, s),
            f"1/{len(plan.stages)}" if is_of_ranks(plan) else str(s.stop - s.start),
            size_text(s.weight_bytes),
            size_text(s.kv_bytes),
            size_text(s.step_bytes),
            size_text(s.tokenizer_bytes) if s is plan.head else "–",
            size_text(s.budget_bytes),
            size_text(-missing_bytes(s)) if missing_bytes(s) <= 0 else f"{size_text(missing_bytes(s))} short",
            *([f"{hop_bytes[plan.stages.index(s)]} B"] if hop_bytes else []),
        )
        for s in plan.owners
    ]
    part = ("part", "of all") if is_of_ranks(plan) else ("layers", "count")
    known = ("Mac", *part, "weights", "cache", "step", "tokenizer", "budget", "free")
    head = (*known, *(["sends/token"] if hop_bytes else []))
    title = f"Plan: {plan.model}, {plan.layers} layers, topology {plan.topology}, context {plan.context} tokens"
    can_lose = "" if shortage(plan) else survival(plan)
    return [title, *table(head, rows), *plan.notes, *([can_lose] if can_lose else [])]


def proof_lines(loaded: PlanLoaded) -> list[str]:
    return [clean_text(loaded.proof)] if loaded.proof else []


def preview_lines(preview: PlanPreview) -> list[str]:
    split = preview.plan or preview.draft
    lines = plan_lines(split, preview.hop_bytes) if split else []
    owners = [*split.owners, *split.parts[len(split.stages) :]] if split else []
    lines += [f"{s.peer} would see {sees(split, s.device_id)}." for s in owners]
    if split and preview.cuts is not None:
        if len(preview.cuts) < split.layers - 1:
            only = f"It can only be cut {before_which(preview.cuts)}."
            lines.append(only if preview.cuts else "It cannot be split.")
        if split.batched:
            lines.append("Rows of several requests share a batch.")
    lines += forecast_lines(preview.forecast) if preview.forecast else []
    for stage, share in zip(split.stages if split else (), preview.parts, strict=False):
        lines.append(f"{stage.peer} reads {size_text(sum(end - begin for _, begin, end in share))}:")
        lines += [clean_text(f"  {file}  bytes {begin}–{end - 1}") for file, begin, end in share]
    if preview.problem:
        lines.append(clean_text(f"{preview.problem.what} {preview.problem.fix}".rstrip()))
    return lines


def forecast_lines(forecast: Forecast) -> list[str]:
    """The predicted speed for one request, and its basis."""
    basis = "measured here" if forecast.measured else "estimated"
    speed = f"Expected: {forecast.tokens_per_s:.1f} tokens/s for one request ({basis})"
    first = ""
    if forecast.prompt_s is not None:
        first = f" first token after {duration(forecast.prompt_s)} per 1000 prompt tokens,"
    lines = [f"{speed},{first} loaded in {duration(forecast.load_s)}."]
    if words := all_reduce_share(forecast):
        lines.append(f"Exchanging sums takes {words}.")
    return [*lines, *(clean_text(each) for each in (faster(forecast), forecast.advice) if each)]


def plan_facts(plan: Plan) -> Facts:
    """A plan as JSON facts, with names instead of ids; `free_bytes` is negative if a Mac has too little memory."""
    peers = {s.device_id: s.peer for s in plan.stages}
    return {
        **fields_of(plan, "model", "fingerprint", "topology"),
        "parallelism": msgspec.to_builtins(plan.parallelism),
        "wire": plan.wire,
        "draft": plan.draft or None,
        "draft_bytes": plan.draft_bytes,
        **fields_of(plan, "layers", "context"),
        "stages": [
            {
                **fields_of(s, "peer", "device_id", "start", "stop"),
                "bytes": s.weight_bytes,
                **fields_of(s, "kv_bytes", "step_bytes", "tokenizer_bytes", "budget_bytes"),
                "free_bytes": -missing_bytes(s),
                "sees": sees(plan, s.device_id),
            }
            for s in plan.stages
        ],
        "prefill": _prefill_facts(plan),
        "output": peers[plan.output],
        **fields_of(plan, "batched", "notes"),
        "indispensable": [peers[device_id] for device_id in plan.indispensable if device_id in peers],
    }


def _prefill_facts(plan: Plan) -> Facts | None:
    if plan.prefill is None:
        return None
    stage = plan.prefill.stage
    return {
        **fields_of(stage, "peer", "device_id"),
        "bytes": stage.needed_bytes,
        "free_bytes": -missing_bytes(stage),
        "least_tokens": plan.prefill.least,
        "share": plan.prefill.share,
        "sees": sees(plan, stage.device_id),
    }


def preview_facts(preview: PlanPreview) -> Facts:
    """A preview as JSON facts; `draft` is a split that does not fit, `cuts` is None if the model was not examined."""
    split = preview.plan or preview.draft
    names = [s.peer for s in split.stages] if split else []
    return {
        "plan": plan_facts(preview.plan) if preview.plan else None,
        "draft": plan_facts(preview.draft) if preview.draft else None,
        **fields_of(preview, "problem", "cuts"),
        "hops": [
            {"from": names[i], "to": names[(i + 1) % len(names)], "bytes_per_token": size}
            for i, size in enumerate(preview.hop_bytes)
        ],
        "parts": [
            {"peer": name, "files": [{"file": f, "begin": a, "end": b} for f, a, b in share]}
            for name, share in zip(names, preview.parts, strict=False)
        ],
        **fields_of(preview, "total_bytes", "kv_bytes"),
        "forecast": forecast_facts(preview.forecast) if preview.forecast else None,
    }


def forecast_facts(forecast: Forecast) -> Facts:
    """A forecast as JSON facts; times in seconds, `stages_s` and `hops_s` in ring order."""
    facts: Facts = msgspec.to_builtins(forecast)
    return facts | {"token_s": forecast.token_s, "tokens_per_s": forecast.tokens_per_s}
