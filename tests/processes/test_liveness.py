"""Real workers that report their progress; test_three_macs.py has nodes that stop for a while or for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from core.errors import WorkerError
from core.link.liveness import stuck_stage
from core.link.network_paths import NetworkPath
from core.local.bare_worker import HOST, BareWorker
from core.local.macs import make_macs
from core.local.plans import digest_of, plan_of
from core.models.files.model_folder import read_folder
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.signals import Signals
from core.node.peers.worker_state import WorkerState
from core.node.ring.worker_supervisor import Supervisor, WorkerReported
from core.worker.messages import AnswerDone, Connect, Linked, Load, Report, Worked
from core.worker.telemetry import STEP_EVERY_S
from tests.support.cluster import Make
from tests.support.contexts import context_of
from tests.support.processes import stopped
from tests.support.tasks import tasks_of
from tests.support.waiting import until
from tests.support.worker_ring import WorkerRing, a_request, worker_ring

SEEN_S = 120.0
TOKENS = 60
SLOW_GPU = str(Path(__file__).parents[1] / "support" / "slow_gpu")
LONG = 20_000  # runs until it is cancelled


@pytest.fixture(scope="module")
def ring(made: Make) -> Iterator[WorkerRing]:
    """Each step takes longer, so that an answer which only has to run leaves the CPU to others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", SLOW_GPU)
        with worker_ring(made("llama", layers=4), (1, 3)) as three:
            yield three


class StageReports:
    """The reports of each stage of a ring, and the newest step reported."""

    def __init__(self, ring: WorkerRing) -> None:
        self._workers = ring.workers
        self.steps = [0] * len(ring.workers)
        self.counts = [0] * len(ring.workers)
        self.done: AnswerDone | None = None

    def until(self, reached: Callable[[], bool]) -> None:
        """Hear reports until the condition holds."""
        deadline = time.monotonic() + SEEN_S
        while not reached():
            assert time.monotonic() < deadline, self.steps
            self.hear()
            time.sleep(0.01)

    def hear(self) -> None:
        """Hear the reports that have come."""
        for worker in self._workers:
            while report := next_of(worker):
                self._take(worker.index, report)

    def _take(self, index: int, report: Report) -> None:
        match report:
            case Worked(step=step):
                assert step > self.steps[index], "told once"
                self.steps[index] = step
                self.counts[index] += 1
            case AnswerDone():
                self.done = report


def next_of(worker: BareWorker) -> Report | None:
    try:
        return worker.next(0.0).report
    except WorkerError:
        return None


def wake_ups(ring: WorkerRing) -> list[int]:
    return [psutil.Process(worker.pid).num_ctx_switches().voluntary for worker in ring.workers]


def test_every_worker_tells_how_far_it_is_and_then_sleeps(ring: WorkerRing) -> None:
    told, began = StageReports(ring), time.monotonic()
    ring.send(a_request([5, 6, 7], max_tokens=TOKENS))
    told.until(lambda: told.done is not None)
    assert all(1 <= count <= (time.monotonic() - began) / STEP_EVERY_S + 1 for count in told.counts), "seldom"
    told.until(lambda: len(set(told.steps)) == 1)
    before = [-1] * 3
    deadline = time.monotonic() + SEEN_S
    while (now := wake_ups(ring)) != before:  # no worker wakes up after its last requested report
        assert time.monotonic() < deadline
        before = now
        time.sleep(2 * STEP_EVERY_S)
    told.hear()
    last = max(span.step for span in ring.traces()[-1])
    assert told.steps == [last] * 3


@pytest.mark.parametrize("stage", [1, 2])
def test_a_worker_that_stands_still_is_found(ring: WorkerRing, stage: int) -> None:
    told = StageReports(ring)
    request = a_request([5, 6, 7 + stage], max_tokens=LONG)
    ring.send(request)  # it is still running when the worker stops
    told.until(lambda: told.steps[stage] > 0)
    with stopped([ring.workers[stage].pid]):
        told.until(lambda: stuck_stage(told.steps) == stage)
        time.sleep(2 * STEP_EVERY_S)
        told.hear()
        assert stuck_stage(told.steps) == stage
        stood = list(told.steps)
    told.until(lambda: all(now > then for now, then in zip(told.steps, stood, strict=True)))
    assert told.done is None, "it goes on"
    ring.cancel(request.request_id)
    told.until(lambda: told.done is not None and len(set(told.steps)) == 1)
    assert told.done
    assert told.done.problem is None


# ---- the node's record of it


@pytest.mark.slow
async def test_a_node_knows_how_far_its_worker_is_until_that_is_another_one(made: Make, tmp_path: Path) -> None:
    model: Path = made("llama")
    macs = make_macs(tmp_path, 2)
    plan = plan_of(model.name, read_folder(model).layout().layers, (4,), macs, "private")
    reports: list[Report] = []
    journal = Journal(tmp_path / "log", "me", Bus())
    tasks = tasks_of(journal)
    workers, signals = [WorkerState(), WorkerState()], Signals()
    signals.on(WorkerReported, lambda said: reports.append(said.report))
    each = zip(macs.identities, workers, strict=True)
    without_spare = context_of(config={"has_spare": False}, signals=signals, journal=journal, tasks=tasks)
    pair = [Supervisor(replace(without_spare, identity=mac), worker) for mac, worker in each]
    try:
        for supervisor in pair:
            supervisor.start()
        ports = [await supervisor.ready() for supervisor in pair]
        for index, supervisor in enumerate(pair):
            supervisor.send(Load(plan=plan, index=index, directory=str(model)))
        await until(lambda: all(worker.has_model for worker in workers))
        assert [worker.step for worker in workers] == [0, 0]
        for supervisor, port in zip(pair, reversed(ports), strict=True):
            cluster, digest, ways = macs.cluster.encode(), digest_of(plan), (NetworkPath(HOST),)
            supervisor.send(Connect(plan=plan, digest=digest, cluster=cluster, ways=ways, next_port=port))
        await until(lambda: sum(isinstance(report, Linked) for report in reports) == 2)
        pair[0].send(a_request([5, 6, 7], max_tokens=TOKENS))
        await until(lambda: any(isinstance(report, AnswerDone) for report in reports))
        await until(lambda: workers[0].step == workers[1].step > 0)
        assert not any(isinstance(report, Worked) for report in reports), "nobody else needs to know"
        os.kill(workers[1].pid or 0, signal.SIGKILL)
        await until(lambda: (workers[1].step, workers[1].has_model) == (0, False))
        assert workers[0].has_model
    finally:
        for supervisor in pair:
            await supervisor.stop()
