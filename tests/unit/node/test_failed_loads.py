"""Why a load failed stays in the log, also where its command was answered with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import DoesNotFit
from core.events import PlanLoaded, PlanProposed
from core.link.frames import FrameType
from core.node.peers.mesh import MessageRefused
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.plan_leader import PlanLost
from core.requests.plans import LoadRequest
from tests.support.answers import AnswersHarness, model
from tests.support.waiting import until

__all__ = ["model"]  # a fixture

WHY = DoesNotFit("It needs 3.1 GB more on a.", "Free memory there.")


class Refusing:
    """Planning that finds no room."""

    async def plan(self, request: LoadRequest) -> Any:
        raise WHY


async def test_why_a_model_was_not_loaded_is_logged(tmp_path: Path, model: Path) -> None:
    harness = await AnswersHarness(tmp_path, model).load()
    planning: Any = Refusing()
    nothing: Any = None
    driver = RecoveryDriver(harness.node, planning, nothing, harness.leader, harness.answers, nothing)
    with pytest.raises(DoesNotFit):
        await driver.load(LoadRequest(model="large"))
    assert harness.bus.now.logs[-1].text == "large was not loaded: It needs 3.1 GB more on a. Free memory there."


async def test_a_plan_that_failed_says_whether_it_ever_ran(tmp_path: Path, model: Path) -> None:
    for is_ready, how in ((False, "was not loaded"), (True, "no longer runs")):
        harness = await AnswersHarness(tmp_path / how, model).load()
        plan = harness.leader.plan
        assert plan
        harness.bus.publish(PlanProposed(plan=plan))
        if is_ready:
            harness.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))
        harness.leader.fail(WHY.problem)
        assert harness.bus.now.logs[-1].text == f"{plan.model} {how}: It needs 3.1 GB more on a."


async def test_an_order_that_a_mac_does_not_understand_ends_the_plan_with_the_reason(
    tmp_path: Path, model: Path
) -> None:
    harness = await AnswersHarness(tmp_path, model).load()
    plan, lost = harness.leader.plan, list[PlanLost]()
    assert plan
    harness.node.signals.on(PlanLost, lost.append)
    for frame in (FrameType.KEY_CHANGE, FrameType.PLAN):
        harness.node.signals.emit(MessageRefused(plan.head.device_id, frame, WHY.problem))
    await until(lambda: bool(lost))
    assert [one.problem.what for one in lost] == [f"{plan.head.peer}: {WHY.what}"]
