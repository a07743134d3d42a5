"""The stage that this Mac holds for another head."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from core.node.base.tasks import Tasks
from core.node.peers.worker_state import WorkerState
from core.node.ring.messages import PrepareStage
from core.node.ring.plan_member import PlanMember
from tests.support.plans import mac_id, plan_of
from tests.support.waiting import until


async def test_what_a_head_ordered_before_it_was_lost_is_not_prepared() -> None:
    async def nothing(*_: Any) -> Any:
        return None

    can_load, worker = asyncio.Event(), WorkerState()
    others: Any = SimpleNamespace(send=nothing, ensure=nothing, check=print, warn=print, error=print, emit=print)
    supervisor: Any = SimpleNamespace(send=print, replace=nothing, ready=can_load.wait, begins=nothing)
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
    member = PlanMember(node, others, others, supervisor, worker, models, others)
    first = plan_of(2)
    preparing = asyncio.create_task(member.prepare(mac_id(0), PrepareStage.of(first, 1)))
    async with asyncio.timeout(60):
        await until(lambda: worker.plan == first)
        await member.prepare(mac_id(0), PrepareStage.of(replace(first, plan_gen=first.plan_gen + 1), 1))
        member.head_lost(mac_id(0), "it ended")
        can_load.set()
        await preparing
    assert worker.plan == first
    assert member._letting_go
    await tasks.stop()
