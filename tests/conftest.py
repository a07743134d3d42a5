"""Rules for all tests: nothing of ours is left running, and mlx ends cleanly."""

from __future__ import annotations

import fcntl
import gc
import getpass
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import psutil
import pytest
from hypothesis import HealthCheck, settings

from core.models.lean_imports import import_transformers_late
from core.settings import DEVICE
from tests.support.search import SEARCH

# no time gates, also none for making an input: machines are shared
settings.register_profile(
    "macluster", max_examples=60 * SEARCH, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("macluster")

# a shell makes background processes ignore Ctrl-C, and every child would inherit that
signal.signal(signal.SIGINT, signal.default_int_handler)


# no test uses the web, whose certificates every process that imports aiohttp would read; httpx2 insists on one
os.environ["SSL_CERT_DIR"] = os.devnull
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "support" / "nobody.pem")

# on a CPU mlx has the system's compiler build each fused kernel, which takes a second; the results are the same
os.environ["MLX_DISABLE_COMPILE"] = "1"

# tokens are comparable on a CPU only: on a GPU sums depend on shapes. Workers obey it too; tests/gpu has its own
os.environ[DEVICE] = "cpu"

# mlx-lm imports transformers, whose list of models takes a second in each process that collects the tests
import_transformers_late()

gc.disable()  # until everything is collected: no import is garbage

# files that start nodes, workers or terminals, or search for rare faults
SLOW = ("gpu", "processes", "screens", "network", "attacks", "fuzz", "replay", "real")
# of pytest's folder: a socket's path below may have 103 bytes, and a Mac's folder for temporary files is long
LONGEST = 35
# they take minutes, and start first so that none runs alone at the end
LONG = (
    "test_topologies.py", "test_atlas.py", "test_screenshots.py", "test_engine.py", "test_hub_disks.py",
    "test_chat_screens.py", "test_three_macs.py",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Use a short folder for the files of tests where pytest's own is long; --basetemp chooses one that stays."""
    own = Path(tempfile.gettempdir(), f"pytest-of-{getpass.getuser()}")
    if config.option.basetemp is None and len(str(own)) > LONGEST:
        config.option.basetemp = folder = tempfile.mkdtemp(prefix="m-", dir="/tmp")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of slow files in `make fast`."""
    return collection_path.name in SLOW or None if config.option.markexpr == "not slow" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first, and mix the others, so that files that wait run next to files that compute."""
    for item in items:
        if item.path.parent.name in SLOW or item.get_closest_marker("nightly"):
            item.add_marker("slow")
    items.sort(key=lambda item: (item.path.name not in LONG, crc32(item.nodeid.partition("::")[0].encode())))


def pytest_collection_finish() -> None:
    """Freeze imported objects, so that the garbage collector skips them; compute on the CPU; parse CSS once."""
    if "textual" in sys.modules:
        share_parsed_css()
    if "mlx.core" in sys.modules:
        from core.models.metal import obey_device

        obey_device()
    gc.freeze()
    gc.enable()


def share_parsed_css() -> None:
    """Let all apps of this process share what Textual parses, which is a fifth of the start of each."""
    from textual.css.stylesheet import Stylesheet

    parsed: dict[Any, list[Any]] = {}
    parse = Stylesheet._parse_rules

    def once(sheet: Stylesheet, css: str, **where: Any) -> list[Any]:
        key = (css, tuple(where.items()), frozenset(sheet._variables.items()))
        if key not in parsed:
            parsed[key] = parse(sheet, css, **where)
        return parsed[key]

    Stylesheet._parse_rules = once  # type: ignore[method-assign, assignment]


@pytest.fixture(autouse=True)
def nothing_is_open(request: pytest.FixtureRequest) -> Iterator[None]:
    """Find a connection that outlives its test's loop in that test, not in a later one.

    A test's objects are young; a full collection would take a fifth of the time of the quick tests.
    """
    yield
    if request.node.get_closest_marker("asyncio"):
        gc.collect(1)


@pytest.fixture
def bonjour() -> Iterator[None]:
    """Let one test at a time advertise on loopback, in all processes: tests would see each other there."""
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def our_children(modules: tuple[str, ...] = ("core.node", "core.worker")) -> list[str]:
    """Command lines of nodes and workers below this process, or of other `modules`, without zombies."""
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
    """Use an own configuration file, without spare workers unless a test is about them."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "macluster").mkdir()
    (folder / "macluster" / "config.toml").write_text("[node]\nspare_worker = false\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_drive_is_waited_for() -> Iterator[None]:
    """Make syncs to disk instant: no test must outlast a power cut, and a drive takes milliseconds per file.

    Tests about syncs (tests/support/power.py) check which files are forced to disk, and when.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("fcntl.F_FULLFSYNC", raising=False)
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Check that no node and no worker runs after the last test."""
    yield
    assert our_children(("core.",)) == []
    if "mlx.core" in sys.modules:
        import mlx.core as mx

        mx.synchronize()
        mx.clear_streams()
