"""While a model is loaded a spare worker stands ready, and replaces an ended one at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from core.local.macs import make_macs
from core.local.plans import plan_of
from core.mac.memory import footprint_bytes
from core.models.files.model_folder import read_folder
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.signals import Signals
from core.node.peers.worker_state import WorkerState
from core.node.ring.worker_process import WorkerProcess, start_worker
from core.node.ring.worker_supervisor import Supervisor, WorkerEnded, WorkerReported
from core.worker.messages import Load, Loaded, Report
from tests.support.cluster import Make
from tests.support.contexts import context_of
from tests.support.waiting import until

HOST = "127.0.0.1"
SPARE_BYTES = 150_000_000


def workers() -> list[int]:
    """Workers of this process, which may have other children from an earlier test."""
    return [child.pid for child in psutil.Process().children() if "core.worker" in child.cmdline()]


class OneMac:
    """A keeper of workers for a model that is loaded whole."""

    def __init__(self, folder: Path, model: Path) -> None:
        macs, self.model = make_macs(folder, 1), model
        self.plan = plan_of(model.name, read_folder(model).layout().layers, (), macs, "private")
        journal = Journal(folder / "log", "me", Bus())
        self.worker, signals = WorkerState(), Signals()
        self.reports, self.ends = list[Report](), list[WorkerEnded]()
        signals.on(WorkerReported, lambda said: self.reports.append(said.report))
        signals.on(WorkerEnded, self.ends.append)
        self.log = folder / "log"
        self.keeper = Supervisor(context_of(identity=macs.identities[0], signals=signals, journal=journal), self.worker)

    async def load(self) -> None:
        await self.keeper.ready()
        self.keeper.send(Load(plan=self.plan, index=0, directory=str(self.model)))
        await until(lambda: self.worker.has_model)

    async def spare(self) -> int:
        """The spare process."""
        await until(lambda: self.worker.spare_pid is not None)
        assert self.worker.spare_pid
        return self.worker.spare_pid


@pytest.fixture
async def mac(made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OneMac]:
    monkeypatch.setattr("core.node.ring.worker_supervisor.SPARE_REST_S", 0.0)
    monkeypatch.setattr("core.node.ring.worker_supervisor.SPARE_BACK_OFF_S", (0.0,))
    mac = OneMac(tmp_path, made("llama"))
    mac.keeper.start()
    try:
        yield mac
    finally:
        await mac.keeper.stop()
        assert workers() == []


async def test_the_spare_worker_takes_the_place_of_one_that_ends_and_another_one_is_started(mac: OneMac) -> None:
    await mac.keeper.ready()
    first = mac.worker.pid
    assert mac.worker.spare_pid is None, "a worker without layers is ready itself"
    await mac.load()
    assert psutil.Process(first).nice() > psutil.Process().nice(), "on a CPU it gives way to its node"
    spare = await mac.spare()
    await until(lambda: footprint_bytes(spare) > SPARE_BYTES / 10)
    assert footprint_bytes(spare) <= SPARE_BYTES

    os.kill(first or 0, signal.SIGKILL)
    await until(lambda: bool(mac.ends))
    await mac.keeper.ready()
    assert (mac.worker.pid, mac.worker.spare_pid, mac.worker.has_model) == (spare, None, False)
    await mac.load()
    assert [isinstance(report, Loaded) for report in mac.reports].count(True) == 2
    second = await mac.spare()
    assert second not in (first, spare)

    await mac.keeper.replace()  # unloaded: the spare one is empty, and no other is needed
    await mac.keeper.ready()
    assert (mac.worker.pid, mac.worker.spare_pid) == (second, None)
    assert len(mac.ends) == 1


async def test_a_spare_worker_that_ends_disturbs_nobody_and_is_replaced(mac: OneMac) -> None:
    await mac.load()
    first, spare = mac.worker.pid, await mac.spare()
    os.kill(spare, signal.SIGKILL)
    await until(lambda: mac.worker.spare_pid not in (spare, None))
    assert mac.worker.pid == first
    assert mac.worker.has_model
    assert mac.ends == []
    assert "The spare worker ended." in mac.log.read_text()


async def test_a_spare_worker_that_is_not_needed_any_more_when_it_has_started_is_ended(
    mac: OneMac, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, starts = asyncio.Event(), list[WorkerProcess]()

    async def slow(*given: Any, wires: bool) -> WorkerProcess:
        worker = await start_worker(*given, wires=wires)
        starts.append(worker)
        if worker is starts[0]:
            await gate.wait()
        return worker

    await mac.keeper.ready()
    monkeypatch.setattr("core.node.ring.worker_supervisor.start_worker", slow)
    await mac.load()
    await until(lambda: len(starts) == 1)
    os.kill(mac.worker.pid or 0, signal.SIGKILL)
    await until(lambda: len(starts) == 2)
    await mac.keeper.ready()
    gate.set()
    await starts[0].wait()
    assert (mac.worker.pid, mac.worker.spare_pid, mac.worker.has_model) == (starts[1].pid, None, False)
    assert workers() == [starts[1].pid]
