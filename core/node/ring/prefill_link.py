"""The head's side of the prefill Mac: it loads once the ring runs, and again some time after a loss.

The ring does not wait for it.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Final

from core.errors import MaclusterError, Problem
from core.events import Plan
from core.node.base.context import NodeContext
from core.node.peers.mesh import Mesh
from core.node.peers.stage_state import HeldStage, PlanId, files_hash
from core.node.ring.layer_ownership import first_fault, other_file
from core.node.ring.messages import FilesReply, FilesRequest, LinkUp, PrepareStage, Release
from core.node.ring.plan_member import PlanMember
from core.plan.prefill import prefill_plan
from core.rates import BackOff
from core.worker.messages import PrefillBroken, PrefillLinked

BACK_OFF_S: Final = (2.0, 5.0, 15.0, 60.0)


class _ReaderState:
    """The prefill Mac's reports about `plan`."""

    def __init__(self, plan: Plan, plan_id: PlanId) -> None:
        self.plan, self.id, self.mac = plan, plan_id, plan.stages[1].device_id
        self.files: dict[str, str] | None = None  # if they aren't the same as this Mac's
        self.stage: HeldStage | None = None
        self.is_linking = False


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
                await self._mesh.send(now.mac, Release(plan_gen=now.plan.plan_gen, reason=reason))

    async def came(self, device_id: str) -> None:
        if self._ring and self._ring.prefill and self._ring.prefill.stage.device_id == device_id and not self._now:
            await self._ask(self._ring)

    async def lost(self, device_id: str, problem: Problem) -> None:
        if self._now and self._now.mac == device_id:
            self._give_up(self._now, problem)

    def heard(self, device_id: str, stage: HeldStage) -> None:
        """Take what the prefill Mac says about its stage; others and old plans are ignored."""
        now = self._now
        if now is None or device_id != now.mac or stage.plan != now.id or stage == now.stage:
            return
        now.stage = stage
        if stage.problem:
            self._give_up(now, stage.problem)
        elif stage.port and stage.files and stage.loaded and not now.is_linking:
            now.is_linking = True
            self._tasks.spawn("Linking a prefill Mac", self._link(now, stage))

    def take_files(self, device_id: str, reply: FilesReply) -> None:
        now = self._now
        if now and now.stage and device_id == now.mac and reply.plan == now.id:
            now.files = reply.files
            self._tasks.spawn("Linking a prefill Mac", self._link(now, now.stage))

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
        plan_id = PlanId(self._device_id, secrets.randbits(32))
        self._now = now = _ReaderState(prefill_plan(ring, self.last_gen), plan_id)
        if not await self._mesh.send(now.mac, PrepareStage.of(now.plan, 1, plan_id.number)):
            self._now = None  # requested again when it connects

    async def _link(self, now: _ReaderState, stage: HeldStage) -> None:
        port, number = 0, now.id.number
        try:
            own = await self._member.files_in(self._directory)
            if now.files is None and files_hash(own) != stage.files:
                await self._mesh.send(now.mac, FilesRequest(plan=now.id))
                return
            fault = first_fault(now.plan, {now.mac: stage.loaded} if stage.loaded else {})
            problem = fault.problem if fault else other_file(now.plan, now.mac, own, now.files or own)
            port = await self._member.port()
        except MaclusterError as error:
            problem = error.problem
        if now is not self._now:
            return
        if problem:
            self._give_up(now, problem)
            return
        await self._mesh.send(now.mac, LinkUp.of(now.plan, port, number))
        self._member.link_prefill(now.plan, LinkUp.of(now.plan, stage.port, number))

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
