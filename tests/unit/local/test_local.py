"""Macs and processes simulated on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import WorkerDied
from core.local.macs import make_macs
from core.local.second_process import second_process
from core.trust.roster.bundle import Cluster


def test_a_second_process_that_ends_is_noticed() -> None:
    with second_process(print) as other, pytest.raises(WorkerDied):
        other.receive(60)


def test_made_macs_are_one_cluster(tmp_path: Path) -> None:
    macs = make_macs(tmp_path, 3)
    assert [m.device_id for m in macs.cluster.roster.members] == [i.device_id for i in macs.identities]
    assert Cluster.decode(macs.cluster.encode()) == macs.cluster
