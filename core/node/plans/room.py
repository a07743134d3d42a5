"""The room of the plan that this Mac leads: loads it, and keeps answers going when a Mac is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from time import monotonic

import msgspec
from aiohttp import web

from core.errors import MaclusterError, NotLoaded, Problem
from core.events import HopSample, PathKind, Plan, PlanAdvice, PlanLoaded, RequestDone
from core.node.answers.room import AnswersRoom
from core.node.base.bus import Bus
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, route
from core.node.base.message_table import MessageRow, receives
from core.node.base.room import Room
from core.node.peers.linked_mac import LinkedMacChanged, StageHeard
from core.node.peers.mesh import LinkEnded, MacGone, MessageRefused
from core.node.peers.room import PeersRoom
from core.node.peers.worker_state import WorkerState
from core.node.plans.driver import PlanDriver
from core.node.ring import messages as wire
from core.node.ring.plan_member import OwnStageChanged
from core.node.ring.planning import Planning
from core.node.ring.prefill_link import PrefillLink
from core.node.ring.room import RingRoom
from core.node.ring.throughput_history import ThroughputHistory
from core.node.ring.worker_supervisor import WorkerReported
from core.node.trust.roster_enforcement import PlanDistrusted
from core.plan.forecast import kept_advice
from core.requests.plans import LoadRequest, ModelChoice, PlanPreview, RecoveryOrder
from core.worker import messages as reports
from core.worker.messages import StageSample


class PlanAdvisor:
    """Lets the history learn from events, then publishes new advice; calls `rebalance` after each answer."""

    def __init__(
        self,
        bus: Bus,
        history: ThroughputHistory,
        planning: Planning,
        worker: WorkerState,
        rebalance: Callable[[], Awaitable[None]],
    ) -> None:
        self._bus, self._history = bus, history
        self._planning, self._worker, self._rebalance = planning, worker, rebalance

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
        plan = self._worker.led
        if plan is None:
            return
        try:
            reported = await self._planning.forecast(plan)
        except MaclusterError:  # the model is no longer on this disk
            reported = None
        text = kept_advice(reported, self._bus.now.advice) if reported else ""
        if self._worker.led is plan and text != self._bus.now.advice:
            self._bus.publish(PlanAdvice(plan_gen=plan.plan_gen, text=text))


class PlansRoom(Room):
    """Loading and recovery."""

    def __init__(self, node: NodeContext, peers: PeersRoom, ring: RingRoom, answers: AnswersRoom) -> None:
        super().__init__(node)
        self.elsewhere, self.peers = peers.elsewhere, peers.table
        self.worker, self.planning = peers.worker, ring.planning
        self.prefill = PrefillLink(node, peers.mesh, ring.member)
        self.driver = PlanDriver(
            node,
            peers.mesh,
            peers.table,
            peers.worker,
            ring.member,
            ring.planning,
            ring.files,
            self.prefill,
            answers.answers,
            answers.sessions,
        )
        self.advisor = PlanAdvisor(node.bus, ring.throughput, ring.planning, peers.worker, self.driver.rebalance)

    def messages(self) -> Iterable[MessageRow]:
        return (
            receives(wire.StageReport, lambda mac, report: self.driver.heard(mac, report.stage)),
            receives(wire.FilesReply, self.driver.take_files),
        )

    def routes(self) -> Iterable[web.RouteDef]:
        return (
            route("GET", "/v1/models", self._models),
            route("POST", "/v1/load", self._load, LoadRequest, BEGUN),
            route("POST", "/v1/unload", self._unload),
            route("POST", "/v1/recovery", lambda order: self.driver.choose(order.choice), RecoveryOrder),
        )

    def subscribe(self) -> None:
        signals, driver, own_id = self.node.signals, self.driver, self.node.own_id
        signals.on(LinkedMacChanged, lambda contact: driver.changed(contact.device_id))
        signals.on(StageHeard, lambda mac: driver.heard(mac.device_id, mac.stage))
        signals.on(OwnStageChanged, lambda own: driver.heard(own_id, own.stage))
        signals.on(MacGone, lambda mac: driver.gone(mac.device_id))
        signals.on_awaited(LinkEnded, self._link_ended)
        signals.on(MessageRefused, driver.refused)
        signals.on(PlanDistrusted, self._distrusted)
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
        """Load a model for a client of this Mac. Raises as `PlanDriver.load`, and Busy if another Mac's plan would
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

    async def _link_ended(self, ended: LinkEnded) -> None:
        what = f"{self.node.bus.now.name_of(ended.device_id)} is gone: {ended.error.what}"
        problem = Problem(kind="LinkLost", what=what, fix="Load the model again without it.")
        await self.driver.lost(ended.device_id, problem)

    def _distrusted(self, plan: PlanDistrusted) -> None:
        self.node.tasks.spawn_essential("The end of a plan", self.driver.distrusted(plan.device_id, plan.problem))

    def _worker_reported(self, said: WorkerReported) -> None:
        led = self.worker.led
        match report := said.report:
            case reports.Samples(stages=stages) if led and len(stages) == len(led.stages):
                for hop in hop_samples(led, stages, self.peers.rtt, self.driver.path_from):
                    self.node.bus.publish(hop)
            case reports.PrefillLinked() | reports.PrefillBroken():
                self.prefill.reported(report)
            case reports.ReadBeside(request_id=name, tokens=0):
                self.node.journal.warn(f"The ring reads the prompt of {name[:8]}: the prefill Mac failed.")
            case reports.Token() | reports.Prefilled() | reports.Proving() | reports.Proved() | reports.Unproved():
                self.driver.handle_report(report)


def hop_samples(
    plan: Plan,
    stages: Sequence[StageSample],
    rtt: Callable[[str, str], float | None],
    path: Callable[[str], PathKind] = lambda _: "",
) -> list[HopSample]:
    """One sample per hop of the ring; `path` gives the kind of network of a Mac's outgoing link."""
    hops = []
    for index, sent in enumerate(stages):
        after = (index + 1) % len(stages)
        source, target, received = plan.stages[index], plan.stages[after], stages[after]
        hops.append(
            HopSample(
                source=source.device_id,
                target=target.device_id,
                frames=sent.frames,
                bytes=sent.bytes,
                compute_s=sent.compute_s,
                codec_s=sent.codec_s,
                seal_s=sent.seal_s,
                send_s=sent.send_s,
                wait_s=received.wait_s,
                open_s=received.open_s,
                since=stages[0].since,
                wire_s=received.wire_s,
                rtt_s=rtt(source.device_id, target.device_id),
                queue=received.queue,
                path=path(source.device_id),
            )
        )
    return hops
