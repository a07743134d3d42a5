"""The room of recovery: loads plans, and keeps answers going when a Mac is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Self

import msgspec
from aiohttp import web

from core.errors import MaclusterError, NotLoaded
from core.events import PlanAdvice, PlanLoaded, RequestDone
from core.node.answers.room import AnswersRoom
from core.node.base.bus import Bus
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, route
from core.node.base.room import Room
from core.node.peers.linked_mac import LinkedMacChanged
from core.node.peers.mesh import MacGone
from core.node.peers.other_plans import OtherPlans
from core.node.peers.room import PeersRoom
from core.node.peers.worker_state import WorkerState
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.planning import Planning
from core.node.ring.room import RingRoom
from core.node.ring.throughput_history import ThroughputHistory
from core.node.ring.worker_supervisor import WorkerReported
from core.plan.forecast import kept_advice
from core.requests.plans import LoadRequest, ModelChoice, PlanPreview, RecoveryOrder
from core.worker.messages import AnswerDone, Prefilled, Token


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


@dataclass(frozen=True, kw_only=True)
class RecoveryRoom(Room):
    """Loading and recovery."""

    elsewhere: OtherPlans
    worker: WorkerState
    planning: Planning
    driver: RecoveryDriver
    advisor: PlanAdvisor

    @classmethod
    def build(cls, node: NodeContext, peers: PeersRoom, ring: RingRoom, answers: AnswersRoom) -> Self:
        planning, leader = ring.planning, ring.leader
        driver = RecoveryDriver(node, planning, peers.table, leader, answers.answers, answers.sessions)
        return cls(
            node=node,
            elsewhere=peers.elsewhere,
            worker=peers.worker,
            planning=planning,
            driver=driver,
            advisor=PlanAdvisor(node.bus, ring.throughput, planning, leader, driver.rebalance),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("GET", "/v1/models", self._models),
            route("POST", "/v1/load", self._load, LoadRequest, BEGUN),
            route("POST", "/v1/unload", self._unload),
            route("POST", "/v1/recovery", lambda order: self.driver.choose(order.choice), RecoveryOrder),
        )

    def subscribe(self) -> None:
        signals = self.node.signals
        signals.on(LinkedMacChanged, lambda contact: self.driver.changed(contact.device_id))
        signals.on(MacGone, lambda mac: self.driver.gone(mac.device_id))
        signals.on(WorkerReported, self._worker_reported)

    async def _models(self) -> list[ModelChoice]:
        asked, found = self.driver.asked, await self.planning.choices()
        led = {each.fingerprint: each.led_by for each in self.elsewhere.plans() if each.fingerprint}
        mine, change = asked if asked.model else None, msgspec.structs.replace
        return [
            change(each, asked=mine) if each.loaded else change(each, led_by=led.get(each.fingerprint, ""))
            for each in found
        ]

    async def load(self, request: LoadRequest) -> None:
        """Load a model for a client of this Mac. Raises as `RecoveryDriver.load`, and Busy if another Mac's plan would
        lose this Mac by that.
        """
        self.elsewhere.check_free(request)
        self.worker.begins = True
        try:
            await self.driver.load(request)
        finally:
            self.worker.begins = False

    async def _load(self, request: LoadRequest) -> PlanPreview:
        await self.load(request)
        return await self.planning.preview(request)

    async def _unload(self) -> None:
        """Raises NotLoaded if only other Macs lead a plan."""
        now, led = self.node.bus.now, next(iter(self.elsewhere.plans()), None)
        if led and not (now.plan or now.recovery):
            raise NotLoaded(f"{led.led_by} leads {led.model}.", f"Ask there: `macluster unload` on {led.led_by}.")
        await self.driver.unload()

    def _worker_reported(self, said: WorkerReported) -> None:
        if isinstance(said.report, Token | Prefilled | AnswerDone):
            self.driver.handle_report(said.report)
