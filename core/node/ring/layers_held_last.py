"""The layers that this Mac held last of each model, to know what else can be deleted."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from core.errors import TrustError
from core.events import Plan, Value
from core.models.files.block_map import Sha256
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.ring.plan_member import StageTaken
from core.numbers import Size
from core.plan.topology import has_ranks
from core.trust.private_files import read_private, write_private

MOST_MODELS: Final = 200


class HeldLayers(Value, frozen=True, kw_only=True):
    """A stage's share of a model."""

    start: Size  # layers [start, stop)
    stop: Size
    embed: bool  # with the embedding
    output: bool  # with the output head
    is_whole: bool  # a part of every layer (tensor parallel)

    @property
    def words(self) -> str:
        """The form that `core.models.slicing.slice_bytes` reads."""
        return f"{self.start}:{self.stop}:{'e' * self.embed}{'o' * self.output}"


class LayersHeldLast:
    """The last stage of each model by fingerprint, remembered in a file."""

    def __init__(self, file: Path, signals: Signals, tasks: Tasks) -> None:
        self._file, self._tasks = file, tasks
        self._known = read_stages(file)
        signals.on(StageTaken, self._note)

    def of(self, fingerprint: str) -> HeldLayers | None:
        return self._known.get(fingerprint)

    def _note(self, taken: StageTaken) -> None:
        found = stage_in(taken.plan, taken.index)
        if self._known.get(taken.plan.fingerprint) == found:
            return
        self._known.pop(taken.plan.fingerprint, None)
        self._known = dict([*self._known.items(), (taken.plan.fingerprint, found)][-MOST_MODELS:])
        self._tasks.spawn("Remembering a stage", asyncio.to_thread(write_stages, self._file, self._known))


def stage_in(plan: Plan, index: int) -> HeldLayers:
    stage = plan.stages[index]
    return HeldLayers(
        start=stage.start,
        stop=stage.stop,
        embed=stage.start == 0,
        output=stage.device_id == plan.output,
        is_whole=has_ranks(plan),
    )


def read_stages(file: Path) -> dict[Sha256, HeldLayers]:
    """Read the file; one that is damaged, or not private to this user, counts as empty."""
    try:
        return msgspec.json.decode(read_private(file, TrustError), type=dict[Sha256, HeldLayers])
    except (TrustError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def write_stages(file: Path, known: dict[Sha256, HeldLayers]) -> None:
    with suppress(TrustError):  # on a full disk the next loaded plan repeats it
        write_private(file, msgspec.json.encode(known), TrustError)
