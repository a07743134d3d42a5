"""Parts of a model on each Mac, and their consequences for a plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from core.events import Plan, Stage
from core.models.files.hub_origin import HubOrigin
from core.models.files.parts import Ranges, ranges
from core.node.disks.messages import HeldModel


class Holdings(NamedTuple):
    """Parts of one model by Mac."""

    held: Mapping[str, HeldModel]  # by device id, this Mac first
    reported: Set[str]  # Macs that sent their full list; any other Mac counts as having its stage

    @property
    def whole(self) -> tuple[str, ...]:
        """Device ids of Macs with the whole model."""
        return tuple(mac for mac, model in self.held.items() if not model.missing_bytes)

    @property
    def parted(self) -> tuple[tuple[str, Ranges], ...]:
        """Device ids of Macs with a part, and its layers."""
        return tuple((mac, ranges(sorted(_layers(model)))) for mac, model in self.held.items() if model.missing_bytes)

    @property
    def sources(self) -> tuple[str, ...]:
        """Device ids of Macs with all or part of it, most first."""
        return tuple(sorted(self.held, key=lambda mac: self.held[mac].missing_bytes))

    @property
    def layers(self) -> Mapping[str, Set[int]]:
        """Complete layers by device id."""
        return {mac: _layers(model) for mac, model in self.held.items()}

    def layers_of(self, device_id: str) -> Ranges | None:
        """Complete layers on that Mac; None if it has not reported."""
        model = self.held.get(device_id)
        if model is None and device_id not in self.reported:
            return None
        return ranges(sorted(_layers(model))) if model else ()

    def missing(self, plan: Plan) -> dict[str, frozenset[int]]:
        """Missing layers by device id, for each Mac of `plan` that lacks some of its stage, in ring order."""
        found = {s.device_id: frozenset(self._missing(s)) for s in plan.stages if s.device_id in self.reported}
        return {mac: layers for mac, layers in found.items() if layers}

    def incomplete(self, plan: Plan) -> tuple[str, ...]:
        """Macs of `plan` without the whole model; with all layers of their stage, they may lack embedding or head."""
        return tuple(s.device_id for s in plan.stages if s.device_id in self.reported and s.device_id not in self.whole)

    @property
    def hub(self) -> HubOrigin | None:
        return next((model.hub for model in self.held.values() if model.hub), None)

    def nowhere(self, layers: Iterable[int]) -> Ranges:
        """Layers of `layers` that neither a Mac nor the hub has."""
        if self.hub:
            return ()
        here = set[int]().union(*(_layers(model) for model in self.held.values()))
        return ranges(sorted(set(layers) - here))

    def only_on(self, device_id: str, layers: Iterable[int]) -> Ranges:
        """Layers of `layers` that only that Mac's disk has."""
        others = {mac: model for mac, model in self.held.items() if mac != device_id}
        return Holdings(others, self.reported).nowhere(layers)

    def can_lose(self, plan: Plan, device_id: str) -> bool:
        """Whether all layers remain on disks without that Mac, once each Mac of `plan` has its stage."""
        if any(mac != device_id for mac in self.whole) or not self.reported >= {s.device_id for s in plan.stages}:
            return True
        if device_id in (plan.output, next(s.device_id for s in plan.stages if s.start == 0)):
            return False  # embedding and head would be gone with it
        there = set[int]().union(*(_layers(model) for mac, model in self.held.items() if mac != device_id))
        there |= {layer for s in plan.stages if s.device_id != device_id for layer in range(s.start, s.stop)}
        return there >= set(range(plan.layers))

    def _missing(self, stage: Stage) -> set[int]:
        model = self.held.get(stage.device_id)
        if model and not model.missing_bytes:
            return set()
        return set(range(stage.start, stage.stop)) - (_layers(model) if model else set())


def _layers(model: HeldModel) -> set[int]:
    if not model.missing_bytes:
        return set(range(model.layers))
    return {layer for start, stop in model.layers_here for layer in range(start, min(stop, model.layers))}
