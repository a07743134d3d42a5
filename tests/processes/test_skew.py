"""Macs of different versions: paired, linked and shown; a model is shared, or refused in words."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import core
from core.errors import PlanError
from core.requests.plans import LoadRequest, PreviewRequest
from tests.support.cluster import Make, ask, running_demo
from tests.support.command import macluster
from tui.cli.demo import START_S, Demo
from tui.cli.load import loaded
from tui.cli.watch import Watch

HERE = Path(__file__).parents[2]
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

GREETS = "            await contact.link.send(*to_frame(self.greeting))\n"
TELLS = """            await contact.link.send(FrameType.LOG, b'{"type":"Told"}')\n"""
LATER = {
    "version.py": [('RELEASE: Final = "0.1.0"', 'RELEASE: Final = "0.3.0"')],
    "events.py": [("    output: str  # device id", '    colour: str = "green"\n    output: str  # device id')],
    "node/peers/messages.py": [("    has_model: bool = False", "    mood: str = ''\n    has_model: bool = False")],
    "node/peers/mesh.py": [(GREETS, GREETS + TELLS)],
}
FAR = {"version.py": [*LATER["version.py"], ("WIRE: Final = (1, 1)", "WIRE: Final = (2, 2)")]}


def tree(folder: Path, changes: dict[str, list[tuple[str, str]]]) -> Path:
    """A copy of macluster with those changes."""
    shutil.copytree(Path(core.__file__).parent, folder / "core", ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in changes.items():
        file = folder / "core" / name
        text = file.read_text()
        for before, after in edits:
            assert before in text, before
            text = text.replace(before, after, 1)
        file.write_text(text)
    return folder


async def updated(demo: Demo, folder: Path) -> Watch:
    """The second Mac, started again with the macluster in `folder`."""
    node = demo._nodes[1]
    await demo.pull("mbp")
    assert node.stdin
    node.stdin.close()
    os.environ["PYTHONPATH"] = str(folder)
    try:
        await demo.plug("mbp")
    finally:
        del os.environ["PYTHONPATH"]
    watch = demo.watches[1] = await demo._stack.enter_async_context(Watch(demo._home(1)))
    await watch.attached(START_S, lambda: demo._lives(1))
    return watch


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama", layers=4), (1.5, 1.5), load=None) as running:
        yield running


def of_both(demo: Demo) -> LoadRequest:
    """The model over both Macs: the caches of its context fit on neither alone."""
    return LoadRequest(model=demo.model, context=1 << 19)


async def test_a_later_version_with_more_fields_and_messages_leads_a_model_on_both(demo: Demo, tmp_path: Path) -> None:
    later = await updated(demo, tree(tmp_path, LATER))
    await later.until(demo._all_linked, START_S, "Linking")
    await loaded(later, of_both(demo))
    assert len((await ask(later, "Hello", 4)).tokens) == 4
    shown = next(peer for peer in demo.head.now.peers if not peer.is_self)
    assert (shown.state, shown.version) == ("connected", "0.3.0")
    assert "macluster 0.3.0" in (await macluster(demo.home.root, "doctor")).stdout
    assert " 0.3.0 " in (await macluster(demo.home.root, "peers")).stdout
    assert [line.text for line in demo.head.now.logs if "can't read a control frame 0x23 Told" in line.text] != []
    assert demo.head.now.counters.ignored_messages > 0


async def test_macs_without_a_common_version_stay_linked_and_a_load_says_which_one_to_update(
    demo: Demo, tmp_path: Path
) -> None:
    await updated(demo, tree(tmp_path, FAR))

    def is_shown(watch: Watch) -> bool:
        return any(peer.state == "needs an update" and peer.rtt_s for peer in watch.now.peers)

    await demo.head.until(is_shown, START_S, "The state of the other Mac")
    words = "mbp has macluster 0.3.0, this Mac macluster 0.1.0"
    with pytest.raises(PlanError, match=rf"{words}.*On this Mac: type the lines that `macluster update`"):
        await loaded(demo.head, of_both(demo))
    alone = (await demo.head.client.plan(PreviewRequest(model=demo.model))).plan
    assert alone
    assert words in alone.notes[-1]
    for command in ("peers", "doctor"):
        assert words in (await macluster(demo.home.root, command)).stdout
    assert words in (await macluster(demo.home.root, "trust", "list")).stdout
    assert is_shown(demo.head), "the link stayed"


def last_release() -> str:
    asked = ["git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
    return subprocess.run(asked, cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()


def unpacked(tag: str, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", tag, "core", "tui"], cwd=HERE, capture_output=True, check=True)
    subprocess.run(["tar", "x"], cwd=folder, input=archive.stdout, check=True)


def status_by(tree: Path, home: Path) -> str:
    """The output of `status` for the node of `home`, by the macluster in `tree`."""
    command = [sys.executable, "-m", "tui.cli.main", "--home", str(home), "status"]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_S, check=True).stdout


@pytest.mark.nightly
@pytest.mark.skipif(not last_release(), reason="Nothing has been released.")
async def test_the_last_release_shares_a_model_with_this_version_or_says_why_not(demo: Demo, tmp_path: Path) -> None:
    tag = last_release()
    unpacked(tag, tmp_path)
    earlier = await updated(demo, tmp_path)
    await demo.head.until(lambda watch: all(peer.version for peer in watch.now.peers), START_S, "The greetings")
    shown = next(peer for peer in demo.head.now.peers if not peer.is_self)
    assert shown.version == tag.removeprefix("v")
    if shown.problem:
        with pytest.raises(PlanError, match="they can't share a model"):
            await loaded(demo.head, of_both(demo))
    else:
        await demo.head.until(demo._all_linked, START_S, "Linking")
        await loaded(earlier, of_both(demo))
        assert len((await ask(earlier, "Hello", 4)).tokens) == 4
    node = demo._home(1).root
    assert f"macluster {shown.version}" in (await macluster(node, "status")).stdout
    assert shown.name in await asyncio.to_thread(status_by, tmp_path, demo.home.root)
