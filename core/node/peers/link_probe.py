"""Measure a control link: empty round trips, then full messages, as many in flight as fit without a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from time import monotonic
from typing import Final, NamedTuple

from core.errors import LinkLost, LinkTimeout
from core.node.peers.messages import LinkProbe

ROUND_TRIPS: Final = 20
FRAME_BYTES: Final = 48 * 1024  # below MAX_CONTROL_BODY
FRAMES: Final = 170  # 8 MiB
PROBES: Final = ROUND_TRIPS + FRAMES
MAX_UNDER_WAY: Final = 16
QUEUE_S: Final = 0.02
LIMIT_S: Final = 5.0


class Extent(NamedTuple):
    """Limits of a measurement."""

    round_trips: int = ROUND_TRIPS  # empty messages
    frames: int = FRAMES  # full messages
    sending_s: float = 2.0  # time for sending full messages
    limit_s: float = LIMIT_S  # of the whole measurement


TEST: Final = Extent()


class ProbeFigures(NamedTuple):
    """Results of a measurement."""

    rtts_s: tuple[float, ...]  # round trips of empty messages
    loaded_s: tuple[float, ...]  # round trips of full messages, with as many in flight as the link carries
    seconds: float  # from the first full message to the reply to the last one

    @property
    def bytes(self) -> int:
        return FRAME_BYTES * len(self.loaded_s)


def next_window(window: int, delay_s: float, base_s: float) -> int:
    """Messages in flight after a round trip of `delay_s`: one more without a queue, else one less (RFC 6817)."""
    return max(1, window - 1) if delay_s > base_s + QUEUE_S else min(MAX_UNDER_WAY, window + 1)


class LinkProbing:
    """One measurement of a link. `send` returns whether the Mac is linked; `moved` gets the number of replies."""

    def __init__(
        self,
        name: str,
        send: Callable[[LinkProbe], Awaitable[bool]],
        moved: Callable[[int], None] = lambda _: None,
        extent: Extent = TEST,
    ) -> None:
        self._name, self._send, self._moved, self._extent = name, send, moved, extent
        self._numbers = count()
        self._sent_at: dict[int, float] = {}
        self._delays: asyncio.Queue[float | None] = asyncio.Queue()
        self._rtts_s: list[float] = []
        self._loaded_s: list[float] = []
        self._began_at = self._back_at = 0.0

    def handle_reply(self, number: int) -> None:
        sent_at = self._sent_at.pop(number, None)
        if sent_at is not None:
            self._back_at = monotonic()
            self._delays.put_nowait(self._back_at - sent_at)

    def lost(self) -> None:
        self._delays.put_nowait(None)

    async def run(self) -> ProbeFigures:
        """Measure; after the time limit, use the results so far. Raises LinkLost, LinkTimeout."""
        try:
            async with asyncio.timeout(self._extent.limit_s):
                for _ in range(self._extent.round_trips):
                    await self._probe(0)
                    await self._back(self._rtts_s)
                await self._fill(min(self._rtts_s))
        except TimeoutError as error:
            if not self._loaded_s:
                what = f"{self._name} did not answer the speed test within {self._extent.limit_s:.0f} s."
                raise LinkTimeout(what, "See whether it runs one itself or is overloaded, then try again.") from error
        return ProbeFigures(tuple(self._rtts_s), tuple(self._loaded_s), self._back_at - self._began_at)

    async def _fill(self, base_s: float) -> None:
        self._began_at = monotonic()
        sent, limit, window = 0, self._extent.frames, 1
        while len(self._loaded_s) < limit:
            while sent < limit and sent - len(self._loaded_s) < window:
                await self._probe(FRAME_BYTES)
                sent += 1
            window = next_window(window, await self._back(self._loaded_s), base_s)
            if monotonic() - self._began_at > self._extent.sending_s:
                limit = sent

    async def _probe(self, size: int) -> None:
        number = next(self._numbers)
        self._sent_at[number] = monotonic()
        if not await self._send(LinkProbe(number=number, size=size)):
            raise LinkLost(f"{self._name} is not linked.")

    async def _back(self, times_s: list[float]) -> float:
        delay_s = await self._delays.get()
        if delay_s is None:
            raise LinkLost(f"{self._name} went away during the speed test.")
        times_s.append(delay_s)
        self._moved(len(self._rtts_s) + len(self._loaded_s))
        return delay_s
