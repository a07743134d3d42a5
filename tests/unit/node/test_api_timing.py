"""The API's report of its own time, and a scenario's figures from it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from core.bench.scenarios.definitions import Scenario
from core.bench.scenarios.load_generator import AskedModel, measured
from core.bench.scenarios.report import LoadLevel, result
from core.engine.requests import Request
from core.node.public_api import api_answers
from core.node.public_api.request_fields import request_body
from core.worker.messages import Departed
from tests.support.answers import ROWS, model
from tests.support.api import KEY, ServedHarness, served_harness
from tests.support.waiting import until

__all__ = ["model"]  # a fixture

SCENARIO = Scenario(
    name="small", providers=(1,), users=1, requests=2, concurrency=1, max_tokens=5, streams=False, queue=9
)
SEALED_S = 0.0125


async def work(harness: ServedHarness) -> None:
    """Answer every request as the worker does."""
    for number in range(SCENARIO.requests):
        await until(lambda: len(harness.asked) > number)  # noqa: B023 - it is waited for here
        answer(harness, harness.asked[number])


def answer(harness: ServedHarness, request: Request) -> None:
    harness.answers.handle_report(Departed(request_id=request.request_id, seal_s=SEALED_S, at=monotonic() + 0.25))
    harness.ends(request)


async def test_a_slowed_parse_makes_its_rows_fail(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slowly(*args: Any) -> Any:
        time.sleep(0.02)
        return request_body(*args)

    monkeypatch.setattr("core.node.public_api.http_bodies.request_body", slowly)
    async with served_harness(tmp_path, model) as harness:
        working = asyncio.create_task(work(harness))
        told = await measured(SCENARIO, LoadLevel(), [AskedModel(harness.served.url, "", [KEY])])
        await working
    one = result(SCENARIO, LoadLevel(), [], told)
    assert (one.succeeded, one.problems) == (2, ())
    failed = [row for row in one.assertions if not row.passed]
    assert {"parse:mean<=1ms", "parse:p95<=5ms"} <= {row.name for row in failed}
    assert one.segments["parse"].mean >= 0.02
    assert one.segments["encrypt"].mean == SEALED_S
    assert one.segments["coordinator_to_provider"].mean == pytest.approx(0.25, abs=0.1)


async def test_a_stream_that_begins_before_its_turn_is_told_the_rest_at_its_end(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_answers, "KEEP_ALIVE_S", 0.02)
    streamed = replace(SCENARIO, streams=True, requests=ROWS + 1, concurrency=ROWS + 1)
    async with served_harness(tmp_path, model) as harness:
        asking = asyncio.create_task(measured(streamed, LoadLevel(), [AskedModel(harness.served.url, "", [KEY])]))
        await until(lambda: len(harness.asked) == ROWS)
        await until(lambda: len(harness.waiting()) == 1)
        await asyncio.sleep(0.1)  # the last one's stream begins: nothing else shows it on this side
        for number in range(ROWS + 1):
            await until(lambda: len(harness.asked) > number)  # noqa: B023 - it is waited for here
            answer(harness, harness.asked[number])
        told = await asking
    one = result(streamed, LoadLevel(), [], told)
    assert (one.succeeded, one.problems) == (ROWS + 1, ())
    assert one.segments["encrypt"].count == one.segments["queue_wait"].count == ROWS + 1
    assert one.segments["queue_wait"].max >= 0.1
