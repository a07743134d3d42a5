"""The state of this Mac's worker, as other rooms see it; the ring's room writes it."""

from __future__ import annotations

from core.events import Plan


class WorkerState:
    """Which worker processes run, and what they serve."""

    def __init__(self) -> None:
        self.pid: int | None = None  # None while none runs
        self.spare_pid: int | None = None  # the process that stands ready to take its place
        self.has_model = False  # whether it holds a stage
        self.step = 0  # the last step of work that it has finished, 0 for none
        self.working_set_bytes = 0  # what macOS lets the GPU use, 0 if unknown
        self.memory_faults = 0  # how often that was not enough
        self.plan: Plan | None = None  # what it serves, whichever Mac leads it
        self.led: Plan | None = None  # what this Mac leads, from the start of its load until it fails or is unloaded
