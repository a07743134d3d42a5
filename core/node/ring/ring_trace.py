"""Traces all stages of this Mac's plan for some seconds, phase by phase, and this Mac's own stage for another head."""

from __future__ import annotations

import asyncio
from itertools import count
from time import monotonic
from typing import Final, TypeVar

from core.errors import Busy, LinkLost, LinkTimeout, NotLoaded, WorkerDied
from core.events import Plan, Stage
from core.node.base.context import NodeContext
from core.node.peers.clock_difference import ClockDifference, clock_difference
from core.node.peers.mesh import Mesh
from core.node.peers.worker_state import WorkerState
from core.node.ring.messages import ClockReply, ClockRequest, PeerTraceRequest, TraceMessage, TraceReply
from core.node.ring.worker_supervisor import Supervisor, WorkerReported
from core.requests.trace import MOST_STEPS, PhaseTurn, StageTrace, TraceRequest, TraceResult
from core.worker.messages import TracedPhases, TracePhases

PINGS: Final = 8
ANSWER_S: Final = 10.0

_T = TypeVar("_T", ClockReply, TraceReply)


class Tracing:
    """One trace at a time; only the head of a plan may trace its stages."""

    def __init__(self, node: NodeContext, mesh: Mesh, supervisor: Supervisor, worker: WorkerState) -> None:
        self._own_id, self._tasks, self._mesh = node.own_id, node.tasks, mesh
        self._supervisor, self._worker = supervisor, worker
        self._numbers = count(1)
        self._asked: dict[tuple[str, int], asyncio.Future[ClockReply | TraceReply]] = {}
        self._turns: asyncio.Future[tuple[PhaseTurn, ...]] | None = None
        self._is_tracing = False
        node.signals.on(WorkerReported, self._worker_reported)

    async def trace(self, request: TraceRequest) -> TraceResult:
        """Trace for `request.seconds`. Raises NotLoaded, Busy, LinkLost, LinkTimeout, or WorkerDied."""
        plan = self._worker.led
        if plan is None or not self._worker.is_ready:
            raise NotLoaded("This Mac leads no loaded model.", "Load one here, or trace on the Mac that leads it.")
        if self._is_tracing:
            raise Busy("Another trace is running.")
        self._is_tracing = True
        try:
            try:
                await asyncio.gather(*(self._next(plan, stage, is_on=True) for stage in plan.stages))
                clocks = [await self._clock(stage) for stage in plan.stages]
                await asyncio.sleep(request.seconds)
            finally:
                last = [self._next(plan, stage, is_on=False) for stage in plan.stages]
                first = await asyncio.gather(*last, return_exceptions=True)
            stages = []
            for index, (stage, begun, clock) in enumerate(zip(plan.stages, first, clocks, strict=True)):
                if isinstance(begun, BaseException):
                    raise begun
                turns = await self._rest(plan, stage, begun)
                reply = StageTrace(
                    mac=stage.peer, index=index, turns=turns, ahead_s=clock.ahead_s, error_s=clock.error_s
                )
                stages.append(reply)
            return TraceResult(model=plan.name, seconds=request.seconds, stages=tuple(stages))
        finally:
            self._is_tracing = False

    async def handle_message(self, device_id: str, message: TraceMessage) -> None:
        plan = self._worker.plan
        match message:
            case ClockRequest(number=number):
                await self._mesh.send(device_id, ClockReply(number=number, at_s=monotonic()))
            case PeerTraceRequest() if self._turns is None and plan and plan.head.device_id == device_id:
                self._tasks.spawn("Reporting a trace", self._reply(device_id, message))
            case ClockReply(number=number) | TraceReply(number=number):
                waiting = self._asked.get((device_id, number))
                if waiting and not waiting.done():
                    waiting.set_result(message)

    async def _reply(self, device_id: str, asked: PeerTraceRequest) -> None:
        try:
            turns = await self._own_turns(is_on=asked.is_on)
        except WorkerDied:
            return  # its end is reported elsewhere
        await self._mesh.send(device_id, TraceReply(number=asked.number, turns=turns))

    async def _rest(self, plan: Plan, stage: Stage, begun: tuple[PhaseTurn, ...]) -> tuple[PhaseTurn, ...]:
        turns = more = begun
        while more and len(turns) < MOST_STEPS:
            more = await self._next(plan, stage, is_on=False)
            turns += more
        return turns

    async def _next(self, plan: Plan, stage: Stage, *, is_on: bool) -> tuple[PhaseTurn, ...]:
        if stage.device_id == self._own_id:
            return await self._own_turns(is_on=is_on)
        asked = PeerTraceRequest(number=next(self._numbers), is_on=is_on)
        return (await self._answer(stage, asked, TraceReply)).turns

    async def _clock(self, stage: Stage) -> ClockDifference:
        if stage.device_id == self._own_id:
            return ClockDifference(0.0, 0.0)
        found = []
        for _ in range(PINGS):
            sent_s = monotonic()
            reply = await self._answer(stage, ClockRequest(number=next(self._numbers)), ClockReply)
            found.append(clock_difference(sent_s, reply.at_s, monotonic()))
        return min(found, key=lambda difference: difference.error_s)

    async def _answer(self, stage: Stage, asked: ClockRequest | PeerTraceRequest, kind: type[_T]) -> _T:
        key = stage.device_id, asked.number
        waiting = self._asked[key] = asyncio.get_running_loop().create_future()
        try:
            if not await self._mesh.send(stage.device_id, asked):
                raise LinkLost(f"{stage.peer} is not connected.", "Trace again when the model is ready.")
            async with asyncio.timeout(ANSWER_S):
                reply = await waiting
        except TimeoutError:
            raise LinkTimeout(f"{stage.peer} did not send its trace within {ANSWER_S:.0f} s.") from None
        finally:
            del self._asked[key]
        if not isinstance(reply, kind):
            raise LinkLost(f"{stage.peer} sent an unexpected reply.", "Trace again.")
        return reply

    async def _own_turns(self, *, is_on: bool) -> tuple[PhaseTurn, ...]:
        if self._turns:
            raise Busy("Another Mac is tracing this stage.")
        self._turns = asyncio.get_running_loop().create_future()
        try:
            self._supervisor.send(TracePhases(is_on=is_on))
            async with asyncio.timeout(ANSWER_S):
                return await self._turns
        except TimeoutError:
            what = f"The worker of this Mac did not send its trace within {ANSWER_S:.0f} s."
            raise WorkerDied(what, "Trace again: it may have been busy.") from None
        finally:
            self._turns = None

    def _worker_reported(self, said: WorkerReported) -> None:
        if isinstance(said.report, TracedPhases) and self._turns and not self._turns.done():
            self._turns.set_result(said.report.turns)
