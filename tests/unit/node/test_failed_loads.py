"""Why a load failed stays in the log, also where its command was answered with it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from core.errors import DoesNotFit
from core.events import PlanLoaded
from core.link.frames import FrameType
from core.node.peers.mesh import MessageRefused
from core.node.plans.driver import PlanDriver
from core.node.ring.planning import Planned
from core.node.ring.prefill_link import PrefillLink
from core.requests.plans import LoadRequest
from tests.support.answers import AnswersHarness, model
from tests.support.plans import mac_id, plan_of

__all__ = ["model"]  # a fixture

WHY = DoesNotFit("It needs 3.1 GB more on a.", "Free memory there.")


class Refusing:
    """Planning that finds no room."""

    async def plan(self, request: LoadRequest) -> Any:
        raise WHY


def driver_of(harness: AnswersHarness, planning: Any = None) -> PlanDriver:
    """A driver of plans without Macs."""
    others: Any = SimpleNamespace(
        stop=print, steps=lambda _: None, send=AsyncMock(), is_compared=AsyncMock(return_value=True)
    )
    return PlanDriver(
        harness.node,
        others,
        others,
        harness.worker,
        AsyncMock(),
        planning,
        others,
        PrefillLink(harness.node, others, others),
        harness.answers,
        others,
    )


async def test_why_a_model_was_not_loaded_is_logged(tmp_path: Path, model: Path) -> None:
    harness = await AnswersHarness(tmp_path, model).load()
    with pytest.raises(DoesNotFit):
        await driver_of(harness, Refusing()).load(LoadRequest(model="large"))
    assert harness.bus.now.logs[-1].text == "large was not loaded: It needs 3.1 GB more on a. Free memory there."


async def test_a_plan_that_failed_says_whether_it_ever_ran(tmp_path: Path, model: Path) -> None:
    for is_ready, how in ((False, "was not loaded"), (True, "no longer runs")):
        harness = await AnswersHarness(tmp_path / how, model).load()
        driver, plan = driver_of(harness), plan_of(2)
        await driver._lead(Planned(plan, tmp_path, verify=False))
        if is_ready:
            harness.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))
        await driver.lost(mac_id(1), WHY.problem)
        assert harness.bus.now.plan_problem == WHY.problem
        assert [line.text for line in harness.bus.now.logs][-1] == f"{plan.model} {how}: It needs 3.1 GB more on a."


async def test_an_order_that_a_mac_does_not_understand_ends_the_plan_with_the_reason(
    tmp_path: Path, model: Path
) -> None:
    harness = await AnswersHarness(tmp_path, model).load()
    driver, plan = driver_of(harness), plan_of(2)
    await driver._lead(Planned(plan, tmp_path, verify=False))
    driver.refused(MessageRefused(plan.head.device_id, FrameType.KEY_CHANGE, WHY.problem))
    assert harness.bus.now.plan_problem is None
    driver.refused(MessageRefused(plan.head.device_id, FrameType.PLAN, WHY.problem))
    assert harness.bus.now.plan_problem
    assert harness.bus.now.plan_problem.what == f"{plan.head.peer}: {WHY.what}"
