"""The state of a Mac's stage of a plan: sent to the plan's head when it changes, and again with every ping."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from core.errors import Problem
from core.events import PathKind
from core.models.files.block_map import Sha256
from core.node.base.node_message import DeviceId
from core.numbers import Size
from core.worker.messages import Loaded

StagePhase = Literal["preparing", "loading", "loaded", "linked", "broken", "lost"]


class PlanId(msgspec.Struct, frozen=True):
    """A plan among those of all Macs. A head draws its numbers at random: none is used again after a restart."""

    head: DeviceId
    number: Size


class HeldStage(msgspec.Struct, frozen=True, kw_only=True):
    """A Mac's stage. Its phases: the order arrived, the worker reads the layers, it holds them, its links of generation
    `link_gen` are made, one of these is broken; "lost": nothing comes of the stage.
    """

    plan: PlanId
    link_gen: Size = 0  # of the last order to link; 0: there was none
    phase: StagePhase = "preparing"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0  # at which its worker listens for data; 0: not yet
    done_bytes: Size = 0
    total_bytes: Size = 0
    loaded: Loaded | None = None
    files: Sha256 | None = None  # over the hashes of all files that the worker loads from; None: not computed yet
    path: PathKind = ""  # of the link to the next stage
    problem: Problem | None = None  # why a link broke, or the stage is lost


def files_hash(files: Mapping[str, str]) -> Sha256:
    """One hash over the hashes of a model's files by name."""
    return hashlib.sha256(msgspec.json.encode(files, order="sorted")).hexdigest()
