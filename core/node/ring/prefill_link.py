"""The head's side of the prefill Mac: it loads once the ring runs, and again some time after a loss.

The ring does not wait for it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from core.errors import MaclusterError, Problem
from core.events import Plan
from core.node.base.context import NodeContext
from core.node.peers.mesh import Mesh
from core.node.ring.layer_ownership import first_fault
from core.node.ring.messages import Checked, LinkUp, Prepared, PrepareStage, Release, Reported, StageLost, StageWord
from core.node.ring.plan_member import PlanMember
from core.plan.prefill import prefill_plan
from core.rates import BackOff
from core.worker.messages import Failed, LinkBroken, Loaded, PrefillBroken, PrefillLinked

BACK_OFF_S: Final = (2.0, 5.0, 15.0, 60.0)


class _ReaderState:
    """The prefill Mac's reports about `plan`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.port = 0
        self.loaded: Loaded | None = None
        self.files: dict[str, str] = {}
        self.is_linked = False


class PrefillLink:
    """Keeps the prefill Mac of the running plan linked."""

    def __init__(self, node: NodeContext, mesh: Mesh, member: PlanMember) -> None:
        self._device_id, self._journal, self._tasks = node.own_id, node.journal, node.tasks
        self._mesh, self._member = mesh, member
        self._ring: Plan | None = None
        self._directory = Path()
        self._now: _ReaderState | None = None
        self._back_off = BackOff(BACK_OFF_S)
        self.last_gen = 0  # the latest generation of a plan that the other Mac got

    async def begin(self, ring: Plan, directory: Path) -> None:
        """Start when the ring of that plan runs. Renewed links change nothing here."""
        if self._ring and self._ring.prefill == ring.prefill and self._ring.fingerprint == ring.fingerprint:
            return
        self._ring, self._directory = ring, directory
        self._back_off.reset()
        self.last_gen = max(self.last_gen, ring.plan_gen)
        if ring.prefill:
            await self._ask(ring)

    async def end(self, reason: str, *, stays: bool = False) -> None:
        now, self._now, self._ring = self._now, None, None
        if now:
            self._member.unlink_prefill()
            if not stays:
                await self._mesh.send(_mac(now.plan), Release(plan_gen=now.plan.plan_gen, reason=reason))

    async def came(self, device_id: str) -> None:
        if self._ring and self._ring.prefill and self._ring.prefill.stage.device_id == device_id and not self._now:
            await self._ask(self._ring)

    async def lost(self, device_id: str, problem: Problem) -> None:
        if self._now and _mac(self._now.plan) == device_id:
            self._give_up(self._now, problem)

    async def handle_message(self, device_id: str, message: StageWord) -> None:
        """Take a message of the prefill Mac; others and old ones are ignored."""
        now = self._now
        if now is None or device_id != _mac(now.plan) or message.plan_gen != now.plan.plan_gen:
            return
        match message:
            case Prepared(port=port):
                now.port = port
            case Checked(files=files):
                now.files = files
            case Reported(report=Loaded() as loaded):
                now.loaded = loaded
            case Reported(report=Failed(problem=problem) | LinkBroken(problem=problem)) | StageLost(problem=problem):
                self._give_up(now, problem)
                return
        if now.port and now.files and now.loaded and not now.is_linked:
            now.is_linked = True
            await self._link(now, now.loaded)

    def reported(self, report: PrefillLinked | PrefillBroken) -> None:
        now = self._now
        if now is None or report.plan_gen != now.plan.plan_gen or self._ring is None or self._ring.prefill is None:
            return
        if isinstance(report, PrefillBroken):
            self._give_up(now, report.problem)
            return
        self._back_off.reset()
        least = self._ring.prefill.least
        self._journal.info(f"{now.plan.stages[1].peer} prefills prompts of {least} tokens or more.")

    async def _ask(self, ring: Plan) -> None:
        self.last_gen += 1
        self._now = now = _ReaderState(prefill_plan(ring, self.last_gen))
        if not await self._mesh.send(_mac(now.plan), PrepareStage.of(now.plan, 1)):
            self._now = None  # requested again when it connects

    async def _link(self, now: _ReaderState, loaded: Loaded) -> None:
        mac = _mac(now.plan)
        try:
            files = {self._device_id: await self._member.files_in(self._directory), mac: now.files}
            problem = first_fault(now.plan, {mac: loaded}, files)
            port = await self._member.port()
        except MaclusterError as error:
            problem, port = error.problem, 0
        if now is not self._now:
            return
        if problem:
            self._give_up(now, problem)
            return
        await self._mesh.send(mac, LinkUp.of(now.plan, port))
        self._member.link_prefill(now.plan, LinkUp.of(now.plan, now.port))

    def _give_up(self, now: _ReaderState, problem: Problem) -> None:
        self._now = None
        self._member.unlink_prefill()
        self._journal.warn(f"{now.plan.stages[1].peer} can't prefill now; the ring does: {problem.what}")
        wait_s = self._back_off.failed()
        self._tasks.spawn("Requesting a prefill Mac again", self._ask_later(self._ring, wait_s))

    async def _ask_later(self, ring: Plan | None, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        if ring and ring is self._ring and not self._now:
            await self._ask(ring)


def _mac(plan: Plan) -> str:
    return plan.stages[1].device_id
