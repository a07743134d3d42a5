"""A part of a node fails by a defect: the process ends in order, and its exit status tells the supervisor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil

from core.settings import Home
from tests.support.nodes import HOST
from tests.support.processes import GONE_S
from tui.cli.watch import Watch

START_S = 120.0
TYPED = "what a person typed"

# the real node, but its watch over answers fails when the test says so
NODE = f"""
import asyncio, runpy, sys
from pathlib import Path
from core.node.plans.driver import PlanDriver

fault = Path(sys.argv.pop(1))

async def watch(self):
    while not fault.exists():
        await asyncio.sleep(0.05)
    raise KeyError({TYPED!r})

PlanDriver.watch = watch
runpy.run_module("core.node", run_name="__main__", alter_sys=True)
"""


async def test_a_node_that_lost_what_it_cannot_do_without_exits_with_status_1_and_leaves_no_worker(
    tmp_path: Path,
) -> None:
    home, fault = Home(tmp_path / "mac"), tmp_path / "fault"
    command = [sys.executable, "-c", NODE, str(fault), "--home", str(home.root), "--host", HOST, "--no-multicast"]
    pipe = subprocess.PIPE
    node = subprocess.Popen([*command, "--port", "0"], stderr=pipe, text=True)  # noqa: ASYNC220 - not waited for
    try:
        async with Watch(home) as watch:
            await watch.attached(START_S, lambda: node.poll() is None)
            await watch.until(lambda seen: any(p.worker_pid for p in seen.now.peers), START_S, "a worker")
            workers = psutil.Process(node.pid).children(recursive=True)
            assert workers
            fault.touch()
            _, said = node.communicate(timeout=GONE_S)
    finally:
        node.kill()
    assert node.returncode == 1
    assert (
        said == "macluster: The watch over answers failed by a defect, and the node has stopped. Its log says where.\n"
    )
    assert not [worker for worker in workers if worker.is_running()]
    log = home.log.read_text()
    assert "The watch over answers failed by a defect: KeyError at <string>:" in log
    assert TYPED not in log
