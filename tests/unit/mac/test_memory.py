from __future__ import annotations

import os

import pytest

from core.mac.memory import default_budget, footprint_bytes, footprint_in, usable_bytes
from core.settings import GB

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory_gib", "working_set_gb"), [(32, 22.9), (64, 51.5), (96, 77.3), (128, 115.4), (512, 412.0)]
)
def test_a_model_is_planned_with_what_macos_lets_the_gpu_use(memory_gib: int, working_set_gb: float) -> None:
    """Figures of real Macs: physical memory less the reserve is more than the GPU gets."""
    budget, working_set = default_budget(memory_gib * GIB), int(working_set_gb * GB)
    assert budget > working_set
    assert usable_bytes(budget, working_set, 0) == working_set
    assert usable_bytes(working_set // 2, working_set, 0) == working_set // 2  # --budget asks for less
    assert usable_bytes(budget, 0, 0) == budget  # no such GPU


def test_each_time_that_memory_was_wanting_a_tenth_less_is_planned_with() -> None:
    assert [usable_bytes(100, 0, faults) for faults in (0, 1, 2)] == [100, 90, 81]


def test_the_footprint_of_a_process_on_a_mac_is_the_eighth_number_behind_the_uuid() -> None:
    numbers = [5, 7, 0, 0, 12, 34, 900 << 20, 2048 << 20, 99, 0]
    assert footprint_in(bytes(range(16)) + b"".join(n.to_bytes(8, "little") for n in numbers)) == 2048 << 20


def test_a_process_takes_memory_until_it_is_gone() -> None:
    assert footprint_bytes(os.getpid()) > 1 << 20
    assert footprint_bytes(2**22 + 1) == 0
