"""Loads a model of this Mac's disk when an API request names it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing

from core.errors import NodeError, NotLoaded, error_from
from core.events import PlanFailed, PlanLoaded, PlanProposed, PlanUnloaded
from core.node.base.bus import Bus
from core.requests.plans import LoadRequest


class LoadOnRequest:
    """Loads the models of this Mac's disk by their short names."""

    def __init__(
        self, held: Callable[[], Iterable[str]], load: Callable[[LoadRequest], Awaitable[None]], bus: Bus
    ) -> None:
        self._held, self._load, self._bus = held, load, bus  # `held`: full names of the models on this disk

    def names(self) -> tuple[str, ...]:
        """Short names, without owners; a name that two models share is left out."""
        counts = Counter(name.rpartition("/")[2] for name in self._held())
        return tuple(name for name, count in counts.items() if count == 1)

    async def load(self, name: str) -> None:
        """Load `name` as `macluster load` does without options, and wait until it is ready. A caller that stops waiting
        does not stop the load. Raises MaclusterError.
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
                        raise NotLoaded(f"{name} was unloaded while it was loading.", "Send the request again.")
                    case _:
                        continue
        raise NodeError("macluster is quitting on this Mac.", "Send the request again later.")
