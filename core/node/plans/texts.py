"""The sentences about a plan that the user reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.errors import Problem
from core.events import Plan
from core.worker.messages import Proved

RESUME: Final = "A link between the Macs broke. Reconnecting; nothing is lost."
CAN_WAIT: Final = "Wait for it, or stop and keep what is written. You can load a smaller model at any time."


def proof(proved: Proved) -> str:
    if proved.difference is None:
        return f"Proved with {proved.tokens} tokens in {proved.seconds:.1f} s, but not against mlx_lm: {proved.why}."
    largest = f"largest difference {proved.difference:.2g}"
    return f"Proved against mlx_lm with {proved.tokens} tokens: the same logits as on one Mac ({largest})."


def suspect(name: str) -> str:
    return f"{name} is slow: no sign of life for a second."


def stuck(name: str) -> str:
    """Every Mac responds, but nothing moves; `name` is the Mac with the unfinished step, if known."""
    if name:
        return f"{name} responds, but its step is taking too long."
    return "This step is slower than usual. All Macs are responding."


def hold(problem: Problem) -> str:
    return f"{problem.what} Your conversation is safe."


def rebuild(problem: Problem, tokens: int, plan: Plan, copied: str, *, is_mirrored: bool) -> str:
    again = f"Reading {tokens:,} tokens again" if tokens else "Loading again"
    if tokens and is_mirrored:
        again = f"Reading {tokens:,} tokens again, except those mirrored,"
    first = f" Copying first: {copied}." if copied else ""
    return f"{hold(problem)}{first} {again} on {macs(plan)}."


def wait(problem: Problem, unfit: Problem | None, gone: Sequence[str]) -> str:
    awaited = f"Waiting for {' and '.join(gone)}." if gone else "Waiting until it fits."
    return " ".join([hold(problem), *([unfit.what] if unfit else []), awaited])


def parked(problem: Problem) -> str:
    return f"{problem.what} What is written is kept; you can continue it."


def recovered(before: Plan, now: Plan, mac: str, problem: Problem, seconds: float) -> str:
    took = f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    names = [stage.peer for stage in now.owners]
    if left := [stage.peer for stage in before.owners if stage.peer not in names]:
        return f"{' and '.join(left)} dropped out; continued on {' + '.join(names)} after {took}"
    if problem.kind == "WorkerDied":
        return f"The worker of {mac} was restarted; continued after {took}"
    if problem.kind == "LinkLost":
        return f"{mac} is connected again; continued after {took}"
    return f"All workers were restarted; continued after {took}"


def macs(plan: Plan) -> str:
    return "1 Mac" if len(plan.stages) == 1 else f"{len(plan.stages)} Macs"
