"""Adds 20 ms at chosen places, and finds the phases of a step that took longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import pytest

from core.requests.trace import PHASES, Phase
from core.trace.phases import steps_of
from core.worker.telemetry import StageMeter

DELAY_S: Final = 0.02
STEPS: Final = 12
DEADLINE_S: Final = 30.0


def delayed(meter: StageMeter, work: Callable[[], object], *, aside: Phase | None = None) -> set[Phase]:
    """Phases other than `aside` that took at least the added delay in every step of `work`.

    A busy machine can slow other phases too, so `work` is repeated while more than one remains: only the added delay
    lasts.
    """
    told, until = set(PHASES) - {aside}, time.monotonic() + DEADLINE_S
    while len(told) > 1 and time.monotonic() < until:
        meter.trace(is_on=True, most=0)
        work()
        steps = [step for step in steps_of(meter.trace(is_on=False, most=1000)).values() if step.kind == "step"]
        assert len(steps) >= STEPS
        told = {phase for phase in told if min(step.seconds[phase] for step in steps) >= DELAY_S}
    return told


def slowed(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Make the function at `where` (`module.Class.method` or `module.function`) take 20 ms longer."""
    path, _, name = where.rpartition(".")
    try:
        holder: Any = import_module(path)
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        holder = getattr(import_module(module), owner)
    slow(monkeypatch, holder, name)


def slow(monkeypatch: pytest.MonkeyPatch, holder: Any, name: str) -> None:
    """Make `name` of `holder` take 20 ms longer."""
    real = getattr(holder, name)

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(DELAY_S)
        return real(*args, **kwargs)

    monkeypatch.setattr(holder, name, slowly)
