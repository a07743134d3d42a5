"""20 ms more wherever a test wants them, and the phases of a step in which they are seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import pytest

from core.bench.phases import steps_of
from core.requests.trace import PHASES, Phase
from core.worker.telemetry import StageMeter

DELAY_S: Final = 0.02
STEPS: Final = 12


def least(meter: StageMeter, work: Callable[[], object]) -> dict[Phase, float]:
    """The least that each phase took in all steps of `work`, which are that many at least: what a busy machine adds now
    and then is not in it.
    """
    meter.phases.switch(on=True)
    work()
    steps = [step for step in steps_of(meter.phases.take(1000)).values() if step.kind == "step"]
    assert len(steps) >= STEPS
    return {phase: min(step.seconds[phase] for step in steps) for phase in PHASES}


def delayed(told: dict[Phase, float]) -> set[Phase]:
    """Which phases took as long as what was added, in each step."""
    return {phase for phase in PHASES if told[phase] >= DELAY_S}


def slowed(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """What stands there, as `module.Class.method` or `module.function`, takes 20 ms more from now on."""
    path, _, name = where.rpartition(".")
    try:
        holder: Any = import_module(path)
    except ModuleNotFoundError:
        module, _, owner = path.rpartition(".")
        holder = getattr(import_module(module), owner)
    slow(monkeypatch, holder, name)


def slow(monkeypatch: pytest.MonkeyPatch, holder: Any, name: str) -> None:
    """`name` of `holder` takes 20 ms more from now on."""
    real = getattr(holder, name)

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(DELAY_S)
        return real(*args, **kwargs)

    monkeypatch.setattr(holder, name, slowly)
