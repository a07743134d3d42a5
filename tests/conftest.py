"""What every test may rely on: nothing of ours is left behind, and mlx ends cleanly."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import HealthCheck, settings

# no time gates, not even that of making an input: machines are shared
settings.register_profile("macluster", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("macluster")


def our_children() -> list[str]:
    """Command lines of nodes and workers below this process, zombies left out."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and ("core.node" in line or "core.worker" in line):
                found.append(line)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After the last test no node and no worker runs."""
    yield
    assert our_children() == []
    if "mlx.core" in sys.modules:
        import mlx.core as mx

        mx.synchronize()
        mx.clear_streams()
