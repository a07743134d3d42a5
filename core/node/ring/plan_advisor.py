"""Publishes advice about the loaded plan, from the speed of past answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from time import monotonic

from core.errors import MaclusterError
from core.events import PlanAdvice, PlanLoaded, RequestDone
from core.node.base.bus import Bus
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.planning import Planning
from core.node.ring.throughput_history import ThroughputHistory
from core.plan.forecast import kept_advice


class PlanAdvisor:
    """Lets the history learn from events, then publishes new advice; calls `rebalance` after each answer."""

    def __init__(
        self,
        bus: Bus,
        history: ThroughputHistory,
        planning: Planning,
        leader: PlanLeader,
        rebalance: Callable[[], Awaitable[None]],
    ) -> None:
        self._bus, self._history = bus, history
        self._planning, self._leader, self._rebalance = planning, leader, rebalance

    async def watch(self) -> None:
        """Follow the node's events for ever; start again if the bus drops this reader."""
        while True:
            async with aclosing(self._bus.follow()) as events:
                async for event in events:
                    await self._history.take_in(event, monotonic())
                    if isinstance(event, PlanLoaded | RequestDone):
                        await self._advise()
                    if isinstance(event, RequestDone):
                        await self._rebalance()

    async def _advise(self) -> None:
        plan = self._leader.plan
        if plan is None:
            return
        try:
            reported = await self._planning.forecast(plan)
        except MaclusterError:  # the model is no longer on this disk
            reported = None
        text = kept_advice(reported, self._bus.now.advice) if reported else ""
        if self._leader.plan is plan and text != self._bus.now.advice:
            self._bus.publish(PlanAdvice(plan_gen=plan.plan_gen, text=text))
