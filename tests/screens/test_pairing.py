"""Two people at two dashboards, each with their own Mac: real nodes, two real terminals."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from core.settings import Home
from tests.screens.conftest import Open
from tests.support.nodes import running_node
from tests.support.terminals import Terminal

pytestmark = [
    pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux"),
    pytest.mark.slow,
    pytest.mark.usefixtures("bonjour"),
]

SEEN_S = 120.0
# no demo has these names: concurrent tests may be seen too
NAMES = ("atelier", "garage")


async def test_they_pair_by_typing_each_others_digits(tmp_path: Path, terminal: Open) -> None:
    homes = [Home(tmp_path / name) for name in NAMES]
    for home in homes:
        home.root.mkdir(mode=0o700)
    async with running_node(homes[0]) as one, running_node(homes[1]) as two:
        for watch in (one, two):
            await watch.until(lambda w: set(NAMES) <= {p.name for p in w.now.peers}, SEEN_S, "Bonjour")
        atelier, garage = (terminal(120, 36, "--home", str(home.root)) for home in homes)
        await asyncio.to_thread(journey, atelier, garage, homes)


def journey(atelier: Terminal, garage: Terminal, homes: list[Home]) -> None:
    atelier.shows("garage", "not paired · press p", "p Pair", "◆ paired")
    shown = compare(atelier, garage)
    atelier.type(other(shown), "Enter")
    for screen in (atelier, garage):
        screen.shows("✗ failed", "Nothing was")
        screen.type("Escape")
        screen.until(lambda s: "✗ failed" not in s, "the dialog did not close")
    assert [list(home.rosters.iterdir()) for home in homes] == [[], []]

    shown = compare(atelier, garage)
    atelier.type("Enter")  # an empty line is no answer
    atelier.type(shown)
    atelier.shows("◍ compare", f"garage shows  {shown}")
    atelier.type("Enter")
    atelier.shows("◍ compare", "Now type these digits on garage")
    garage.type(shown, "Enter")
    for screen in (atelier, garage):
        screen.shows("◆ paired", "is now one of your Macs")
        screen.type("Enter")
        screen.until(lambda s: s.count("◆ paired · ready") == 2, "not linked")
    assert all(list(home.rosters.iterdir()) for home in homes)

    for screen in (atelier, garage):
        screen.type("t")
        screen.shows("This cluster", "This Mac's key", "epoch 2", "Recovery words", "key SHA-256")
    atelier.until(
        lambda _: any("· this Mac is admin" in each.screen() for each in (atelier, garage)), "nobody is admin"
    )
    admin, other_mac = (atelier, "garage") if "· this Mac is admin" in atelier.screen() else (garage, "atelier")
    member = garage if admin is atelier else atelier
    member.type("Escape")
    member.shows("5 Chat")
    member.type("p", "Enter")  # in one read; a member can't pair, which is shown before any digits are typed
    member.shows("This Mac is in a cluster, but not an admin of it.")
    admin.type("j", "x")  # the first line is the founder's own
    admin.shows("It is removed on every Mac", "Cancel", "Enter: choose")
    admin.type("Escape")
    admin.until(lambda s: "It is removed on every" not in s, "the question did not go away")
    admin.until(lambda s: "epoch 2" in s and f"◆▸{other_mac}" in s and "revoked" not in s, "it is not as it was")


def compare(atelier: Terminal, garage: Terminal) -> str:
    """Open the dialog on both, choose each other, and read the digits."""
    for screen, name in ((atelier, "garage"), (garage, "atelier")):
        screen.shows(name, "not paired · press p", "p Pair")  # keys before this are lost
        screen.type("p")
        screen.shows("Which Mac?", f"○ {name}")
        choose(screen, name)
        screen.until(lambda s: "Which Mac?" not in s, "nothing was chosen")
    for screen in (atelier, garage):
        screen.shows("◍ compare")
    one, other = (screen.finds(r"shows +(\d{3} \d{3})") for screen in (atelier, garage))
    assert one == other, "nobody is in between"
    return one


def choose(screen: Terminal, name: str) -> None:
    """Move down to that line of the list and choose it."""
    line = re.compile(r"║ +○[ ▸](\S+)")
    listed = line.findall(screen.until(lambda s: name in line.findall(s), "it is not in the list"))
    screen.type(*["Down"] * listed.index(name), "Enter")


def other(digits: str) -> str:
    return f"{(int(digits.replace(' ', '')) + 1) % 1_000_000:06d}"
