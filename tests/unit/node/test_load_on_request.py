"""A request for another model on disk loads it if the person allows that, and ends no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from core.errors import DoesNotFit
from core.events import PlanFailed, PlanProposed, PlanUnloaded
from core.node.config import ApiOptions
from core.node.public_api import api_answers, http_bodies
from tests.support.answers import ROWS, model
from tests.support.api import ServedHarness, served_harness
from tests.support.waiting import until

__all__ = ["model"]  # a fixture

TINY = "tiny"


@pytest_asyncio.fixture
async def harness(tmp_path: Path, model: Path) -> AsyncIterator[ServedHarness]:
    async with served_harness(tmp_path, model, ApiOptions(port=0, allow_load=True)) as harness:
        harness.disk = (f"one/{TINY}", "two/large", "a/twin", "b/twin")
        harness.loaded(TINY)
        yield harness


@pytest.mark.promise("T9")
async def test_what_may_be_loaded_is_listed_and_another_name_is_told_what_there_is(harness: ServedHarness) -> None:
    listed = (await harness.asker.get("/models")).json()["data"]
    assert [each["id"] for each in listed] == [TINY, "large"]
    assert harness.worker.led
    context = harness.worker.led.context
    names = ("max_input_tokens", "max_tokens", "max_model_len", "context_length", "context_window")
    assert [[each.get(name) for name in names] for each in listed] == [[context] * 5, [None] * 5]
    assert listed[0]["capabilities"]
    assert (await harness.asker.get("/models/large")).status_code == 200
    for name in ("huge", "twin", "two/large", "/etc", "../large"):
        told = await harness.chat(model=name)
        assert (told.status_code, told.json()["error"]["code"]) == (404, "model_not_found")
        assert f"Use one of {TINY}, large." in told.text
    asked = {"model": "large", "messages": [{"role": "user", "content": "hello"}]}
    for path, body in (("/messages/count_tokens", asked), ("/completions", {**asked, "prompt": [5], "echo": True})):
        refused = await harness.asker.post(path, json=body)
        assert (refused.status_code, "large is not loaded yet" in refused.text) == (400, True)
    assert not harness.loads


async def test_it_is_loaded_once_nobody_is_answered_and_whoever_wants_the_old_one_waits_behind(
    harness: ServedHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_answers, "KEEP_ALIVE_S", 0.05)
    monkeypatch.setattr(http_bodies, "QUIET_S", 0.01)
    before = asyncio.create_task(harness.chat(model=TINY))
    await until(lambda: len(harness.asked) == 1)
    body: dict[str, Any] = {"model": "large", "messages": [{"role": "user", "content": "hello"}], "stream": True}
    async with harness.asker.stream("POST", "/chat/completions", json=body) as streamed:
        lines = aiter(streamed.aiter_lines())
        while await anext(lines) != ": still there":
            pass
        also = asyncio.create_task(harness.chat(model="large"))
        await until(lambda: len(harness.waiting()) == 2)
        after = asyncio.create_task(harness.chat(model=TINY))
        await until(lambda: len(harness.waiting()) == 3)
        assert not harness.loads
        harness.ends(harness.asked[0])
        await before
        monkeypatch.setattr(api_answers, "SILENT_S", 0.0)  # a load may take longer than any answer may be silent
        await until(lambda: harness.loads == ["large"])
        while await anext(lines) != ": still there":
            pass
        assert len(harness.asked) == 1
        monkeypatch.setattr(api_answers, "SILENT_S", 120.0)
        harness.loaded("large")
        await until(lambda: len(harness.asked) == 1 + ROWS)
        for request in harness.asked[1:]:
            harness.ends(request)
        assert '"model":"large"' in "".join([line async for line in lines])
    assert [(await task).json()["model"] for task in (before, also)] == [TINY, "large"]
    await until(lambda: harness.loads == ["large", TINY])
    harness.loaded(TINY)
    await until(lambda: len(harness.asked) == 2 + ROWS)
    harness.ends(harness.asked[-1])
    assert (await after).json()["model"] == TINY


async def test_what_cannot_be_loaded_is_told_and_no_answer_of_the_person_is_ended_by_it(harness: ServedHarness) -> None:
    own = await harness.ask()
    busy = await harness.chat(model="large")
    assert (busy.status_code, "large can't be loaded yet" in busy.text, harness.loads) == (429, True, [])
    harness.ends(own)
    await harness.done(own)
    failing = asyncio.create_task(harness.chat(model="large"))
    await until(lambda: harness.loads == ["large"])
    plan = harness.worker.led
    assert plan
    harness.bus.publish(PlanFailed(plan_gen=1, problem=DoesNotFit("That one is over.").problem))
    harness.bus.publish(PlanProposed(plan=plan))
    harness.bus.publish(PlanFailed(plan_gen=plan.plan_gen, problem=DoesNotFit("It needs more.").problem))
    assert "It needs more." in (await failing).text
    harness.bus.publish(PlanUnloaded(plan_gen=plan.plan_gen))
    nothing = await harness.chat()
    assert (nothing.status_code, "No model is loaded" in nothing.text) == (503, True)
    assert (await harness.chat(model="huge")).status_code == 404
    asking = [asyncio.create_task(harness.chat(model="large")) for _ in range(ROWS)]
    await until(lambda: len(harness.loads) == 2 and len(harness.waiting()) == ROWS - 1)
    harness.loaded("large")
    await until(lambda: len(harness.asked) == 1 + ROWS)
    for request in harness.asked[1:]:
        harness.ends(request)
    assert [(await task).status_code for task in asking] == [200] * ROWS


async def test_without_the_option_nothing_is_loaded_by_request(tmp_path: Path, model: Path) -> None:
    async with served_harness(tmp_path, model) as harness:
        harness.disk = ("two/large",)
        assert len((await harness.asker.get("/models")).json()["data"]) == 1
        assert (await harness.chat(model="large")).status_code == 404
        assert not harness.loads
