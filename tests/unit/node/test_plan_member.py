"""The stage that this Mac holds for another head."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from core.node.base.tasks import Tasks
from core.node.peers.worker_state import WorkerState
from core.node.ring.messages import LinkUp, PrepareStage, StageReport
from core.node.ring.plan_member import PlanMember
from core.worker.messages import LinkBroken
from tests.support.plans import PROBLEM, mac_id, plan_of
from tests.support.waiting import until


async def nothing(*_: Any) -> Any:
    return None


def member_of(worker: WorkerState, **parts: Any) -> tuple[PlanMember, Tasks]:
    """A member whose Mac finds every model; `ready` waits for its worker, `send` takes what it tells other Macs."""
    others: Any = SimpleNamespace(
        send=parts.get("send", nothing), ensure=nothing, check=print, warn=print, error=print, emit=print
    )
    supervisor: Any = SimpleNamespace(send=print, replace=nothing, ready=parts.get("ready", nothing), begins=nothing)
    tasks = Tasks(others, asyncio.Event())
    node: Any = SimpleNamespace(
        own_id=mac_id(1),
        store=others,
        assessment=others,
        signals=others,
        journal=others,
        tasks=tasks,
        config=SimpleNamespace(key_limits=None),
    )
    models: Any = SimpleNamespace(find_same=nothing, manifest=nothing)
    return PlanMember(node, others, others, supervisor, worker, models, others), tasks


async def test_what_a_head_ordered_before_it_was_lost_is_not_prepared() -> None:
    can_load, worker = asyncio.Event(), WorkerState()
    member, tasks = member_of(worker, ready=can_load.wait)
    first = plan_of(2)
    preparing = asyncio.create_task(member.prepare(mac_id(0), PrepareStage.of(first, 1, 1)))
    async with asyncio.timeout(60):
        await until(lambda: worker.plan == first)
        await member.prepare(mac_id(0), PrepareStage.of(replace(first, plan_gen=first.plan_gen + 1), 1, 2))
        member.head_lost(mac_id(0), "it ended")
        can_load.set()
        await preparing
    assert worker.plan == first
    assert member._letting_go
    await tasks.stop()


@pytest.mark.parametrize("own", ["begins", "led"])
async def test_a_mac_that_loads_a_plan_of_its_own_takes_no_stage_that_it_would_take_away_again(own: str) -> None:
    worker, told = WorkerState(), list[StageReport]()

    async def send(_: str, message: StageReport) -> None:
        told.append(message)

    member, tasks = member_of(worker, send=send)
    setattr(worker, own, plan_of(1))
    await member.prepare(mac_id(0), PrepareStage.of(plan_of(2), 1))
    assert (worker.plan, [(one.stage.phase, one.stage.problem and one.stage.problem.kind) for one in told]) == (
        None,
        [("lost", "Busy")],
    )
    await tasks.stop()


async def test_an_order_that_is_given_again_is_only_answered_again() -> None:
    worker, told = WorkerState(), list[StageReport]()

    async def send(_: str, message: StageReport) -> None:
        told.append(message)

    async def ready() -> int:
        return 4718

    member, tasks = member_of(worker, send=send, ready=ready)
    order, plan = PrepareStage.of(plan_of(2), 1, 7), plan_of(2)
    await member.prepare(mac_id(0), order)
    prepared = worker.stages[mac_id(0)]
    assert (prepared.port, worker.plan) == (4718, plan)
    held, before = worker.plan, len(told)
    await member.prepare(mac_id(0), order)
    assert worker.plan is held, "it began again"
    assert told[before:] == [StageReport(stage=prepared)]
    await member.link(mac_id(0), LinkUp.of(plan, 4719, 7))
    linking = worker.stages[mac_id(0)]
    await member.reported(LinkBroken(plan_gen=plan.plan_gen, problem=PROBLEM))
    await member.link(mac_id(0), LinkUp.of(plan, 4719, 7))
    assert (linking.phase, worker.stages[mac_id(0)].phase) == ("loaded", "broken"), "these links were ordered before"
    await tasks.stop()
