"""What every test may rely on: nothing of ours is left behind, and mlx ends cleanly."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from core.settings import DEVICE
from tests.support.search import SEARCH

# no time gates, not even that of making an input: machines are shared
settings.register_profile(
    "macluster", max_examples=100 * SEARCH, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("macluster")

# a shell has what it runs in the background ignore Ctrl-C, and every child would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


# nothing here asks the web, whose certificates every process that imports aiohttp would read; httpx2 insists on one
os.environ["SSL_CERT_DIR"] = os.devnull
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "nobody.pem")

# on a CPU mlx has the system's compiler build each fused kernel, which takes a second; what is computed is the same
os.environ["MLX_DISABLE_COMPILE"] = "1"

# tokens can be compared on a CPU only: on a GPU sums depend on shapes. Workers obey it too; tests/gpu has its own
os.environ[DEVICE] = "cpu"

gc.disable()  # until everything is collected: nothing of what is imported is garbage

# what starts nodes, workers or terminals, or looks for what is rare
SLOW = ("gpu", "processes", "screens", "network", "attacks", "fuzz", "replay")
# they take minutes, and begin first: at the end none of them is to run alone
LONG = ("test_atlas.py", "test_screenshots.py", "test_answers.py", "test_faults.py", "test_chaos.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What is slow as a whole is not even imported by `make fast`."""
    return collection_path.name in SLOW or None if config.option.markexpr == "not slow" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first."""
    for item in items:
        if item.path.parent.name in SLOW:
            item.add_marker("slow")
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish() -> None:
    """What was imported stays: the collector need not look at it again and again. What computes does so on the CPU."""
    if "mlx.core" in sys.modules:
        from core.models.metal import obey_device

        obey_device()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_is_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """A connection that outlives the loop of its test is found there, not in whichever test runs later. What a test
    made is young: to look at all there is would take a fifth of the time of the quick tests.
    """
    yield
    if request.node.get_closest_marker("asyncio"):
        gc.collect(1)


@pytest.fixture
def bonjour() -> Iterator[None]:
    """What is advertised on loopback is seen by every test that looks there: only one does at a time, in whichever
    process it runs.
    """
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def our_children(modules: tuple[str, ...] = ("core.node", "core.worker")) -> list[str]:
    """Command lines of nodes and workers below this process, or of other `modules`; zombies left out."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and any(module in line for module in modules):
                found.append(line)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(scope="session", autouse=True)
def own_config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Not the file of whoever runs the tests; and no spare workers, but where a test is about them."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "macluster").mkdir()
    (folder / "macluster" / "config.toml").write_text("[node]\nspare_worker = false\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_drive_is_waited_for() -> Iterator[None]:
    """Nothing of a test has to outlast a real power cut, and a drive takes milliseconds for each of thousands of files.
    What is about them (tests/support/power.py) looks at who forces what to disk, and when.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("fcntl.F_FULLFSYNC", raising=False)
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After the last test no node and no worker runs."""
    yield
    assert our_children(("core.",)) == []
    if "mlx.core" in sys.modules:
        import mlx.core as mx

        mx.synchronize()
        mx.clear_streams()
