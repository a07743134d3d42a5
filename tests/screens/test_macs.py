"""The first run over a real node without known Macs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.widgets import Input

from core.settings import Home
from tests.support.nodes import own_port, running_node
from tests.support.person import Person
from tui.app import MaclusterApp
from tui.cli.demo import pair
from tui.client import NodeClient
from tui.screens.check import CheckScreen
from tui.screens.dashboard import Dashboard
from tui.screens.dialogs import AskScreen
from tui.screens.models import ModelsScreen
from tui.screens.pairing import PairingScreen

SIZES = [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly)]
LEAST = (60, 16)


@asynccontextmanager
async def viewer(home: Home, size: tuple[int, int]) -> AsyncIterator[Person]:
    async with NodeClient(home) as client:
        app = MaclusterApp(client)
        async with app.run_test(size=size, notifications=True) as pilot:
            someone = Person(app, pilot)
            await someone.until(lambda: app.state.attached)
            yield someone


def new_home(folder: Path, name: str) -> Home:
    home = Home(folder / name)
    home.root.mkdir(mode=0o700)
    return home


async def test_a_first_run_from_nobody_to_paired(tmp_path: Path) -> None:
    homes = new_home(tmp_path, "studio"), new_home(tmp_path, "air")
    async with running_node(homes[0], "--no-multicast") as one, viewer(homes[0], (120, 36)) as someone:
        for size in ((120, 36), (80, 24)):
            await someone.pilot.resize_terminal(*size)
            await someone.sees("Welcome", "This Mac is ready:  studio · M1 · 8.0 GB", "0 found in", "Nothing found?")
            await someone.sees("a Add", "r Rescan", "c Check")
            assert max(map(len, someone.text.splitlines())) == size[0]
        await someone.pilot.resize_terminal(*LEAST)
        await someone.sees("Welcome", "This Mac is ready")
        await someone.pilot.resize_terminal(80, 24)
        await someone.opens("c", screen=CheckScreen)
        await someone.sees("Check this Mac", "✓ ok", "▲ warning", "Loopback only", "r Again")
        await someone.opens("escape", screen=Dashboard)
        await someone.press("r")
        await someone.sees("This node runs without Bonjour")
        async with running_node(homes[1], "--no-multicast") as two:
            window = await two.client.open_pairing()
            await someone.opens("a", screen=AskScreen)
            await someone.press(*f"127.0.0.1:{window.port}", "enter")
            await someone.until(lambda: isinstance(someone.app.screen, PairingScreen))
            await someone.sees("◍ compare", "air", "Different digits?", "(f: all)")
            await someone.press("f")
            await someone.until(lambda: "(f: all)" not in someone.text)
            assert someone.app.screen.query_one(Input).value == ""
            await someone.opens("escape", screen=Dashboard)
            await pair(one, two)
            await someone.sees("✓ 2  It appears here", "● paired with air", "3  Press Ctrl+O")
            await someone.press("escape")
            await someone.sees("5 Chat")
            await someone.rests()
            assert "Welcome" not in someone.text
            await someone.press("1")
            await someone.sees("1 Peers", "studio", "air")
            assert own_port(two)


@pytest.mark.parametrize("size", SIZES)
async def test_who_has_looked_once_is_not_welcomed_again(tmp_path: Path, size: tuple[int, int]) -> None:
    home = new_home(tmp_path, "studio")
    async with running_node(home, "--no-multicast"), viewer(home, size) as someone:
        await someone.sees("Welcome")
        await someone.press("f2")
        await someone.sees("5 Chat", "No model is loaded")
        await someone.opens("ctrl+o", screen=ModelsScreen)
        await someone.opens("escape", screen=Dashboard)
        await someone.sees("5 Chat")
        await someone.rests()
        assert not someone.app.dashboard.welcome.region.area
