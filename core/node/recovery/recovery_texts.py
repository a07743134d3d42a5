"""The sentences of a recovery, as the person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from core.errors import Problem
from core.events import Plan

RESUME: Final = "A link between the Macs broke and is made again; every Mac keeps what it holds."
CAN_WAIT: Final = "Wait for it, or save or stop what is written; a smaller model can be loaded at any time."


def suspect(name: str) -> str:
    """A Mac is silent."""
    return f"{name} is slow: nothing came from it for a second."


def stuck(name: str) -> str:
    """Every Mac lives, and nothing moves; `name` is that of the one that does not finish its work, if that is known."""
    if name:
        return f"{name} answers, but has not finished its step for a while."
    return "This step takes longer than those before it; every Mac answers."


def hold(problem: Problem) -> str:
    """A Mac is lost, just now."""
    return f"{problem.what} Your conversation is safe."


def rebuild(problem: Problem, tokens: int, macs: int, copied: str, *, is_mirrored: bool) -> str:
    """Another split is being loaded, once what is `copied` has come to disks, and the answers are read again."""
    again = f"Reading {tokens:,} tokens again" if tokens else "Loading again"
    if tokens and is_mirrored:
        again = f"Reading again what is not mirrored of {tokens:,} tokens"
    first = f" Copying first: {copied}." if copied else ""
    return f"{hold(problem)}{first} {again} on {_macs(macs)}."


def wait(problem: Problem, unfit: Problem | None, gone: Sequence[str]) -> str:
    """Everything is kept until a Mac is back, or memory is free."""
    awaited = f"Waiting for {' and '.join(gone)}." if gone else "Waiting until it fits."
    return " ".join([hold(problem), *([unfit.what] if unfit else []), awaited])


def parked(problem: Problem) -> str:
    """The answers ended for want of a Mac."""
    return f"{problem.what} What is written is kept, and can be continued."


def recovered(before: Plan, now: Plan, mac: str, problem: Problem, seconds: float) -> str:
    """One line, once all is well again."""
    took = f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    names = [stage.peer for stage in now.owners]
    if left := [stage.peer for stage in before.owners if stage.peer not in names]:
        return f"recovered: {' and '.join(left)} left, now {' + '.join(names)}, {took}"
    if problem.kind == "WorkerDied":
        return f"recovered: the worker of {mac} was started again, {took}"
    if problem.kind == "LinkLost":
        return f"recovered: {mac} is linked again, {took}"
    return f"recovered: all workers were started again, {took}"


def _macs(count: int) -> str:
    return "1 Mac" if count == 1 else f"{count} Macs"
