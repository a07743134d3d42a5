"""The network: frames arrive late and in order, or wait where the way is cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.simulator.loop import Loop, Process

Way = frozenset[str]  # two device ids, with "data" added except for the control link


class Wire:
    """One direction of a connection. `after`: the delay of the slowest frame before."""

    def __init__(self, network: Network, way: Way, target: Process) -> None:
        self._network, self._way, self._target = network, way, target
        self._queue: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._last = 0.0
        self._stalled = 0
        network.wires.setdefault(way, []).append(self)

    def send(self, receive: Callable[..., object], *args: Any) -> None:
        """Deliver a call to the other process some time later."""
        self._queue.append((receive, args))
        self._schedule()

    def heal(self) -> None:
        """Deliver the frames that waited."""
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
    """All wires between Macs. `cuts`: ways that deliver nothing. `slowest_s`: the longest delay of a frame."""

    def __init__(self, loop: Loop, random: Random) -> None:
        self.loop, self._random = loop, random
        self.slowest_s = random.choice((0.01, 0.05, 0.15))
        self.cuts: set[Way] = set()
        self.wires: dict[Way, list[Wire]] = {}
        self.meshes: dict[str, Any] = {}
        self.workers: dict[int, Any] = {}  # by listening port
        self.restored: dict[tuple[int, int], list[int]] = {}  # restored tokens of a handle, by run and handle
        self.forgets: Random | None = None  # dice: some orders and reports of plans are lost
        self.linked: set[tuple[str, int]] = set()  # device id and plan generation of each Mac that linked

    def delay(self) -> float:
        """Seconds until a frame arrives."""
        return 0.0002 + self._random.random() * self.slowest_s

    def cut(self, way: Way) -> None:
        """Stop all deliveries on a way; no end sees it."""
        self.cuts.add(way)

    def heal(self, way: Way) -> None:
        """Deliver again on a way, the waiting frames first."""
        self.cuts.discard(way)
        for wire in self.wires.get(way, ()):
            wire.heal()
