"""State of this Mac's worker for other rooms; the ring's room writes it."""

from __future__ import annotations

from core.events import Plan
from core.node.base.signals import Signal
from core.node.peers.stage_state import HeldStage


class PlanChosen(Signal, frozen=True):
    """This Mac begins to load a plan: from now on its Macs decide whether prompts may leave."""


class WorkerState:
    """Running worker processes, and their plan."""

    def __init__(self) -> None:
        self.pid: int | None = None  # None: not running
        self.spare_pid: int | None = None  # of the spare worker
        self.has_model = False  # it holds a stage
        self.step = 0  # last finished step; 0: none
        self.working_set_bytes: int | None = None  # the GPU's limit set by macOS; 0: none, None: not reported yet
        self.memory_faults = 0  # number of times that this was not enough
        self.plan: Plan | None = None  # the plan it serves, whichever Mac leads it
        self.stages: dict[str, HeldStage] = {}  # what it has to say to each head
        self.led: Plan | None = None  # led by this Mac, from the start of its load until it fails or is unloaded
        self.is_ready = self.is_loading = False  # whether that plan's ring computes, or is on its way to that
        self.last_gen = 0  # the latest generation of a plan that this Mac led
        self.begins = False  # a load of this Mac's clients is being planned
