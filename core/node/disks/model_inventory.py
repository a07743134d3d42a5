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
from core.node.base.bus import Bus
from core.node.base.messages import (
    MAX_BROKEN,
    MAX_HELD,
    MAX_MODEL_NAME,
    MAX_RANGES,
    AnyMessage,
    HeldModel,
    Holds,
    HoldsAsk,
)
from core.node.disks.local_models import LocalModels

LOOK_S = 5.0
ASK_S = 30.0  # new files are examined first, on a Mac that may be busy


class Links(Protocol):
    """The control links that stand, by device id, and how to send over one."""

    @property
    def contacts(self) -> Mapping[str, object]:
        """A link each; another object is another link."""

    async def send(self, device_id: str, message: AnyMessage) -> bool:
        """Whether it went out."""


class _News(NamedTuple):
    """What another Mac is asked by a number: what it tells without it may be older than the question."""

    number: int
    come: asyncio.Event


class ModelInventory:
    """Tells the others what this Mac holds and keeps what they told. Publishes ModelsChanged."""

    def __init__(self, device_id: str, models: LocalModels, links: Links, bus: Bus) -> None:
        self._device_id, self._models, self._links, self._bus = device_id, models, links, bus
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
            told = msgspec.structs.replace(message, answers=0)
            if self._others.get(device_id) != told:
                self._others[device_id] = told
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

    def holders(self, fingerprint: str) -> tuple[str, ...]:
        """Device ids of the Macs that have all of the model, this one first."""
        return tuple(mac for mac, held in self._held(fingerprint).items() if any(not one.missing_bytes for one in held))

    def _held(self, fingerprint: str) -> dict[str, list[HeldModel]]:
        """What each Mac has of a model, this one first."""
        macs = {self._device_id: self.own} | {mac: known.models for mac, known in self._others.items()}
        return {mac: [one for one in held if one.fingerprint == fingerprint] for mac, held in macs.items()}

    def elsewhere(self, here: Collection[str]) -> list[HeldModel]:
        """The models of the other Macs whose fingerprints are not among those `here`."""
        held = [each for known in self._others.values() for each in known.models]
        found = {each.fingerprint: each for each in held if not each.missing_bytes}
        return [each for fingerprint, each in found.items() if fingerprint not in here]

    def find(self, fingerprint: str) -> HeldModel | None:
        """A model of any disk."""
        held = [*self.own, *(each for known in self._others.values() for each in known.models)]
        return next((each for each in held if each.fingerprint == fingerprint), None)

    def missing_on(self, plan: Plan) -> tuple[str, ...]:
        """Device ids of the Macs of `plan` that have told all they hold, not all layers of their stage among it."""
        held = self._held(plan.fingerprint)
        reported = {mac for mac, known in self._others.items() if len(known.models) < MAX_HELD} | {self._device_id}
        lacking = (s for s in plan.stages if not any(_has(one, s.start, s.stop) for one in held.get(s.device_id, ())))
        return tuple(stage.device_id for stage in lacking if stage.device_id in reported)

    async def check(self, plan: Plan) -> None:
        """Raises ModelNotFound where a Mac of `plan` still has no model of that name, having looked anew. Where there
        are other files under that name, or broken ones, that Mac says so itself, for it knows what is wrong.
        """
        if lacking := self._without(plan):
            await asyncio.gather(*(self._ask(mac) for mac in lacking))
        if lacking := self._without(plan):
            names = " and ".join(stage.peer for stage in plan.stages if stage.device_id in lacking)
            raise ModelNotFound(
                f"{plan.model} is not on {names}.",
                f"Copy it there first: d in the list of models, or `macluster copy {plan.model}`; `--split` copies to "
                f"each only what it will hold.",
            )

    def _without(self, plan: Plan) -> list[str]:
        name, held = short_name(plan.model), self._held(plan.fingerprint)
        others = [mac for mac in self.missing_on(plan) if mac in self._others]
        return [mac for mac in others if held[mac] or name not in _short_names(self._others[mac])]

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


def _has(held: HeldModel, start: int, stop: int) -> bool:
    return not held.missing_bytes or any(first <= start and stop <= last for first, last in held.layers_here)


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
        layers_here=entry.layers_here[:MAX_RANGES] if entry.missing_bytes else (),
    )
