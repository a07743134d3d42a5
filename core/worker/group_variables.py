"""The environment variables by which MLX finds a group, and the file that one of them names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

# every variable that MLX reads to make a group; jaccl prefers the names without MLX_
ALL: Final = (
    *("MLX_RANK", "MLX_HOSTFILE"),
    *("MLX_IBV_DEVICES", "MLX_JACCL_COORDINATOR", "MLX_JACCL_RING"),
    *("JACCL_RANK", "JACCL_IBV_DEVICES", "JACCL_COORDINATOR", "JACCL_RING"),
    *("MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT"),
)
MESH_RANKS: Final = 3  # up to here every rank is adjacent to every other
NOBODY: Final = "127.0.0.1:0"


def ring_variables(rank: int, hosts: Path) -> dict[str, str]:
    return {"MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)}


def ring_hosts(rank: int, world: int, own_port: int, next_port: int) -> bytes:
    """The host file of this rank: MLX listens at `own_port`, and finds the next rank at `next_port` of this machine."""
    hosts = [[NOBODY] for _ in range(world)]
    hosts[rank] = [f"127.0.0.1:{own_port}"]
    hosts[(rank + 1) % world] = [f"127.0.0.1:{next_port}"]
    return msgspec.json.encode(hosts)


def rdma_variables(rank: int, world: int, host: str, port: int, devices: Path) -> dict[str, str]:
    variables = {"MLX_RANK": str(rank), "MLX_JACCL_COORDINATOR": f"{host}:{port}", "MLX_IBV_DEVICES": str(devices)}
    return variables if world <= MESH_RANKS else {**variables, "MLX_JACCL_RING": "1"}


def rdma_devices(devices: Sequence[tuple[str, str]]) -> bytes:
    """The device file, the same for all ranks: the device by which a rank (row) reaches another (column), null for
    itself. `devices` are each rank's to the next and to the one before; beyond three ranks the others are null.
    """
    world = len(devices)
    rows: list[list[str | None]] = [[None] * world for _ in devices]
    for rank, (after, before) in enumerate(devices):
        rows[rank][rank - 1] = before
        rows[rank][(rank + 1) % world] = after
    return msgspec.json.encode(rows)


def nccl_variables(rank: int, world: int, host: str, port: int) -> dict[str, str]:
    return {"MLX_RANK": str(rank), "MLX_WORLD_SIZE": str(world), "NCCL_HOST_IP": host, "NCCL_PORT": str(port)}


@contextmanager
def told(variables: Mapping[str, str]) -> Iterator[None]:
    """Set exactly these variables for MLX: even one that is "0" counts as set."""
    before = {name: os.environ.pop(name) for name in ALL if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)
