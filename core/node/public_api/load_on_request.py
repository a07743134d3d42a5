"""Loading by request: a model of this Mac's disk, for a program that asks for it by its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing

from core.errors import NodeError, NotLoaded, error_from
from core.events import PlanFailed, PlanLoaded, PlanProposed, PlanUnloaded
from core.node.base.bus import Bus
from core.requests.plans import LoadRequest


class LoadOnRequest:
    """`held`: the models of this Mac's disk by their full names; `load` begins to load one."""

    def __init__(
        self, held: Callable[[], Iterable[str]], load: Callable[[LoadRequest], Awaitable[None]], bus: Bus
    ) -> None:
        self._held, self._load, self._bus = held, load, bus

    def names(self) -> tuple[str, ...]:
        """Those that can be asked for, without their owners; where two have the same, nobody knows which is meant."""
        counts = Counter(name.rpartition("/")[2] for name in self._held())
        return tuple(name for name, count in counts.items() if count == 1)

    async def load(self, name: str) -> None:
        """Load it as `macluster load` does without options, in the place of what is loaded, until it is ready. Raises
        MaclusterError. Who stops waiting leaves it to whoever else may want it.
        """
        async with aclosing(self._bus.follow()) as events:
            await anext(events)
            await self._load(LoadRequest(model=name))
            is_proposed = False
            async for event in events:
                match event:
                    case PlanProposed():
                        is_proposed = True
                    case PlanLoaded() if is_proposed:
                        return
                    case PlanFailed(problem=problem) if is_proposed:
                        raise error_from(problem)
                    case PlanUnloaded() if is_proposed:
                        raise NotLoaded(f"{name} was unloaded while it was being loaded.", "Ask again.")
                    case _:
                        continue
        raise NodeError("The node of this Mac ends.", "Ask again.")
