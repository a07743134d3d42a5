"""A request for another model on disk loads it if the person allows that, and ends no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from anthropic.types import ModelInfo

from core.errors import DoesNotFit
from core.events import PlanFailed, PlanProposed, PlanUnloaded
from core.node.config import ApiOptions
from core.node.public_api import api_answers, http_bodies
from tests.support.answers import ROWS, model
from tests.support.api import ServedDesk, served_desk
from tests.support.waiting import until

__all__ = ["model"]  # a fixture

TINY = "tiny"


@pytest_asyncio.fixture
async def desk(tmp_path: Path, model: Path) -> AsyncIterator[ServedDesk]:
    async with served_desk(tmp_path, model, ApiOptions(port=0, allow_load=True)) as desk:
        desk.disk = (f"one/{TINY}", "two/large", "a/twin", "b/twin")
        desk.loaded(TINY)
        yield desk


@pytest.mark.promise("T9")
async def test_what_may_be_loaded_is_listed_and_another_name_is_told_what_there_is(desk: ServedDesk) -> None:
    listed = (await desk.asker.get("/models")).json()["data"]
    assert [each["id"] for each in listed] == [TINY, "large"]
    assert desk.leader.plan
    context = desk.leader.plan.context
    names = ("max_input_tokens", "max_tokens", "max_model_len", "context_length", "context_window")
    assert [[each.get(name) for name in names] for each in listed] == [[context] * 5, [None] * 5]
    assert ModelInfo.model_validate(listed[0]).capabilities
    assert (await desk.asker.get("/models/large")).status_code == 200
    for name in ("huge", "twin", "two/large", "/etc", "../large"):
        told = await desk.chat(model=name)
        assert (told.status_code, told.json()["error"]["code"]) == (404, "model_not_found")
        assert f"Use one of {TINY}, large." in told.text
    asked = {"model": "large", "messages": [{"role": "user", "content": "hello"}]}
    for path, body in (("/messages/count_tokens", asked), ("/completions", {**asked, "prompt": [5], "echo": True})):
        refused = await desk.asker.post(path, json=body)
        assert (refused.status_code, "large is not loaded yet" in refused.text) == (400, True)
    assert not desk.loads


async def test_it_is_loaded_once_nobody_is_answered_and_whoever_wants_the_old_one_waits_behind(
    desk: ServedDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_answers, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(http_bodies, "QUIET_S", 0.01)
    before = asyncio.create_task(desk.chat(model=TINY))
    await until(lambda: len(desk.asked) == 1)
    body: dict[str, Any] = {"model": "large", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    async with desk.asker.stream("POST", "/chat/completions", json=body) as streamed:
        lines = aiter(streamed.aiter_lines())
        while await anext(lines) != ": still there":
            pass
        also = asyncio.create_task(desk.chat(model="large"))
        await until(lambda: len(desk.waiting()) == 2)
        after = asyncio.create_task(desk.chat(model=TINY))
        await until(lambda: len(desk.waiting()) == 3)
        assert not desk.loads
        desk.ends(desk.asked[0])
        await before
        monkeypatch.setattr(api_answers, "SILENT_S", 0.0)  # a load may take longer than any answer may be silent
        await until(lambda: desk.loads == ["large"])
        while await anext(lines) != ": still there":
            pass
        assert len(desk.asked) == 1
        monkeypatch.setattr(api_answers, "SILENT_S", 120.0)
        desk.loaded("large")
        await until(lambda: len(desk.asked) == 1 + ROWS)
        for request in desk.asked[1:]:
            desk.ends(request)
        assert '"model":"large"' in "".join([line async for line in lines])
    assert [(await task).json()["model"] for task in (before, also)] == [TINY, "large"]
    await until(lambda: desk.loads == ["large", TINY])
    desk.loaded(TINY)
    await until(lambda: len(desk.asked) == 2 + ROWS)
    desk.ends(desk.asked[-1])
    assert (await after).json()["model"] == TINY


async def test_what_cannot_be_loaded_is_told_and_no_answer_of_the_person_is_ended_by_it(desk: ServedDesk) -> None:
    own = await desk.ask()
    busy = await desk.chat(model="large")
    assert (busy.status_code, "large can't be loaded yet" in busy.text, desk.loads) == (429, True, [])
    desk.ends(own)
    await desk.done(own)
    failing = asyncio.create_task(desk.chat(model="large"))
    await until(lambda: desk.loads == ["large"])
    plan = desk.leader.plan
    assert plan
    desk.bus.publish(PlanFailed(plan_gen=1, problem=DoesNotFit("That one is over.").problem))
    desk.bus.publish(PlanProposed(plan=plan))
    desk.bus.publish(PlanFailed(plan_gen=plan.plan_gen, problem=DoesNotFit("It needs more.").problem))
    assert "It needs more." in (await failing).text
    desk.bus.publish(PlanUnloaded(plan_gen=plan.plan_gen))
    nothing = await desk.chat()
    assert (nothing.status_code, "No model is loaded" in nothing.text) == (503, True)
    assert (await desk.chat(model="huge")).status_code == 404
    asking = [asyncio.create_task(desk.chat(model="large")) for _ in range(ROWS)]
    await until(lambda: len(desk.loads) == 2 and len(desk.waiting()) == ROWS - 1)
    desk.loaded("large")
    await until(lambda: len(desk.asked) == 1 + ROWS)
    for request in desk.asked[1:]:
        desk.ends(request)
    assert [(await task).status_code for task in asking] == [200] * ROWS


async def test_without_the_option_nothing_is_loaded_by_request(tmp_path: Path, model: Path) -> None:
    async with served_desk(tmp_path, model) as desk:
        desk.disk = ("two/large",)
        assert len((await desk.asker.get("/models")).json()["data"]) == 1
        assert (await desk.chat(model="large")).status_code == 404
        assert not desk.loads
