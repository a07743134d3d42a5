"""Who has what of a model, and what that means for a plan of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

from core.events import Plan, Stage
from core.models.files.hub_origin import HubOrigin
from core.models.files.layers_on_disk import Ranges, ranges
from core.node.disks.messages import HeldModel


class Holdings(NamedTuple):
    """`held`: by device id what each Mac has of one model, this Mac first. `reported`: the Macs that have said all they
    hold; of another one it is taken that it has what it needs.
    """

    held: Mapping[str, HeldModel]
    reported: Set[str]

    @property
    def whole(self) -> tuple[str, ...]:
        """Device ids of the Macs that have all of it."""
        return tuple(mac for mac, model in self.held.items() if not model.missing_bytes)

    @property
    def parted(self) -> tuple[tuple[str, Ranges], ...]:
        """Device ids of the Macs that have some of it, and which layers."""
        return tuple((mac, ranges(sorted(_layers(model)))) for mac, model in self.held.items() if model.missing_bytes)

    @property
    def sources(self) -> tuple[str, ...]:
        """Device ids of the Macs that have all or some of it, who has most first."""
        return tuple(sorted(self.held, key=lambda mac: self.held[mac].missing_bytes))

    @property
    def layers(self) -> Mapping[str, Set[int]]:
        """By device id, the layers of which each Mac has all."""
        return {mac: _layers(model) for mac, model in self.held.items()}

    def layers_of(self, device_id: str) -> Ranges | None:
        """The layers of which that Mac has all; None where it has not said what it holds."""
        model = self.held.get(device_id)
        if model is None and device_id not in self.reported:
            return None
        return ranges(sorted(_layers(model))) if model else ()

    def missing(self, plan: Plan) -> dict[str, frozenset[int]]:
        """By device id which layers of its stage each Mac of `plan` lacks, in ring order; those that lack none left
        out.
        """
        found = {s.device_id: frozenset(self._missing(s)) for s in plan.stages if s.device_id in self.reported}
        return {mac: layers for mac, layers in found.items() if layers}

    def incomplete(self, plan: Plan) -> tuple[str, ...]:
        """Device ids of the Macs of `plan` that have not all of the model: those that have their layers may still lack
        what stands before or behind all layers.
        """
        return tuple(s.device_id for s in plan.stages if s.device_id in self.reported and s.device_id not in self.whole)

    @property
    def hub(self) -> HubOrigin | None:
        """Where on the hub it can be had, if a Mac says so."""
        return next((model.hub for model in self.held.values() if model.hub), None)

    def nowhere(self, layers: Iterable[int]) -> Ranges:
        """Those of `layers` that are to be had nowhere: neither of a Mac nor of the hub."""
        if self.hub:
            return ()
        here = set[int]().union(*(_layers(model) for model in self.held.values()))
        return ranges(sorted(set(layers) - here))

    def only_on(self, device_id: str, layers: Iterable[int]) -> Ranges:
        """Those of `layers` that would be nowhere without that Mac's disk, neither on another Mac's nor on the hub."""
        others = {mac: model for mac, model in self.held.items() if mac != device_id}
        return Holdings(others, self.reported).nowhere(layers)

    def can_lose(self, plan: Plan, device_id: str) -> bool:
        """Whether each layer is on a disk without that Mac, once each Mac of `plan` has its stage."""
        if any(mac != device_id for mac in self.whole) or not self.reported >= {s.device_id for s in plan.stages}:
            return True
        if device_id in (plan.output, next(s.device_id for s in plan.stages if s.start == 0)):
            return False  # what stands before or behind all layers would be gone with it
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
