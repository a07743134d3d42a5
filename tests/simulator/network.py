"""The network: what is sent arrives late and in order, or waits where the way is cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulator.loop import Loop, Process

Way = frozenset[str]  # two device ids; and "data" where it is not the control link


class Wire:
    """One direction of a connection. `after`: what the slowest frame before takes."""

    def __init__(self, network: Network, way: Way, target: Process) -> None:
        self._network, self._way, self._target = network, way, target
        self._queue: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._last = 0.0
        self._stalled = 0
        network.wires.setdefault(way, []).append(self)

    def send(self, receive: Callable[..., object], *args: Any) -> None:
        """It arrives in the other process, some time."""
        self._queue.append((receive, args))
        self._schedule()

    def heal(self) -> None:
        """What waited goes on its way."""
        stalled, self._stalled = self._stalled, 0
        for _ in range(stalled):
            self._schedule()

    def _schedule(self) -> None:
        now = self._network.loop.now
        self._last = max(self._last, now + self._network.delay())
        self._target.soon(self._arrive, after=self._last - now)

    def _arrive(self) -> None:
        if self._way in self._network.cuts:
            self._stalled += 1
            return
        receive, args = self._queue.popleft()
        receive(*args)


class Network:
    """`cuts`: ways on which nothing arrives. `slowest_s`: a frame takes up to so long."""

    def __init__(self, loop: Loop, random: Random) -> None:
        self.loop, self._random = loop, random
        self.slowest_s = random.choice((0.01, 0.05, 0.15))
        self.cuts: set[Way] = set()
        self.wires: dict[Way, list[Wire]] = {}
        self.meshes: dict[str, Any] = {}
        self.workers: dict[int, Any] = {}  # by the port that they listen on
        self.restored: dict[tuple[int, int], list[int]] = {}  # what a handle of a run holds that comes from elsewhere
        self.linked: set[tuple[str, int]] = set()  # who has linked under which generation

    def delay(self) -> float:
        """Seconds until a frame is there."""
        return 0.0002 + self._random.random() * self.slowest_s

    def cut(self, way: Way) -> None:
        """Nothing arrives any more, and nobody is told."""
        self.cuts.add(way)

    def heal(self, way: Way) -> None:
        """Everything arrives again, first of all what waited."""
        self.cuts.discard(way)
        for wire in self.wires.get(way, ()):
            wire.heal()
