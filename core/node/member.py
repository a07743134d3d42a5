"""This Mac's stage in a plan, whoever leads it: the worker loads, links and reports; the report goes to the head."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from core.errors import MaclusterError, Problem
from core.events import Plan
from core.node.journal import Journal
from core.node.mesh import Mesh
from core.node.messages import LinkUp, Prepare, Prepared, Release, Reported, StageLost, StageReport
from core.node.models import Models
from core.node.supervisor import Supervisor
from core.worker.messages import Connect, Load


class Member:
    """The plan that this Mac's worker serves; the head is another Mac, or this one."""

    def __init__(
        self,
        device_id: str,
        mesh: Mesh,
        supervisor: Supervisor,
        models: Models,
        journal: Journal,
        cluster: Callable[[], bytes],
    ) -> None:
        self._device_id = device_id
        self._mesh = mesh
        self._supervisor = supervisor
        self._models = models
        self._journal = journal
        self._cluster = cluster
        self._head: str | None = None
        self._plan: Plan | None = None
        self._index = 0
        self._tell_own: Callable[[StageReport], Awaitable[None]] | None = None
        self._own_lost: Callable[[Problem], Awaitable[None]] | None = None

    def when_own(
        self, *, report: Callable[[StageReport], Awaitable[None]], lost: Callable[[Problem], Awaitable[None]]
    ) -> None:
        """What to call about a plan that this very Mac leads."""
        self._tell_own, self._own_lost = report, lost

    @property
    def plan(self) -> Plan | None:
        """The plan that the worker serves."""
        return self._plan

    async def prepare_own(self, plan: Plan, index: int, directory: Path) -> int:
        """Load a stage of a plan that this Mac leads; the worker's data port."""
        return await self._prepare(self._device_id, plan, index, directory)

    async def prepare(self, head: str, order: Prepare) -> None:
        """Load a stage for another Mac."""
        plan = order.plan
        if self._plan and self._head == self._device_id:
            problem = MaclusterError(f"{plan.stages[order.index].peer} leads a plan of its own.", "Unload it there.")
            await self._mesh.send(head, StageLost(plan_gen=plan.plan_gen, problem=problem.problem))
            return
        try:
            directory = await self._models.find_same(plan.model, plan.fingerprint)
            port = await self._prepare(head, plan, order.index, directory)
        except MaclusterError as error:
            await self._mesh.send(head, StageLost(plan_gen=plan.plan_gen, problem=error.problem))
            return
        await self._mesh.send(head, Prepared(plan_gen=plan.plan_gen, port=port))

    def link_own(self, order: LinkUp) -> None:
        """Link the ring of a plan that this Mac leads."""
        self._link(order)

    def link(self, head: str, order: LinkUp) -> None:
        """Link the ring for another Mac; orders of any but the head are ignored."""
        if head == self._head:
            self._link(order)

    async def release_for(self, head: str, order: Release) -> None:
        """The head lets go of the plan."""
        if head == self._head:
            self._journal.info(f"The plan is released: {order.reason}")
            await self.release(order.plan_gen)

    async def release(self, plan_gen: int) -> None:
        """Free the worker's memory."""
        if self._plan and plan_gen >= self._plan.plan_gen:
            self._plan = self._head = None
            await self._supervisor.replace()

    async def head_lost(self, device_id: str, reason: str) -> None:
        """A Mac is gone; if it led our plan, there is nobody left to serve."""
        if self._plan and device_id == self._head:
            self._journal.warn(f"The head of the plan is gone: {reason}")
            await self.release(self._plan.plan_gen)

    async def reported(self, report: StageReport) -> None:
        """Pass a report of the worker on to the head."""
        if self._plan is None:
            return
        if self._head == self._device_id:
            assert self._tell_own
            await self._tell_own(report)
        elif self._head:
            await self._mesh.send(self._head, Reported(plan_gen=self._plan.plan_gen, report=report))

    async def worker_died(self, problem: Problem) -> None:
        """The worker is gone, and the layers with it."""
        plan, head = self._plan, self._head
        self._plan = self._head = None
        if plan is None:
            return
        named = Problem(kind=problem.kind, what=f"{plan.stages[self._index].peer}: {problem.what}", fix=problem.fix)
        if head == self._device_id:
            assert self._own_lost
            await self._own_lost(named)
        elif head:
            await self._mesh.send(head, StageLost(plan_gen=plan.plan_gen, problem=named))

    async def _prepare(self, head: str, plan: Plan, index: int, directory: Path) -> int:
        if self._plan:
            await self.release(self._plan.plan_gen)
        self._plan, self._head, self._index = plan, head, index
        port = await self._supervisor.ready()
        self._supervisor.send(Load(plan=plan, index=index, directory=str(directory)))
        return port

    def _link(self, order: LinkUp) -> None:
        self._plan = order.plan
        after = order.plan.stages[(self._index + 1) % len(order.plan.stages)].device_id
        self._supervisor.send(
            Connect(
                plan=order.plan,
                cluster=self._cluster(),
                next_host=self._mesh.host_of(after),
                next_port=order.port,
            )
        )
