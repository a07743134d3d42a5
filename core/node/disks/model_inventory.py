"""Which models lie on which disk: nodes that are linked tell each other what they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import msgspec

from core.errors import ModelNotFound
from core.events import ModelsChanged, Plan
from core.models.files.catalog import BrokenModel, ModelEntry, short_name
from core.models.files.layers_on_disk import layers_text
from core.node.base.bus import Bus
from core.node.base.node_message import MAX_MODEL_NAME, NodeMessage
from core.node.disks.holdings import Holdings
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import MAX_BROKEN, MAX_HELD, MAX_RANGES, HeldModel, Holds, HoldsAsk

LOOK_S = 5.0
ASK_S = 30.0  # new files are examined first, on a Mac that may be busy


class ModelLinks(Protocol):
    """The control links that stand, by device id, and how to send over one."""

    @property
    def contacts(self) -> Mapping[str, object]:
        """A link each; another object is another link."""

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        """Whether it went out."""


class _News(NamedTuple):
    """What another Mac is asked by a number: what it tells without it may be older than the question."""

    number: int
    come: asyncio.Event


class ModelInventory:
    """Tells the others what this Mac holds and keeps what they told. Publishes ModelsChanged."""

    def __init__(self, device_id: str, models: LocalModels, links: ModelLinks, bus: Bus) -> None:
        self.own_id = self._device_id = device_id
        self._models, self._links, self._bus = models, links, bus
        self._own: Holds | None = None
        self._others: dict[str, Holds] = {}
        self._news: dict[str, _News] = {}
        self._numbers = count(1)
        self._published_to: dict[str, object] = {}
        self._asked: dict[str, int] = {}
        self._answering: set[str] = set()

    async def watch(self) -> None:
        """Look at the disk again and again, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self, asker: str = "", number: int = 0) -> None:
        """Look at the disk now, and tell what is new; who has asked by a number is told in any case."""
        now = holds_of(await self._models.survey())
        if now != self._own:
            self._own = now
            self._published_to.clear()
            self._bus.publish(ModelsChanged())
        for device_id in list(self._links.contacts):
            await self.announce(device_id, number if device_id == asker else 0)

    async def announce(self, device_id: str, number: int = 0) -> None:
        """Tell a Mac, unless it knows and has not asked by that number; forget one that is not linked any more."""
        link = self._links.contacts.get(device_id)
        if link is None:
            self._published_to.pop(device_id, None)
            if self._others.pop(device_id, None):
                self._bus.publish(ModelsChanged())
        elif self._own is not None and (number or self._published_to.get(device_id) is not link):
            self._published_to[device_id] = link
            await self._links.send(device_id, msgspec.structs.replace(self._own, answers=number))

    async def handle_message(self, device_id: str, message: Holds | HoldsAsk) -> None:
        """Another Mac tells what it holds, or wants to be told anew."""
        if isinstance(message, HoldsAsk):
            await self._answer(device_id, message.number)
        elif device_id in self._links.contacts:
            reported = msgspec.structs.replace(message, answers=0)
            if self._others.get(device_id) != reported:
                self._others[device_id] = reported
                self._bus.publish(ModelsChanged())
            if (news := self._news.get(device_id)) and message.answers >= news.number:
                news.come.set()

    async def _answer(self, device_id: str, number: int) -> None:
        """Look anew and tell; whoever asks meanwhile, however often, is told once more."""
        self._asked[device_id] = number
        if device_id in self._answering:
            return
        self._answering.add(device_id)
        try:
            while device_id in self._asked:
                await self.look(device_id, self._asked.pop(device_id))
        finally:
            self._answering.discard(device_id)

    @property
    def own(self) -> tuple[HeldModel, ...]:
        """What this Mac holds."""
        return self._own.models if self._own else ()

    def names(self) -> list[str]:
        """Full names of the models that this Mac holds."""
        return [model.name for model in self.own]

    def holdings(self, fingerprint: str) -> Holdings:
        """Who has what of a model. Of one that lies outside the folders that this Mac lists, nothing is said of it."""
        macs = {self._device_id: self.own} | {mac: known.models for mac, known in self._others.items()}
        held: dict[str, HeldModel] = {}
        for mac, models in macs.items():
            if found := [one for one in models if one.fingerprint == fingerprint]:
                held[mac] = min(found, key=lambda one: one.missing_bytes)
        reported = {mac for mac, known in self._others.items() if len(known.models) < MAX_HELD}
        return Holdings(held, reported | ({self._device_id} & held.keys()))

    def elsewhere(self, here: Collection[str]) -> list[HeldModel]:
        """The models of the other Macs whose fingerprints are not among those `here`, also those in parts."""
        held = [each for known in self._others.values() for each in known.models]
        found = {each.fingerprint: each for each in held}
        return [each for fingerprint, each in found.items() if fingerprint not in here]

    def find(self, fingerprint: str) -> HeldModel | None:
        """A model of any disk."""
        held = [*self.own, *(each for known in self._others.values() for each in known.models)]
        return next((each for each in held if each.fingerprint == fingerprint), None)

    async def renew(self, plan: Plan) -> None:
        """Look anew here, and have those Macs of `plan` look that lack something."""
        await self.look()
        await asyncio.gather(*(self._ask(mac) for mac in self._incomplete(plan) if mac in self._others))

    def lacking(self, plan: Plan) -> tuple[str, ...]:
        """Device ids of the Macs of `plan` that have to be given something of the model before it can run. Where there
        are other files under that name, or broken ones, that Mac says so itself, for it knows what is wrong. Raises
        ModelNotFound where no linked Mac has a layer that is to be given.
        """
        holdings = self.holdings(plan.fingerprint)
        if nowhere := holdings.nowhere(layer for layers in holdings.missing(plan).values() for layer in layers):
            raise ModelNotFound(
                f"No linked Mac has {layers_text(nowhere)} of {plan.model}.",
                "Bring back the Mac that has them, or fetch the model again: `macluster download`.",
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
        news = self._news[device_id] = _News(next(self._numbers), asyncio.Event())
        try:
            if await self._links.send(device_id, HoldsAsk(number=news.number)):
                async with asyncio.timeout(ASK_S):
                    await news.come.wait()
        except TimeoutError:
            return  # what it told before counts
        finally:
            self._news.pop(device_id, None)


def _short_names(known: Holds) -> set[str]:
    return {short_name(name) for name in (*(each.name for each in known.models), *known.broken)}


def holds_of(found: Sequence[ModelEntry | BrokenModel]) -> Holds:
    """What lies on a disk, as the other Macs are told of it."""
    usable = [held_model(entry) for entry in found if isinstance(entry, ModelEntry)]
    broken = [one.name[:MAX_MODEL_NAME] for one in found if isinstance(one, BrokenModel)]
    return Holds(models=tuple(usable[:MAX_HELD]), broken=tuple(broken[:MAX_BROKEN]))


def held_model(entry: ModelEntry) -> HeldModel:
    """A model as the other Macs are told of it."""
    return HeldModel(
        name=entry.name[:MAX_MODEL_NAME],
        fingerprint=entry.fingerprint,
        model_type=entry.model_type[:64],
        layers=entry.layers,
        total_bytes=entry.total_bytes,
        quantization=entry.quantization[:32],
        context_max=entry.context_max,
        missing_bytes=entry.missing_bytes,
        disk_bytes=entry.disk_bytes,
        layers_here=entry.layers_here[:MAX_RANGES] if entry.missing_bytes else (),
        hub=entry.hub,
    )
