"""Answer requests that other paired Macs relay to this one, because it leads the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final, NamedTuple

import msgspec

from core.errors import Busy, MaclusterError, NodeError, NotLoaded
from core.node.base.client_name import CLIENT
from core.node.base.large_bodies import off_loop
from core.node.base.tasks import Tasks
from core.node.peers.mesh import Mesh
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.relay import relayed_values
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.node.relay.relayed_answers import Relay
from core.requests.answers import RequestAccepted
from core.settings import MAX_LANE_ROWS

MOST_OF_A_MAC: Final = MAX_LANE_ROWS  # more rows never run at the same time


class _Work(NamedTuple):
    size: int
    task: asyncio.Task[None]


class _Asker:
    """Requests of one Mac: running ones by its numbers, and the one arriving."""

    def __init__(self) -> None:
        self.arriving = relayed_values.Assembly(relayed_values.MOST_ASKED)
        self.under_way: dict[int, _Work] = {}

    def has_room(self, size: int) -> bool:
        held = sum(work.size for work in self.under_way.values())
        return len(self.under_way) < MOST_OF_A_MAC and held + size <= relayed_values.MOST_ASKED


class RelayServer:
    """Answers relayed requests while `is_on`, a limited number per Mac."""

    def __init__(self, answering: ApiAnswers, relay: Relay, links: Mesh, tasks: Tasks, *, is_on: bool) -> None:
        self._answering, self._relay, self._links, self._tasks, self._is_on = answering, relay, links, tasks, is_on
        self._askers: dict[str, _Asker] = {}

    async def handle_message(self, device_id: str, message: RelayRequest | RelayStop) -> None:
        asker = self._askers.setdefault(device_id, _Asker())
        if isinstance(message, RelayStop):
            if work := asker.under_way.get(message.number):
                work.task.cancel()
        elif whole := asker.arriving.add(message.number, message.data, is_last=message.is_last):
            await self._begin(device_id, message.number, whole)

    def gone(self, device_id: str) -> None:
        if asker := self._askers.pop(device_id, None):
            for work in asker.under_way.values():
                work.task.cancel()

    async def _begin(self, device_id: str, number: int, body: bytes) -> None:
        asker = self._askers[device_id]
        if number in asker.under_way or not asker.has_room(len(body)):
            busy = Busy("That Mac relays too many requests already.", "Ask again when one of them is done.")
            await self._fail(device_id, number, busy)
            return
        work, defect = self._serve(device_id, number, body), partial(self._defect, device_id, number)
        task = self._tasks.spawn("A relayed request", work, defect)
        asker.under_way[number] = _Work(len(body), task)
        task.add_done_callback(lambda _: asker.under_way.pop(number))

    async def _serve(self, device_id: str, number: int, body: bytes) -> None:
        CLIENT.set(self._relay.name_of(device_id))
        try:
            wanted = await off_loop(len(body), partial(relayed_values.wanted_from, body))
            async with aclosing(self._replies(wanted)) as replies:
                async for each in replies:
                    await self._send(device_id, number, each)
        except MaclusterError as error:
            await self._fail(device_id, number, error)

    async def _replies(self, wanted: relayed_values.Wanted) -> AsyncGenerator[relayed_values.Relayed, None]:
        self._relay.check_trust()
        model = self._led()
        match wanted:
            case relayed_values.CountWanted(request=request):
                yield await model.answers.count(request)
            case relayed_values.TextWanted(tokens=tokens):
                yield await model.answers.text_of(tokens)
            case relayed_values.AnswerWanted(request=request):
                mine = msgspec.structs.replace(request, keep=False)  # never save another Mac's conversation
                async with aclosing(self._answering.events([mine], model, is_relayed=True)) as events:
                    async for came in events:
                        match came:
                            case None:
                                yield None
                            case _, RequestAccepted(prompt_tokens=prompt_tokens):
                                yield relayed_values.Accepted(prompt_tokens=prompt_tokens)
                            case _, said:
                                yield said

    def _led(self) -> LedModel:
        """The model led here; a relayed request is never relayed again, so it can't travel in a circle."""
        if not self._is_on:
            raise NotLoaded("The Mac that leads takes no relayed requests.", "Ask its own API.")
        if model := self._answering.own():
            return model
        raise NotLoaded("The Mac that was asked does not lead any more.", "Ask again.")

    def _defect(self, device_id: str, number: int) -> None:
        failed = NodeError("The Mac that leads failed by a defect.", "Its log says where.")
        self._tasks.spawn("A message about a relayed request", self._fail(device_id, number, failed))

    async def _fail(self, device_id: str, number: int, error: MaclusterError) -> None:
        await self._send(device_id, number, relayed_values.NotAnswered(problem=error.problem))

    async def _send(self, device_id: str, number: int, value: relayed_values.Relayed) -> None:
        for piece, is_last in relayed_values.pieces(relayed_values.encoded(value)):
            await self._links.send(device_id, RelayReply(number=number, data=piece, is_last=is_last))
