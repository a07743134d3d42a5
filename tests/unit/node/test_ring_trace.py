"""Traces of a stage reach the Macs that asked, and another Mac's clock is converted."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import NotLoaded
from core.node.base.node_message import NodeMessage
from core.node.peers.clock_difference import clock_difference
from core.node.peers.worker_state import WorkerState
from core.node.ring.messages import ClockReply, ClockRequest, PeerTraceRequest, TraceReply
from core.node.ring.ring_trace import Tracing
from core.node.ring.worker_supervisor import WorkerReported
from core.requests.trace import PhaseTurn, TraceRequest
from core.worker.messages import Command, TracedPhases, TracePhases
from tests.support.contexts import context_of
from tests.support.plans import mac_id, plan_of
from tests.support.waiting import until

TURN = PhaseTurn(1, "step", 0.5, 0.75, ((12, 0.75),))


@given(ahead_s=st.floats(-1e6, 1e6), out_s=st.floats(0, 1), home_s=st.floats(0, 1), sent_s=st.floats(0, 1e6))
def test_a_clock_is_as_far_ahead_as_is_said_give_or_take_the_error(
    ahead_s: float, out_s: float, home_s: float, sent_s: float
) -> None:
    found = clock_difference(sent_s, sent_s + out_s + ahead_s, sent_s + out_s + home_s)
    assert abs(found.ahead_s - ahead_s) <= found.error_s + 1e-6
    assert found.error_s == pytest.approx((out_s + home_s) / 2, abs=1e-6)


class Member:
    """A Mac with a stage in a plan that mac 0 leads; links and worker are simulated."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, NodeMessage]] = []
        self.commands: list[Command] = []
        self.node, self.worker = context_of(own_id=mac_id(1)), WorkerState()
        self.worker.plan = plan_of(2)
        edges: Any = self
        self.tracing = Tracing(self.node, edges, edges, self.worker)

    def send(self, *said: Any) -> Any:
        """Send at once to the worker; a message to another Mac must be awaited."""
        if len(said) == 1:
            self.commands.append(cast(Command, said[0]))
            return None
        return self._sent(*said)

    async def _sent(self, device_id: str, message: NodeMessage) -> bool:
        self.sent.append((device_id, message))
        return True


async def test_only_the_head_is_told_what_a_stage_does() -> None:
    member = Member()
    await member.tracing.handle_message(mac_id(2), PeerTraceRequest(number=5, is_on=True))
    await member.tracing.handle_message(mac_id(0), PeerTraceRequest(number=7, is_on=True))
    await until(lambda: bool(member.commands))
    # while the worker's reply is awaited
    await member.tracing.handle_message(mac_id(0), PeerTraceRequest(number=8, is_on=True))
    assert member.commands == [TracePhases(is_on=True)]
    member.node.signals.emit(WorkerReported(TracedPhases(turns=(TURN,))))
    await until(lambda: bool(member.sent))
    assert member.sent == [(mac_id(0), TraceReply(number=7, turns=(TURN,)))]


async def test_a_clock_is_told_and_what_nobody_asked_for_is_nothing() -> None:
    member = Member()
    await member.tracing.handle_message(mac_id(0), ClockRequest(number=3))
    ((to, told),) = member.sent
    assert isinstance(told, ClockReply)
    assert (to, told.number) == (mac_id(0), 3)
    await member.tracing.handle_message(mac_id(0), TraceReply(number=3, turns=(TURN,)))
    member.node.signals.emit(WorkerReported(TracedPhases(turns=(TURN,))))
    assert len(member.sent) == 1


async def test_without_a_plan_of_its_own_a_mac_traces_nothing() -> None:
    with pytest.raises(NotLoaded):
        await Member().tracing.trace(TraceRequest())
