"""One simulated Mac: a real node with its worker that can be ended, stopped and started again over its folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from core.events import AnyEvent, ParallelismChoice
from core.requests.trust import Address
from core.settings import Home
from core.trust.identity import Identity, load_or_create
from tests.support.nodes import free_port
from tui.cli.watch import Watch

NAMES = ("studio", "mbp", "mini")
HOST = "127.0.0.1"
ROOT = Path(__file__).parents[2]
START_S = 120.0
END_S = 6.0
MARK = "MACLUSTER_CHAOS"


class Place(NamedTuple):
    """A Mac's address (port 0: a free one), the prefix of its command, and its extra environment variables."""

    host: str = HOST
    port: int = 0
    prefix: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


class Setup(NamedTuple):
    """The Macs of a cluster, the head first, and their model."""

    model: Path
    folder: Path
    places: tuple[Place, ...] = (Place(),) * len(NAMES)
    budgets_gb: tuple[float, ...] = (64, 32, 16)
    multicast: bool = False
    context: int = 512
    mirror: bool = False
    parallelism: ParallelismChoice | None = None


class Mac:
    """One simulated Mac: a state folder, which stays, and a node with its worker, which may not."""

    def __init__(self, setup: Setup, number: int) -> None:
        self.name = NAMES[number]
        self.place = setup.places[number]
        self.home = Home(setup.folder / self.name)
        self.identity: Identity = load_or_create(_made(self.home.root) / "identity", use_keychain=False)
        self.device_id = self.identity.text_id
        self.port = self.place.port or free_port()
        self.api_port = free_port()
        self._models, self._budget_gb, self._multicast = setup.model, setup.budgets_gb[number], setup.multicast
        self._process: subprocess.Popen[bytes] | None = None
        self.watch: Watch | None = None

    @property
    def address(self) -> Address:
        """Address for the other Macs."""
        return Address(device_id=self.device_id, host=self.place.host, port=self.port)

    @property
    def node(self) -> int:
        """Process id of its node."""
        assert self._process
        return self._process.pid

    @property
    def worker(self) -> int:
        """Process id of its worker, which is older than the spare one. Raises LookupError without a worker."""
        return next(iter(workers_of(self.node)))

    @property
    def is_up(self) -> bool:
        """Whether its node runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the node; it ends with this process, however this process ends."""
        command = [
            *(*self.place.prefix, sys.executable, "-m", "core.node", "--home", str(self.home.root)),
            *("--name", self.name, "--host", self.place.host, "--port", str(self.port), "--until-eof"),
            *("--budget", str(self._budget_gb), "--chip", "M1", "--models", str(self._models)),
            *("--serve", "--api-port", str(self.api_port)),
            *(() if self._multicast else ("--no-multicast",)),
        ]
        with (self.home.root / "node.stderr").open("ab") as complaints:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                env={**os.environ, **self.place.env, "PYTHONSAFEPATH": "1", MARK: str(self.home.root.parent)},
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """The last lines of its log, as evidence."""
        with suppress(OSError):
            return "\n".join(self.home.log.read_text().splitlines()[-12:])
        return ""

    async def attach(self, stack: AsyncExitStack, on_event: Callable[[AnyEvent], None]) -> Watch:
        """Follow the events of the node that was started."""
        self.watch = await stack.enter_async_context(Watch(self.home, on_event))
        await self.watch.attached(START_S, lambda: self.is_up)
        return self.watch

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the node and its worker."""
        for pid in (self.node, *workers_of(self.node)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill the node with kill -9; its worker must end by itself."""
        assert self._process
        assert self._process.stdin
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()

    def end(self) -> None:
        """End the node in good order, even if it is stopped."""
        if self._process is None:
            return
        if self.is_up:
            self.signal(signal.SIGCONT)
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def workers_of(node: int) -> list[int]:
    """Process ids of this node's workers, the oldest first."""
    with suppress(psutil.Error):
        found = [child for child in psutil.Process(node).children() if "core.worker" in child.cmdline()]
        return [child.pid for child in sorted(found, key=psutil.Process.create_time)]
    return []


def ours(folder: Path) -> set[int]:
    """Process ids of this cluster's nodes and of their children, wherever they are in the tree; a zombie is dead."""
    return {process.pid for process in psutil.process_iter() if _isours(process, str(folder))}


def _isours(process: psutil.Process, folder: str) -> bool:
    try:
        return process.environ().get(MARK) == folder and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
