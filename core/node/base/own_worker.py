"""This Mac's worker as others want to know it; the supervisor, the plan's member and its leader write it down."""

from __future__ import annotations

from core.events import Plan


class OwnWorker:
    """`pid`: its process, None while none runs. `has_model`: whether it holds a stage; `step`: the last step of work
    that it has finished, 0 for none. `spare_pid`: the process that stands ready to take its place, None for none.
    `working_set_bytes`: what macOS lets the GPU use, 0 where nothing is said; `memory_faults`: how often that was not
    enough. `plan`: what it serves, whoever leads it. `led`: what this Mac leads, from the beginning of its load until
    it fails or is unloaded.
    """

    def __init__(self) -> None:
        self.pid: int | None = None
        self.spare_pid: int | None = None
        self.has_model = False
        self.step = 0
        self.working_set_bytes = 0
        self.memory_faults = 0
        self.plan: Plan | None = None
        self.led: Plan | None = None
