"""`macluster run` in its own process, over the real socket of a node with a simulated worker."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.events import PlanLoaded, PlanProposed
from core.node.base.local_server import LocalServer
from tests.support.answers import AnswersHarness
from tests.support.rooms import routes_of
from tests.support.tasks import tasks_of

RUN = ["run", "toy", "-p", "hello"]
DEADLINE_S = 60.0


@pytest.fixture
async def desk(tmp_path: Path, model: Path) -> AsyncIterator[AnswersHarness]:
    """A node's socket with a plan that is ready and a simulated worker."""
    async with served(AnswersHarness(tmp_path, model)) as desk:
        yield desk


@asynccontextmanager
async def served(desk: AnswersHarness) -> AsyncIterator[AnswersHarness]:
    """Serve the API with the model loaded."""
    await desk.load()
    plan = desk.leader.plan
    assert plan
    desk.bus.publish(PlanProposed(plan=plan))
    desk.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))
    api = LocalServer(routes_of(desk.node, answers=desk.answers), desk.bus, tasks_of())
    await api.start(desk.folder / "node.sock")
    yield desk
    await desk.ends_all()
    await api.stop()


@asynccontextmanager
async def running(
    desk: AnswersHarness,
    *words: str,
    run: Sequence[str] = (*RUN, "--ignore-chat-template"),
    until: Callable[[], object] | None = None,
    stderr: int = PIPE,
    stdin: int | None = None,
) -> AsyncIterator[Process]:
    """`macluster run`, once its request has reached the worker, or once `until` holds."""
    command = [sys.executable, "-m", "tui.cli.main", "--home", str(desk.folder), *run, *words]
    before = len(desk.asked)
    process = await asyncio.create_subprocess_exec(*command, stdin=stdin, stdout=PIPE, stderr=stderr)
    try:
        async with asyncio.timeout(DEADLINE_S):
            while not (until() if until else len(desk.asked) > before):
                assert process.returncode is None
                await asyncio.sleep(0.02)
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
