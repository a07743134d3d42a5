"""`gpu_memory FOLDER working-set|wired|footprint`: whether reports of MLX and macOS match the memory really used."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Final

import mlx.core as mx

from core.mac.memory import default_budget, footprint_bytes, physical_bytes, usable_bytes, wired_bytes
from core.models.metal import wire_weights, working_set_bytes
from core.settings import GB, MIB
from core.verify.check import Outcome, failed, passed, skipped
from core.verify.child import report

TAKEN_BYTES: Final = 256 * MIB
NO_METAL: Final = "MLX has no Metal here"


def check(what: str) -> Outcome:
    return {"working-set": working_set, "wired": wired, "footprint": footprint}[what]()


def working_set() -> Outcome:
    """Memory that macOS lets the GPU use; it must be less than the Mac's memory."""
    found, physical = working_set_bytes(), physical_bytes()
    if not mx.metal.is_available():
        return skipped(NO_METAL)
    usable = usable_bytes(default_budget(physical), found, 0)
    figure = f"{found / GB:.1f} of {physical / GB:.1f} GB for the GPU; plans use {usable / GB:.1f} GB"
    return passed(figure) if 0 < found <= physical else failed(figure)


def wired() -> Outcome:
    """Wired memory of this Mac grows when weights are loaded."""
    if not mx.metal.is_available():
        return skipped(NO_METAL)
    weights = _taken()
    before, started = wired_bytes(), perf_counter()
    wire_weights()
    seconds = perf_counter() - started
    mx.eval(weights + 1)  # MLX requests residency with the next work
    grown = wired_bytes() - before
    mx.set_wired_limit(0)
    return passed(f"{TAKEN_BYTES / GB:.2f} GB wired in {1e3 * seconds:.0f} ms; macOS reports {grown / GB:+.2f} GB")


def footprint() -> Outcome:
    """The footprint of a process includes the memory that MLX uses on the GPU."""
    before = footprint_bytes(os.getpid())
    weights = _taken()
    grown = footprint_bytes(os.getpid()) - before
    figure = f"{weights.nbytes / GB:.2f} GB used, footprint {grown / GB:+.2f} GB"
    return passed(figure) if grown >= 0.9 * TAKEN_BYTES else failed(figure)


def _taken() -> mx.array:
    weights = mx.ones((TAKEN_BYTES // 4,), mx.float32)
    mx.eval(weights)
    mx.synchronize()
    return weights


if __name__ == "__main__":
    report(check)
