"""What a person has of a Mac that serves: a conversation in a terminal, by its node and by its API."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import pytest_asyncio

from core.trust.api_keys import ApiKeys
from tests.support.cluster import Make, running_demo
from tests.support.terminals import Terminal
from tests.support.waiting import until
from tui.cli.demo import Demo

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sesame"
MACLUSTER = (sys.executable, "-m", "tui.cli.main")


class Served:
    """A cluster of one, its API, and a key of that."""

    def __init__(self, demo: Demo, port: int) -> None:
        self.demo, self.url, self.model = demo, f"http://127.0.0.1:{port}", demo.model
        ApiKeys(demo.home.api_keys).add("tests", 1.0, KEY)

    @property
    def run(self) -> list[str]:
        return [*MACLUSTER, "--home", str(self.demo.home.root), "run"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(made: Make) -> AsyncIterator[Served]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    async with running_demo(made("llama"), (64,), api_port=port) as demo:
        yield Served(demo, port)


async def piped(*command: str, lines: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate(lines.encode())
    assert (process.returncode, err) == (0, b"")
    return out.decode()


async def test_a_pipe_gets_the_same_answers_from_the_node_and_from_its_api(served: Served) -> None:
    lines = "/set max_tokens 12\na hop is\nand a lane\n"
    own = await piped(*served.run, served.model, lines=lines)
    assert own.startswith("max_tokens  12")
    assert len(own.split("\n\n")) == 3
    name = served.model.rpartition("/")[2]
    assert await piped(*served.run, name, "--url", served.url, "--key", KEY, lines=lines) == own
    once = await piped(*served.run, name, "--url", served.url, "--key", KEY, "-p", "a hop is", lines="")
    assert once.startswith(own.splitlines()[1])


def waits(screen: str) -> bool:
    """For a line, which begins."""
    return screen.rstrip().endswith("\n>")


@pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")
async def test_in_a_terminal_ctrl_c_stops_the_answer_and_what_was_asked_is_remembered(served: Served) -> None:
    head, home = served.demo.head, served.demo.home
    with TemporaryDirectory(prefix="mc") as folder:
        words = ("--home", str(home.root), "run", served.model, "--max-tokens", "3000")
        terminal = Terminal(Path(folder) / "s", 200, 24, *words)
        try:
            await asyncio.to_thread(terminal.until, waits, "no prompt")
            terminal.type("a hop is", "Enter")
            await head.until(lambda w: any(row.written for row in w.now.batch.rows), 60, "The answer")
            terminal.type("C-c")
            await asyncio.to_thread(terminal.until, waits, "no prompt")
            terminal.type("half")
            await asyncio.to_thread(terminal.shows, "> half")
            terminal.type("C-c")
            await asyncio.to_thread(terminal.until, waits, "no prompt")
            terminal.type("/set max_tokens 9", "Enter")
            await asyncio.to_thread(terminal.shows, "ends after this many\n>")
            terminal.type("C-d")
            await until(terminal.ended)
        finally:
            terminal.kill()
    assert head.now.last_done is not None
    assert head.now.last_done.finish_reason == "cancelled"
    assert home.typed.read_text() == '"a hop is"\n"/set max_tokens 9"\n'
