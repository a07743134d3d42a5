"""A Mac that serves: a conversation in a terminal, by its node and by its API; the screen."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
import pytest_asyncio

from core.events import RequestDone, TokenEvent
from core.trust.api_keys import ApiKeys
from tests.support.cluster import Make, reference, running_demo
from tests.support.command import macluster
from tests.support.maker import make_model
from tests.support.nodes import free_port, paired_home, running_node
from tests.support.person import Person
from tests.support.terminals import Terminal
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.client import NodeClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "sesame"
FAMILIES = ("llama", "qwen3")
MACLUSTER = (sys.executable, "-m", "tui.cli.main")


class Served:
    """A cluster of one Mac, its API, and a key for it."""

    def __init__(self, demo: Demo, port: int) -> None:
        self.demo, self.url, self.model = demo, f"http://127.0.0.1:{port}", demo.model
        ApiKeys(demo.home.api_keys).add("tests", 1.0, KEY)

    @property
    def run(self) -> list[str]:
        return [*MACLUSTER, "--home", str(self.demo.home.root), "run"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(made: Make) -> AsyncIterator[Served]:
    port = free_port()
    async with running_demo(made("llama", layers=4), (64,), api_ports=(port,)) as demo:
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
    once = await said(served, name, "--url", served.url, "--key", KEY, "-p", "a hop is")
    assert once.startswith(own.splitlines()[1])


async def said(served: Served, *words: str) -> str:
    """Output of `macluster run` in this process."""
    ran = await macluster(served.demo.home.root, "run", *words)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


async def test_an_answer_has_the_shape_that_is_asked_for(served: Served, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"enum": [{"hop": "a"}, {"hop": "b"}]}')
    asked, name = ("-p", "a hop is", "--temperature", "1"), served.model.rpartition("/")[2]
    for model in ((served.model,), (name, "--url", served.url, "--key", KEY)):
        assert json.loads(await said(served, *model, *asked, "--schema", str(schema)))["hop"] in "ab"
    assert await said(served, served.model, *asked, "--regex", "[ab]c{3}") in ("accc\n\n", "bccc\n\n")


def waits(screen: str) -> bool:
    """Wait for a line that starts with this text."""
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
            await head.until(lambda w: any(row.written for row in w.now.batch.rows), 240, "The answer")
            terminal.type("C-c")
            await asyncio.to_thread(terminal.until, waits, "no prompt")
            terminal.type("half")
            await asyncio.to_thread(terminal.shows, "> half")
            terminal.type("C-c")
            await asyncio.to_thread(terminal.until, waits, "no prompt")
            terminal.type("/set max_tokens 9", "Enter")
            await asyncio.to_thread(terminal.shows, "longest answer, in tokens\n>")
            terminal.type("C-d")
            await until(terminal.ended)
        finally:
            terminal.kill()
    assert head.now.last_done is not None
    assert head.now.last_done.finish_reason == "cancelled"
    assert json.loads(home.typed.read_text())["content"] == ["a hop is", "/set max_tokens 9"]


async def test_keys_requests_and_what_to_paste_are_on_the_screen_and_serving_ends_and_begins(
    served: Served, tmp_path: Path
) -> None:
    head, asked = served.demo.head, {"messages": [{"role": "user", "content": "a hop is"}], "max_tokens": 3000}
    copied: list[str] = []
    async with NodeClient(served.demo.home) as client:
        app = MaclusterApp(client, folder=tmp_path)
        app.copy_to_clipboard = copied.append  # type: ignore[method-assign,assignment]
        async with app.run_test(size=(120, 36)) as pilot:
            person = Person(app, pilot)
            await person.sees("5 Chat")
            app.dashboard.action_pane(1)
            await person.press("A")
            await person.sees(f"● on   {served.url}/v1", "tests", "No requests right now")
            await person.press("n")
            await person.sees("New key")
            await person.press(*"laptop", "enter")
            await person.sees("Key laptop", "mck-")
            (key,) = [word for word in person.text.split() if word.startswith("mck-") and "…" not in word]
            await person.press("down", "enter")
            await until(lambda: copied == [key])
            await person.press("right", "right", "right", "y")
            await until(lambda: len(copied) == 2)
            assert f'base_url="{served.url}/v1"' in copied[1]
            async with httpx2.AsyncClient(headers={"x-api-key": key}, verify=False, timeout=60) as http:
                asking = asyncio.create_task(http.post(f"{served.url}/v1/chat/completions", json=asked))
                await person.sees("on · 1 request", "written", f"mck-…{key[-4:]}")
                await until(lambda: len(head.now.batch.rows) == 1)
                (row,) = head.now.batch.rows
                assert row.client == "laptop"
                await person.press("tab", "x")
                await person.sees("Stop the request of laptop?")
                await person.press("down", "enter")
                assert (await asking).status_code == 200
                await person.sees("No requests right now", "no requests")
                await person.press("shift+tab", "down", "x")
                await person.sees("Revoke the key laptop?")
                await person.press("down", "enter")
                await until(lambda: [each.name for each in app.state.snapshot.clients] == ["tests"])
                assert (await http.get(f"{served.url}/v1/models")).status_code == 401
                await person.press("o")
                await person.sees("○ off  Press o to let")
                with pytest.raises(httpx2.ConnectError):
                    await http.get(f"{served.url}/health")
                await person.press("o")
                await person.sees("● on   ")
                assert (await http.get(f"{served.url}/health")).status_code == 200
    assert key not in served.demo.home.log.read_text()


async def test_a_model_of_the_disk_is_loaded_for_whoever_names_it(tmp_path: Path) -> None:
    home, port, models = paired_home(tmp_path, 0, 1), free_port(), tmp_path / "models"
    ApiKeys(home.api_keys).add("tests", 1.0, KEY)
    options = ("--models", str(models), "--no-multicast", "--serve", "--allow-load", "--api-port", str(port))
    for family in FAMILIES:
        make_model(models / family, family, layers=4)
    async with (
        running_node(home, *options, has_worker=True) as node,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", headers={"x-api-key": KEY}, timeout=120) as http,
    ):

        async def listed() -> list[str]:
            return [model["id"] for model in (await http.get("/models")).json()["data"]]

        async with asyncio.timeout(120):
            while len(await listed()) < len(FAMILIES):  # noqa: ASYNC110 - another process looks at its disk
                await asyncio.sleep(0.05)
        asked = {"messages": [{"role": "user", "content": "a hop is"}], "max_tokens": 8}
        for family in FAMILIES:
            reply = await http.post("/chat/completions", json={"model": family, **asked})
            assert (reply.status_code, reply.json()["model"]) == (200, family)
        await node.until(lambda w: [type(event) for event in w.seen].count(RequestDone) == len(FAMILIES), 240, "Both")
        tokens = [event.token for event in node.seen if isinstance(event, TokenEvent)]
        assert tokens == [token for each in FAMILIES for token in reference(models / each, ["a hop is"], 8)[0]]
        assert await listed() == list(reversed(FAMILIES))
