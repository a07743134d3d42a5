"""This Mac's state: its memory for plans is what its worker reports about the GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from core.events import Peer
from core.node.base.signals import Signals
from core.node.peers.networks import Networks
from core.node.peers.own_mac import OwnMac
from core.node.peers.worker_state import WorkerState
from core.settings import GB
from tests.support.contexts import context_of

BUDGET, LIMIT = 24 * GB, 22 * GB


def own_mac(worker: WorkerState, *, has_own_gpu: bool = True) -> OwnMac:
    known = Peer(device_id="a", name="a", memory_bytes=32 * GB, budget_bytes=BUDGET, is_self=True)
    assessment: Any = SimpleNamespace(listed_name=lambda _: "", of=lambda _: SimpleNamespace(level="paired"))
    node = context_of(assessment=assessment, config={} if has_own_gpu else {"chip": "M1"})
    return OwnMac(node, known, worker, Networks("127.0.0.1", Signals(), tuple))


@pytest.mark.parametrize(
    ("reported", "ready_bytes"),
    [
        pytest.param(None, 0, id="the worker has not spoken: not ready"),
        pytest.param(0, BUDGET, id="no limit"),
        pytest.param(LIMIT, LIMIT, id="a limit"),
    ],
)
def test_other_macs_plan_with_what_the_worker_has_reported(reported: int | None, ready_bytes: int) -> None:
    worker = WorkerState()
    worker.working_set_bytes = reported
    assert own_mac(worker).status().budget_bytes == ready_bytes


def test_the_gpu_of_this_machine_does_not_limit_a_simulated_mac() -> None:
    worker = WorkerState()
    worker.working_set_bytes = LIMIT
    simulated = own_mac(worker, has_own_gpu=False)
    assert simulated.status().budget_bytes == simulated.now().budget_bytes == BUDGET
