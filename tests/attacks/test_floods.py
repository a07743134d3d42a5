"""Floods before authentication: answers continue, token for token, and memory stays. Rates are printed, not judged."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from core.events import LogLine
from core.models.made.maker import make_model
from tests.attacks.victim import port_of
from tests.support.cluster import ask, running_demo
from tui.cli.demo import Demo

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROMPT = "Tell me about the three Macs."
TOKENS = 48
WINDOW_S = 0.5
QUIET_S = 0.2
MIB = 1 << 20


class Window(NamedTuple):
    """Answers written during a flood, and the seconds it took."""

    answers: list[list[int]]
    seconds: float

    @property
    def tokens_per_s(self) -> float:
        return sum(map(len, self.answers)) / self.seconds


async def streamed(demo: Demo, beside: asyncio.Future[Any]) -> Window:
    """Run one answer after the other until `beside` is done."""
    answers, started = [], time.monotonic()
    while not beside.done():
        answers.append((await ask(demo.head, PROMPT, TOKENS)).tokens)
    return Window(answers, time.monotonic() - started)


async def nothing() -> str:
    await asyncio.sleep(QUIET_S)
    return "{}"


async def flood(*words: str) -> str:
    """Flood from another process; returns its counts."""
    command = [sys.executable, "-m", "tests.attacks.flood", *words, "--seconds", str(WINDOW_S)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    return (await asyncio.wait_for(process.communicate(), 240))[0].decode()


@asynccontextmanager
async def peaks(pids: list[int]) -> AsyncIterator[dict[int, int]]:
    """The peak memory of each process meanwhile, in bytes."""
    most: dict[int, int] = {}

    def look() -> None:
        for pid in pids:
            most[pid] = max(most.get(pid, 0), int(psutil.Process(pid).memory_info().rss))

    async def watch() -> None:
        while True:
            look()
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield most
    finally:
        watching.cancel()
        look()


@pytest.mark.promise("P11")
async def test_an_answer_streams_on_while_a_machine_floods_every_port(tmp_path: Path) -> None:
    make_model(tmp_path / "llama", "llama", layers=4)
    async with running_demo(tmp_path / "llama", (64, 32)) as demo:
        nodes = [demo.pid_of(index) for index in range(2)]
        workers = [peer.worker_pid or 0 for peer in demo.head.now.peers]
        every = ",".join(str(port_of(pid)) for pid in (*nodes, *workers))
        expected = (await ask(demo.head, PROMPT, TOKENS)).tokens
        quiet = await streamed(demo, asyncio.create_task(nothing()))
        mark, rates = len(demo.head.seen), {"quiet": quiet.tokens_per_s}
        before = {pid: int(psutil.Process(pid).memory_info().rss) for pid in (*nodes, *workers)}
        async with peaks([*nodes, *workers]) as most:
            floods = asyncio.gather(flood(every, "--silent", "1000"), flood(str(port_of(nodes[0])), "--rate", "200"))
            window = await streamed(demo, floods)
            for made in floods.result():
                print(json.loads(made))
            rates["1,000 silent connections and 200 handshakes a second"] = window.tokens_per_s
            assert all(answer == expected for answer in window.answers)
            assert window.answers
        for name, rate in rates.items():
            print(f"{rate:7.1f} tokens/s, {rate / rates['quiet']:.2f} of quiet: {name}")
        assert max(most[pid] - before[pid] for pid in before) < 20 * MIB
        ends = [e.text for e in demo.head.seen[mark:] if isinstance(e, LogLine) and " is gone: " in e.text]
        assert ends == [], "no link of those that stood ended"
        await demo.load()
        assert (await ask(demo.head, PROMPT, TOKENS)).tokens == expected, "and new links can be made"
