"""`macluster run` in its own process, over the real socket of a node with a simulated worker."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.errors import NotLoaded
from core.events import PlanLoaded, PlanProposed
from core.node.base.local_server import LocalServer
from core.node.public_api.api_answers import ApiAnswers, LedModel
from core.node.relay.local_chat import LocalChat
from tests.support.answers import AnswersHarness
from tests.support.rooms import routes_of
from tests.support.tasks import tasks_of

RUN = ["run", "toy", "-p", "hello"]
DEADLINE_S = 60.0


@pytest.fixture
async def harness(tmp_path: Path, model: Path) -> AsyncIterator[AnswersHarness]:
    """A node's socket with a plan that is ready and a simulated worker."""
    async with served(AnswersHarness(tmp_path, model)) as harness:
        yield harness


def nowhere() -> LedModel:
    raise NotLoaded("No model is loaded.")


@asynccontextmanager
async def served(harness: AnswersHarness) -> AsyncIterator[AnswersHarness]:
    """Serve the API with the model loaded."""
    await harness.load()
    plan = harness.worker.led
    assert plan
    harness.bus.publish(PlanProposed(plan=plan))
    harness.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))
    answering = ApiAnswers(harness.answers, lambda: harness.bus.now, nowhere, tasks_of(), 0)
    chat = LocalChat(harness.node, harness.answers, answering)
    api = LocalServer(routes_of(harness.node, answers=harness.answers, chat=chat), harness.bus, tasks_of())
    await api.start(harness.folder / "node.sock")
    yield harness
    await harness.ends_all()
    await api.stop()


@asynccontextmanager
async def running(
    harness: AnswersHarness,
    *words: str,
    run: Sequence[str] = (*RUN, "--ignore-chat-template"),
    until: Callable[[], object] | None = None,
    stderr: int = PIPE,
    stdin: int | None = None,
) -> AsyncIterator[Process]:
    """`macluster run`, once its request has reached the worker, or once `until` holds."""
    command = [sys.executable, "-m", "tui.cli.main", "--home", str(harness.folder), *run, *words]
    before = len(harness.asked)
    process = await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=PIPE, stderr=stderr)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (until() if until else len(harness.asked) > before):
                assert process.returncode is None
                await asyncio.sleep(0.02)
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
