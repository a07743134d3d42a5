"""A dead ring leaves nothing that waits for ever, spins, or outlives its parent."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest

from core.errors import WorkerDied
from core.local.macs import make_macs
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.signals import Signals
from core.node.peers.worker_state import WorkerState
from core.node.ring import worker_supervisor
from core.node.ring.worker_supervisor import Supervisor, WorkerEnded
from core.requests.answers import ChatRequest, Message
from core.requests.plans import LoadRequest
from core.settings import Home
from tests.support.cluster import Make, finish
from tests.support.contexts import context_of
from tests.support.processes import GONE_S, IDLE_SHARE, gone, lives, shares
from tests.support.search import SEARCH
from tests.support.worker_ring import worker_ring
from tui.cli.demo import pair
from tui.cli.watch import Watch

LOCAL = "127.0.0.1"


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder with a name short enough for the path of a unix socket."""
    with tempfile.TemporaryDirectory(prefix="mc-") as folder:
        yield Path(folder)


def below(pids: Sequence[int]) -> list[int]:
    """The living processes among `pids`, with all their children."""
    found: set[int] = set()
    for pid in filter(lives, pids):
        try:
            found |= {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
        except psutil.NoSuchProcess:
            continue
    return sorted(found)


def left_in(folder: Path) -> list[str]:
    """Files in a folder besides mlx's compiled kernels, which it keeps for all processes."""
    return [file.name for file in folder.iterdir() if file.name != "mlx"]


def test_a_worker_whose_neighbours_were_killed_sleeps(made: Make) -> None:
    with worker_ring(made("llama"), (3, 6)) as ring:
        before, left, after = ring.workers
        ring.generate([5, 6, 7], max_tokens=4)
        before.kill()
        after.kill()
        (found,) = shares([left.pid])
        assert left.is_alive
    print(f"a worker between the dead: {100 * found:.2f} %")
    assert found < IDLE_SHARE


@pytest.mark.promise("P18")
def test_a_worker_ends_with_its_node_whatever_it_was_at(made: Make, scratch: Path) -> None:
    with socket.create_server((LOCAL, 0)) as silent:
        silent.settimeout(GONE_S)
        port = str(silent.getsockname()[1])
        command = [sys.executable, "-m", "tests.processes.orphans", str(made("llama", layers=24)), port, str(scratch)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
            assert node.stdin
            assert node.stdout
            pids = json.loads(node.stdout.readline())
            dialled, _ = silent.accept()
            with dialled:
                assert dialled.recv(1), "TLS has begun, and will get no answer"
                node.stdin.write(b"\n")
                node.stdin.flush()
                assert node.wait(GONE_S) == -signal.SIGKILL
                took = {what: gone([pid]) for what, pid in pids.items()}
    assert len(took) == 6
    print("orphans ended within", ", ".join(f"{what} {seconds:.2f} s" for what, seconds in took.items()))


async def test_a_worker_that_hangs_while_it_starts_is_replaced(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity, ends = make_macs(scratch, 1).identities[0], list[WorkerDied]()
    journal = Journal(scratch / "log", "mac", Bus())
    worker, signals = WorkerState(), Signals()
    signals.on(WorkerEnded, lambda ended: ends.append(ended.error))
    keeper = Supervisor(
        context_of(config={"has_spare": False}, identity=identity, signals=signals, journal=journal), worker
    )
    keeper.start()
    try:
        deadline = time.monotonic() + GONE_S
        while (hung := worker.pid) is None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        os.kill(hung, signal.SIGSTOP)
        monkeypatch.setattr(worker_supervisor, "START_S", 0.1)
        with pytest.raises(WorkerDied):
            await keeper.ready()
        monkeypatch.undo()
        assert await keeper.ready() > 0
        assert worker.pid not in (hung, None)
        assert len(ends) == 1
    finally:
        await keeper.stop()


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3))])
def test_a_demo_that_is_killed_while_it_starts_leaves_nothing(made: Make, scratch: Path, seed: int) -> None:
    command = [sys.executable, "-m", "tui.cli.main", "demo", "--model", str(made("llama")), "--macs", "2"]
    silent, chance = subprocess.DEVNULL, random.Random(seed)
    command += ["--no-multicast", "--prompt", "go on"]
    env = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, stdout=silent, stderr=silent, env=env) as demo:
        deadline = time.monotonic() + GONE_S
        while len(below([demo.pid])) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 4))
        started = below([demo.pid])
        demo.kill()
    gone(started)
    assert left_in(scratch) == []


class TwoMacs:
    """Two nodes with fixed homes and ports; they are started and ended again and again."""

    def __init__(self, model: Path, folder: Path) -> None:
        self._model = model
        self.temporary = folder / "tmp"
        self.homes = [Home(folder / name) for name in "ab"]
        for made in (self.temporary, *(home.root for home in self.homes)):
            made.mkdir(mode=0o700)
        self.ports = [_free_port() for _ in self.homes]
        self._are_paired = False

    def launch(self) -> list[subprocess.Popen[bytes]]:
        return [self._launch(index) for index in range(2)]

    def _launch(self, index: int) -> subprocess.Popen[bytes]:
        home, port, other = self.homes[index], self.ports[index], self.ports[1 - index]
        command = [
            *(sys.executable, "-m", "core.node", "--home", str(home.root), "--name", home.root.name),
            *("--host", LOCAL, "--port", str(port), "--peer", f"{LOCAL}:{other}", "--no-multicast"),
            *("--budget", "8", "--chip", "M4", "--models", str(self._model), "--until-eof"),
        ]
        silent, env = subprocess.DEVNULL, {**os.environ, "PYTHONSAFEPATH": "1", "TMPDIR": str(self.temporary)}
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent, env=env)

    async def answer(self, nodes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
        """Attach, pair if needed, load and ask, as two people do."""
        async with Watch(self.homes[0]) as one, Watch(self.homes[1]) as other:
            for watch, node in zip((one, other), nodes, strict=True):
                await watch.attached(GONE_S, partial(_runs, node))
            if not self._are_paired:
                await pair(one, other)
                self._are_paired = True
            await one.until(both_linked, GONE_S, "Linking")
            await one.client.load(LoadRequest(model=str(self._model)))
            await one.until(lambda w: w.now.plan_status == "ready", GONE_S, "Loading")
            message = Message(role="user", content="tell me about hops")
            asked = await one.client.chat(ChatRequest(messages=(message,), max_tokens=4, raw=True))
            return (await finish(one, asked.request_id)).tokens


def _runs(node: subprocess.Popen[bytes]) -> bool:
    return node.poll() is None


def both_linked(watch: Watch) -> bool:
    return sum(p.state == "connected" and p.trust == "paired" and p.budget_bytes > 0 for p in watch.now.peers) == 2


def _free_port() -> int:
    with socket.create_server((LOCAL, 0)) as found:
        return int(found.getsockname()[1])


def end(nodes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the nodes by closing their standard input."""
    for node in nodes:
        assert node.stdin
        node.stdin.close()
    for node in nodes:
        assert node.wait(GONE_S) == 0


def crash(nodes: Sequence[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        node.kill()
    for node in nodes:
        assert node.stdin
        node.stdin.close()
        node.wait()


async def cycle(macs: TwoMacs, killed_after_s: float | None) -> list[int]:
    """Start and end once; returns the answer, unless the nodes are killed before it."""
    nodes = macs.launch()
    going = asyncio.create_task(macs.answer(nodes))
    try:
        tokens = [] if killed_after_s is not None else await going
        await asyncio.sleep(killed_after_s or 0)
        started = below([node.pid for node in nodes])
        if killed_after_s is None:
            await asyncio.to_thread(end, nodes)
            assert not any(home.socket.exists() for home in macs.homes)
    finally:
        await asyncio.to_thread(crash, nodes)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    await asyncio.to_thread(gone, started)
    return tokens


@pytest.mark.slow
@pytest.mark.promise("P18")
async def test_starts_and_ends_at_random_moments_leave_nothing(made: Make, scratch: Path) -> None:
    """Every second cycle runs up to an answer; in the others the nodes are killed at a random moment before it."""
    macs, chance = TwoMacs(made("llama"), scratch), random.Random(5)
    answers, open_files = [], []
    cycles = 2 * SEARCH + 1
    for number in range(cycles):
        tokens = await cycle(macs, chance.uniform(0, 2.5) if number % 2 else None)
        answers += [tokens] if tokens else []
        assert left_in(macs.temporary) == []
        for port in macs.ports:
            socket.create_server((LOCAL, port)).close()
        open_files.append(psutil.Process().num_fds())
    assert answers == [answers[0]] * (SEARCH + 1)
    assert open_files[-1] <= open_files[0], open_files
