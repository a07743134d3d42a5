"""MLX's environment variables for a group: they equal the shapes that its makers read, and none remains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.worker.group_variables import (
    ALL,
    nccl_variables,
    rdma_devices,
    rdma_variables,
    ring_hosts,
    ring_variables,
    told,
)

FILE = Path("/f/devices.json")
TWO = [[None, "rdma_en5"], ["rdma_en5", None]]
THREE = [[None, "rdma_en2", "rdma_en3"], ["rdma_en2", None, "rdma_en3"], ["rdma_en2", "rdma_en3", None]]
FOUR = [
    [None, "rdma_en2", None, "rdma_en3"],
    ["rdma_en3", None, "rdma_en2", None],
    [None, "rdma_en3", None, "rdma_en2"],
    ["rdma_en2", None, "rdma_en3", None],
]


@pytest.mark.parametrize(
    ("devices", "golden"),
    [
        ([("rdma_en5", "rdma_en5")] * 2, TWO),
        ([("rdma_en2", "rdma_en3"), ("rdma_en3", "rdma_en2"), ("rdma_en2", "rdma_en3")], THREE),
        ([("rdma_en2", "rdma_en3")] * 4, FOUR),
    ],
)
def test_the_device_file_of_jaccl(devices: list[tuple[str, str]], golden: Any) -> None:
    assert msgspec.json.decode(rdma_devices(devices)) == golden


@pytest.mark.parametrize(("world", "ring"), [(2, False), (3, False), (4, True)])
def test_the_environment_of_jaccl(world: int, ring: bool) -> None:
    golden = {"MLX_RANK": "1", "MLX_JACCL_COORDINATOR": "10.0.0.7:29400", "MLX_IBV_DEVICES": "/f/devices.json"}
    if ring:
        golden["MLX_JACCL_RING"] = "1"  # unset otherwise: "0" counts as set
    assert rdma_variables(1, world, "10.0.0.7", 29400, FILE) == golden


def test_the_environment_of_nccl() -> None:
    golden = {"MLX_RANK": "1", "MLX_WORLD_SIZE": "2", "NCCL_HOST_IP": "10.0.0.7", "NCCL_PORT": "29400"}
    assert nccl_variables(1, 2, "10.0.0.7", 29400) == golden


def test_the_ring_knows_nobody_but_this_machine() -> None:
    assert ring_variables(1, FILE) == {"MLX_RANK": "1", "MLX_HOSTFILE": "/f/devices.json"}
    assert msgspec.json.decode(ring_hosts(1, 3, 5680, 5681)) == [
        ["127.0.0.1:0"],
        ["127.0.0.1:5680"],
        ["127.0.0.1:5681"],
    ]


def test_what_stood_there_is_hidden_meanwhile_and_back_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALL:
        monkeypatch.setenv(name, "0")
    with told({"MLX_RANK": "1"}):
        assert {name: os.environ[name] for name in ALL if name in os.environ} == {"MLX_RANK": "1"}
    assert {os.environ[name] for name in ALL} == {"0"}
