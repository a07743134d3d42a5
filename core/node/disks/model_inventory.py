"""Inventory of the models on every Mac's disk: linked nodes exchange their lists."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from core.errors import ModelNotFound
from core.events import ModelsChanged, Plan
from core.models.files.catalog import BrokenModel, ModelEntry, short_name
from core.models.files.layers_on_disk import layers_text
from core.node.base.bus import Bus
from core.node.base.node_message import MAX_MODEL_NAME
from core.node.base.tasks import next_look
from core.node.disks.holdings import Holdings
from core.node.disks.local_models import LocalModels
from core.node.disks.mac_messages import OnePerMac
from core.node.disks.messages import MAX_BROKEN, MAX_HELD, MAX_RANGES, HeldModel, Holds, HoldsRequest
from core.node.peers.mesh import Mesh

LOOK_S = 5.0
ASK_S = 30.0  # new files are examined first, possibly on a busy Mac


class _AskedAgain(NamedTuple):
    """A numbered request for a list; lists without that number may be older than the request."""

    number: int
    arrived: asyncio.Event


class ModelInventory:
    """Sends this Mac's list of models to the others and stores theirs. Publishes ModelsChanged."""

    def __init__(self, device_id: str, models: LocalModels, links: Mesh, bus: Bus) -> None:
        self.own_id = device_id
        self.models, self._links, self._bus = models, links, bus
        self._own: Holds | None = None
        self._others: dict[str, Holds] = {}
        self._asked_again: dict[str, _AskedAgain] = {}
        self._numbers = count(1)
        self._sent_to: dict[str, object] = {}
        self._requests = OnePerMac(self.look)

    async def watch(self) -> None:
        while True:
            await self.look()
            await next_look(LOOK_S)

    async def look(self, asker: str = "", number: int = 0) -> None:
        """Scan the disk now and send changes; the Mac `asker`, with request `number`, always gets the list."""
        now = holds_of(await self.models.survey())
        if now != self._own:
            self._own = now
            self._sent_to.clear()
            self._bus.publish(ModelsChanged())
        for device_id in list(self._links.contacts):
            await self.announce(device_id, number if device_id == asker else 0)

    async def announce(self, device_id: str, number: int = 0) -> None:
        """Send the list to a Mac if it is new to it or requested by `number`; forget a Mac that isn't linked."""
        link = self._links.contacts.get(device_id)
        if link is None:
            self._sent_to.pop(device_id, None)
            if self._others.pop(device_id, None):
                self._bus.publish(ModelsChanged())
        elif self._own is not None and (number or self._sent_to.get(device_id) is not link):
            self._sent_to[device_id] = link
            await self._links.send(device_id, msgspec.structs.replace(self._own, answers=number))

    async def handle_message(self, device_id: str, message: Holds | HoldsRequest) -> None:
        """Store another Mac's list, or respond to its request for ours."""
        if isinstance(message, HoldsRequest):
            await self._requests.take(device_id, message.number)
        elif device_id in self._links.contacts:
            reported = msgspec.structs.replace(message, answers=0)
            if self._others.get(device_id) != reported:
                self._others[device_id] = reported
                self._bus.publish(ModelsChanged())
            if (asked := self._asked_again.get(device_id)) and message.answers >= asked.number:
                asked.arrived.set()

    @property
    def own(self) -> tuple[HeldModel, ...]:
        return self._own.models if self._own else ()

    def names(self) -> list[str]:
        return [model.name for model in self.own]

    def holdings(self, fingerprint: str) -> Holdings:
        """Each Mac's parts of a model. This Mac counts only if the model is in one of its listed folders."""
        macs = {self.own_id: self.own} | {mac: known.models for mac, known in self._others.items()}
        held: dict[str, HeldModel] = {}
        for mac, models in macs.items():
            if found := [one for one in models if one.fingerprint == fingerprint]:
                held[mac] = min(found, key=lambda one: one.missing_bytes)
        reported = {mac for mac, known in self._others.items() if len(known.models) < MAX_HELD}
        return Holdings(held, reported | ({self.own_id} & held.keys()))

    def others_with(self, fingerprint: str) -> list[str]:
        """Other Macs with all or part of a model, most first."""
        return [mac for mac in self.holdings(fingerprint).sources if mac != self.own_id]

    def elsewhere(self, here: Collection[str]) -> list[HeldModel]:
        """Models of the other Macs, partial ones too, whose fingerprints are not in `here`."""
        held = [each for known in self._others.values() for each in known.models]
        found = {each.fingerprint: each for each in held}
        return [each for fingerprint, each in found.items() if fingerprint not in here]

    def find(self, fingerprint: str) -> HeldModel | None:
        held = [*self.own, *(each for known in self._others.values() for each in known.models)]
        return next((each for each in held if each.fingerprint == fingerprint), None)

    async def renew(self, plan: Plan) -> None:
        """Scan this disk again, and have Macs of `plan` with missing layers scan theirs."""
        await self.look()
        await asyncio.gather(*(self._ask(mac) for mac in self._incomplete(plan) if mac in self._others))

    def lacking(self, plan: Plan) -> tuple[str, ...]:
        """Device ids of the Macs of `plan` that need a copy before it can run. Skips a Mac with different or broken
        files of that name, which reports the problem itself. Raises ModelNotFound if no linked Mac has a needed layer.
        """
        holdings = self.holdings(plan.fingerprint)
        if nowhere := holdings.nowhere(layer for layers in holdings.missing(plan).values() for layer in layers):
            raise ModelNotFound(
                f"No linked Mac has {layers_text(nowhere)} of {plan.model}.",
                "Bring back the Mac that has them, or download the model again: `macluster download`.",
            )
        return self._incomplete(plan)

    def _incomplete(self, plan: Plan) -> tuple[str, ...]:
        name, holdings = short_name(plan.model), self.holdings(plan.fingerprint)
        return tuple(
            mac
            for mac in holdings.incomplete(plan)
            if mac in holdings.held or mac not in self._others or name not in _short_names(self._others[mac])
        )

    async def _ask(self, device_id: str) -> None:
        asked = self._asked_again[device_id] = _AskedAgain(next(self._numbers), asyncio.Event())
        try:
            if await self._links.send(device_id, HoldsRequest(number=asked.number)):
                async with asyncio.timeout(ASK_S):
                    await asked.arrived.wait()
        except TimeoutError:
            return  # keeps its last list
        finally:
            self._asked_again.pop(device_id, None)


def _short_names(known: Holds) -> set[str]:
    return {short_name(name) for name in (*(each.name for each in known.models), *known.broken)}


def holds_of(found: Sequence[ModelEntry | BrokenModel]) -> Holds:
    """The models on a disk, in the form sent to other Macs."""
    usable = [held_model(entry) for entry in found if isinstance(entry, ModelEntry)]
    broken = [one.name[:MAX_MODEL_NAME] for one in found if isinstance(one, BrokenModel)]
    return Holds(models=tuple(usable[:MAX_HELD]), broken=tuple(broken[:MAX_BROKEN]))


def held_model(entry: ModelEntry) -> HeldModel:
    bounded = msgspec.structs.replace(
        entry,
        name=entry.name[:MAX_MODEL_NAME],
        model_type=entry.model_type[:64],
        quantization=entry.quantization[:32],
        layers_here=entry.layers_here[:MAX_RANGES] if entry.missing_bytes else (),
    )
    return HeldModel(**{field: getattr(bounded, field) for field in HeldModel.__struct_fields__})
