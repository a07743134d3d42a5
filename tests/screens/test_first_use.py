"""From the first start to the last key: the real app in a real terminal over real nodes."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import psutil
import pytest

from core.settings import Home
from tests.screens.conftest import Open
from tests.support.maker import make_model
from tests.support.nodes import own_port, running_node
from tests.support.terminals import Terminal, assert_gone, paused_at

pytestmark = [pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux"), pytest.mark.slow]

SIZES = [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly)]
LOFT, PORCH = "loft", "porch"
# the first run is tested without other Macs, whatever else runs on this machine
ALONE = "--no-multicast"
LONGEST = "─── stopped at the token limit ───"


@pytest.mark.parametrize("size", SIZES)
async def test_from_the_first_start_to_the_last_key(tmp_path: Path, terminal: Open, size: tuple[int, int]) -> None:
    model = tmp_path / "endless"  # it never ends an answer by itself
    make_model(model, "llama")
    loft, porch = (Home(tmp_path / name) for name in (LOFT, PORCH))
    for home in (loft, porch):
        home.root.mkdir(mode=0o700)
    async with running_node(loft, ALONE, "--models", str(model), has_worker=True) as node:
        mine = terminal(*size, "--home", str(loft.root))
        await asyncio.to_thread(first_run, mine)
        where = f"127.0.0.1:{own_port(node)}"
        async with running_node(porch, ALONE, "--models", str(model), "--peer", where, has_worker=True):
            theirs = terminal(*size, "--home", str(porch.root))
            await asyncio.to_thread(meet, mine, theirs)
            await asyncio.to_thread(load, mine)
            await asyncio.to_thread(ask_and_stop, mine)
            await asyncio.to_thread(edit, mine)
            await asyncio.to_thread(lose, mine, porch)
            await asyncio.to_thread(recover, mine)
            await asyncio.to_thread(quit_from, theirs, "✗ not running", "was killed")
        mine.type("words not sent yet")
        await asyncio.to_thread(quit_from, mine, "words not sent yet")
        again = terminal(*size, "--home", str(loft.root))
        await asyncio.to_thread(quit_from, again, "words not sent yet", "tok/s", "endless")  # in their conversation
        assert node.now.plan_status == "ready"


def first_run(mine: Terminal) -> None:
    """Check that an empty screen names the next step, and its checks."""
    mine.shows(
        "Welcome", "This Mac is ready", LOFT, "Looking for other Macs…  0 found", "Nothing found?", "Ctrl+Q Quit"
    )
    mine.type("c")
    mine.shows("Check this Mac", "warning", "It listens at 127.0.0.1:", "None was found.", "memory")
    mine.type("End")
    mine.shows("programs", "textual")
    mine.type("Escape")
    mine.shows("Welcome", "Nothing found?")


def meet(mine: Terminal, theirs: Terminal) -> None:
    """Pair two Macs that don't find each other: one person types the address, then both type the digits."""
    theirs.shows("Welcome", "Nothing found?", "Ctrl+Q Quit")
    theirs.type("p")
    theirs.shows("Which Mac?", "· another Mac")
    theirs.type("Enter")
    theirs.shows("◌ waiting", "This Mac's address (type it there):")
    address = theirs.finds(r"(127\.0\.0\.1:\d+)\D")
    mine.type("a")
    mine.shows("Add a Mac by address")
    mine.type(address, "Enter")
    for screen in (mine, theirs):
        screen.shows("◍ compare")
    one, other = (screen.finds(r"shows +(\d{3} \d{3})") for screen in (mine, theirs))
    assert one == other, "nobody is in between"
    for screen in (mine, theirs):
        screen.type(one, "Enter")
    for screen, name in ((mine, PORCH), (theirs, LOFT)):
        screen.shows("◆ paired", f"{name} is now one of your Macs")
        screen.type("Enter")
        screen.shows("Welcome", f"● paired with {name}", "✓ 2")
        screen.until(lambda s: re.search(r"● 2( of |/)2 Macs", s) is not None, "not linked")


def load(mine: Terminal) -> None:
    """Load the first model."""
    mine.type("C-o")
    mine.shows("Choose a model", "endless")
    mine.type("h")
    mine.shows("Models on the hub", "Qwen3-", "Licence")
    mine.type("h")
    mine.shows("on disk", "endless")
    mine.type("Enter")
    mine.shows("is loaded on 2 Macs", "Ask anything")


def ask_and_stop(mine: Terminal) -> None:
    """Ask, and stop the answer with Esc."""
    mine.type("what is a layer?", "Enter")
    mine.until(lambda s: "what is a layer?" in s and tokens(s) >= 5, "no answer began")
    mine.type("Escape")
    mine.shows("─── stopped by you ───")


def edit(mine: Terminal) -> None:
    """Move one layer from this Mac to the other one."""
    mine.type("F4")
    mine.shows("Edit split", "moving boundary ①", f"{LOFT} | {PORCH}", "unchanged")
    before = layers(mine.until(lambda s: sum(layers(s)) == 8, "the layers are not told"))
    after = before[0] - 1, before[1] + 1
    mine.type("Left")
    mine.until(lambda s: layers(s) == after and "not applied" in s, "the boundary did not move")
    mine.type("Enter")
    mine.shows("Apply this split?", "unloads the model and loads it again on 2 Macs", "Cancel")
    mine.type("Down", "Enter")
    mine.until(lambda s: "Edit split" not in s, "the editor did not close")
    mine.type("F4")
    mine.until(lambda s: layers(s) == after and "Currently loaded" in s, "it was not applied")
    mine.type("Escape")
    mine.until(lambda s: "Edit split" not in s, "the editor did not close")
    mine.shows("Ask anything", f" 0–{after[0] - 1} ", f" {after[0]}–7")


def tokens(screen: str) -> int:
    """Tokens of the running answer; 0 before the first count."""
    counted = re.search(r"(\d+) tok .*· Esc: stop", screen)
    return int(counted[1]) if counted else 0


def layers(screen: str) -> tuple[int, int]:
    """Layers of both Macs below the editor's bar; zeros without the editor."""
    found = re.search(rf"{LOFT} · (\d+)(?: layers?)?\s+{PORCH} · (\d+)", screen)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def lose(mine: Terminal, porch: Home) -> None:
    """Kill the other Mac in the middle of an answer."""
    mine.type("and what is a hop?", "Enter")
    mine.until(lambda s: "and what is a hop?" in s and tokens(s) >= 5, "no answer began")
    node_of(porch).kill()


def recover(mine: Terminal) -> None:
    """Continue the answer here and stop it, unless it has reached its full length before."""
    held = mine.shows(f"{PORCH} is offline", "Nothing lost so far", "1▸ Continue", "Stop", "paused at token")
    mine.shows(f"─── {PORCH} dropped out", "holds the whole model")
    mine.until(lambda s: s.count(f"─── {PORCH} dropped out") <= 1 and "keep what's written" not in s, "the offer stays")
    mine.finds(r" 1( of |/)2 Macs")
    mine.until(lambda s: tokens(s) > paused_at(held) or LONGEST in s, "the answer does not go on")
    mine.type("Escape")
    mine.until(lambda s: "Esc: stop" not in s and ("─── stopped by you ───" in s or LONGEST in s), "it did not stop")


def quit_from(screen: Terminal, *last_words: str) -> None:
    """Quit; nothing of the screen may remain."""
    screen.shows(*last_words)
    processes = screen.processes()
    screen.type("C-q")
    assert_gone(processes)


def node_of(home: Home) -> psutil.Process:
    """The node over that folder, which this test started."""
    return next(p for p in psutil.Process().children(recursive=True) if str(home.root) in p.cmdline())
