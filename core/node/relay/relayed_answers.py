"""Request answers of the Mac that leads over the control link, for clients of this Mac's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from itertools import count
from time import monotonic
from typing import Final

import msgspec

from core.answer_parts import ToolCall
from core.errors import LinkLost, MaclusterError, NotLoaded, ProtocolError, UsageError, error_from
from core.events import RequestDone
from core.node.answers.answer_stream import Said
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks
from core.node.peers.mesh import Mesh
from core.node.peers.other_plans import OtherPlans
from core.node.public_api.api_answers import LedModel
from core.node.relay import relayed_values
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.requests.answers import ChatRequest, RequestAccepted

MAX_ANSWER_BYTES: Final = 256 << 20  # bytes of one answer, as they are counted here
PIECE_COST: Final = 512  # counted for the smallest piece


class Relay:
    """Relays requests. `check_trust` raises if no prompt may leave this Mac."""

    def __init__(
        self,
        links: Mesh,
        elsewhere: OtherPlans,
        tasks: Tasks,
        name_of: Callable[[str], str],
        check_trust: Callable[[], None],
    ) -> None:
        self._links, self._elsewhere, self._tasks = links, elsewhere, tasks
        self.name_of, self.check_trust = name_of, check_trust
        self._numbers = count(1)
        self._sending = asyncio.Lock()  # pieces of one request follow each other
        self._asked: dict[tuple[str, int], _Asked] = {}

    def model(self) -> LedModel:
        """The model that another Mac leads: the one whose layers this one has, else any. Raises NotLoaded."""
        led = next(iter(self._elsewhere.plans()), None)
        if led is None:
            raise NotLoaded("No model is loaded.")
        if led.takes_relayed:
            return LedModel(led.model, led.rows, LeaderAnswers(self, led.head), led.context)
        raise NotLoaded(f"{led.led_by} leads {led.model} and answers only there.", f"Ask on {led.led_by}.")

    async def ask(self, device_id: str, wanted: relayed_values.Wanted) -> AsyncGenerator[relayed_values.Relayed, None]:
        """Yield that Mac's replies; leaving early cancels the request. Raises its error, NotPaired, LinkLost."""
        self.check_trust()
        number = next(self._numbers)
        asked = self._asked[device_id, number] = _Asked()
        try:
            await self._send(device_id, number, relayed_values.encoded(wanted))
            while not asked.is_over:
                yield await asked.next()
        finally:
            del self._asked[device_id, number]
            if not asked.is_over:
                stop = RelayStop(number=number)
                self._tasks.spawn("The end of a relayed request", self._links.send(device_id, stop))

    def handle_message(self, device_id: str, message: RelayReply) -> None:
        """Take a piece of a reply; one to a cancelled request is dropped. Raises ProtocolError."""
        if asked := self._asked.get((device_id, message.number)):
            asked.take(message)

    def gone(self, device_id: str) -> None:
        for (mac, _), asked in self._asked.items():
            if mac == device_id:
                asked.fail(self._lost(device_id))

    async def _send(self, device_id: str, number: int, body: bytes) -> None:
        if len(body) > relayed_values.MOST_ASKED:
            raise UsageError("The request is too long for another Mac.", "Ask the Mac that leads.")
        async with self._sending:
            for piece, is_last in relayed_values.pieces(body):
                if not await self._links.send(device_id, RelayRequest(number=number, data=piece, is_last=is_last)):
                    raise self._lost(device_id)

    def _lost(self, device_id: str) -> LinkLost:
        return LinkLost(f"The link to {self.name_of(device_id)}, which leads the model, is gone.", "Ask again.")


class _Asked:
    """One request that another Mac answers."""

    def __init__(self) -> None:
        self._assembly, self._cost = relayed_values.Assembly(MAX_ANSWER_BYTES), 0
        self._replies: asyncio.Queue[relayed_values.Relayed | MaclusterError] = asyncio.Queue()
        self.is_over = False

    def take(self, message: RelayReply) -> None:
        if self._cost > MAX_ANSWER_BYTES:
            return
        self._cost += PIECE_COST + len(message.data)
        if self._cost > MAX_ANSWER_BYTES:
            self.fail(ProtocolError("More came for a relayed request than an answer has."))
        elif whole := self._assembly.add(message.number, message.data, is_last=message.is_last):
            self._replies.put_nowait(relayed_values.relayed_from(whole))

    def fail(self, error: MaclusterError) -> None:
        self._replies.put_nowait(error)

    async def next(self) -> relayed_values.Relayed:
        came = await self._replies.get()
        self.is_over = isinstance(came, (LinkLost, *relayed_values.LAST))
        if isinstance(came, relayed_values.NotAnswered):
            raise error_from(came.problem)
        if isinstance(came, MaclusterError):
            raise came
        return came


class LeaderAnswers:
    """Answers of one Mac that leads. `active_at`: time of its last reply, by this machine's clock."""

    def __init__(self, relay: Relay, device_id: str) -> None:
        self._relay, self._device_id = relay, device_id
        self.active_at = 0.0

    async def follow(self, request: ChatRequest, watch: Stopwatch | None = None) -> AsyncGenerator[Said, None]:
        """Same as `Answers.follow`, on the other Mac."""
        async with aclosing(self._relay.ask(self._device_id, relayed_values.AnswerWanted(request=request))) as reported:
            async for came in reported:
                self.active_at = monotonic()
                match came:
                    case None:
                        continue
                    case relayed_values.Accepted(prompt_tokens=prompt_tokens):
                        if watch:
                            watch.lap("relay")
                        yield RequestAccepted(request_id="", prompt_tokens=prompt_tokens)
                    case int() | str() | relayed_values.NotAnswered():
                        raise _strange()
                    case ToolCall(arguments=arguments) if not _is_object(arguments):
                        raise _strange()
                    case _:
                        yield came
                        if isinstance(came, RequestDone):
                            return

    async def count(self, request: ChatRequest) -> int:
        match await self._one(relayed_values.CountWanted(request=request)):
            case int(tokens):
                return tokens
        raise _strange()

    async def text_of(self, ids: Sequence[int]) -> str:
        match await self._one(relayed_values.TextWanted(tokens=tuple(ids))):
            case str(text):
                return text
        raise _strange()

    async def _one(self, wanted: relayed_values.Wanted) -> relayed_values.Relayed:
        async with aclosing(self._relay.ask(self._device_id, wanted)) as reported:
            return await anext(reported)


def _is_object(written: str) -> bool:
    try:
        msgspec.json.decode(written, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _strange() -> ProtocolError:
    return ProtocolError("The Mac that leads sent another kind of reply than requested.")
