"""Attacks on a cluster that answers.

T14: after a kept answer, nothing of the prompt or the answer lies in clear in any file of any Mac. Floods before
authentication: answers continue, token for token, and memory stays. Rates are printed, not judged.
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import pytest_asyncio

from core.events import LogLine
from core.models.text.tokenizer import Tokens
from core.node.disks.conversation_file import SUFFIX
from core.requests.answers import Message
from core.requests.conversations import Conversation, KeptTurn
from tests.attacks.victim import port_of
from tests.support.cluster import ask, running_demo
from tests.support.maker import make_model
from tui.cli.demo import Demo

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
SECRET = "the canary sleeps where nobody else may read its dream"
PROMPT = "Tell me about the three Macs."
TOKENS = 24
WINDOW_S = 0.5
QUIET_S = 0.2
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "llama"
    make_model(directory, "llama", layers=4)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(model: Path) -> AsyncIterator[Demo]:
    async with running_demo(model, (64, 32)) as running:
        yield running


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


@pytest.mark.promise("P30", "T14")
async def test_no_file_of_any_mac_holds_the_words_or_the_tokens(demo: Demo, model: Path) -> None:
    answer = await ask(demo.head, SECRET, 40)
    turns = (KeptTurn(role="user", text=SECRET, at=1.0), KeptTurn(role="assistant", text=answer.text, at=2.0))
    kept = Conversation(id="ab" * 16, title=SECRET, created_at=1.0, changed_at=1.0, turns=turns)
    await demo.head.client.keep_conversation(kept)
    files = [path for path in demo.home.root.parent.rglob("*") if path.is_file()]
    written = {path: path.read_bytes() for path in files}
    assert any(path.is_relative_to(demo.home.tokens) for path in files), "the head keeps a log of the tokens"
    assert any(path.suffix == SUFFIX for path in files), "and the conversation"
    prompt = Tokens.load(model).encode([Message(role="user", content=SECRET)], raw=False)
    words = [said[i : i + 8] for said in (SECRET.encode(), answer.text.encode()) for i in range(len(said) - 7)]
    runs = [ids[i : i + 4] for ids in (prompt, answer.tokens) for i in range(len(ids) - 3)]
    numbers = [struct.pack(f"{order}4{width}", *run) for run in runs for order in "<>" for width in "HIQ"]
    spelled = [", ".join(map(str, run)).encode() for run in runs] + [",".join(map(str, run)).encode() for run in runs]
    canaries = {*words, *numbers, *spelled}
    assert len(canaries) > 300
    for path, content in written.items():
        assert not [canary for canary in canaries if canary in content], path


@pytest.mark.promise("P11")
async def test_an_answer_streams_on_while_a_machine_floods_every_port(demo: Demo) -> None:
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
