"""The trust screen over two real nodes: its texts, and no change without a confirmation."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from textual.widgets import Input

from core.settings import Home
from core.trust.roster.store import RosterStore
from tests.support.macs import mac
from tests.support.nodes import own_port, paired_home, running_node
from tests.support.person import Person
from tui.app import MaclusterApp
from tui.cli.watch import Watch
from tui.client import NodeClient
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.screens.trust import TrustScreen

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LINKED_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def linked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Home, Home]]:
    """Two paired nodes with a link between them; the first is the admin's, and the last test revokes the other."""
    folder = tmp_path_factory.mktemp("macs")
    homes = paired_home(folder, 0), paired_home(folder, 1)
    async with running_node(homes[0], "--no-multicast") as one:
        where = f"127.0.0.1:{own_port(one)}"
        async with running_node(homes[1], "--no-multicast", "--peer", where) as two:
            for watch in (one, two):
                await watch.until(both_linked, LINKED_S, "Linking")
            yield homes


def both_linked(watch: Watch) -> bool:
    return sum(p.state == "connected" for p in watch.now.peers) == 2


@asynccontextmanager
async def trust_screen(home: Home, size: tuple[int, int]) -> AsyncIterator[Person]:
    async with NodeClient(home) as client:
        app = MaclusterApp(client)
        async with app.run_test(size=size, notifications=True) as pilot:
            viewer = Person(app, pilot)
            await viewer.until(lambda: app.state.attached)
            await viewer.opens("t", screen=TrustScreen)
            await viewer.sees(
                "This Mac's key", f"epoch {epoch(home)}", "key SHA-256", *(mac(n).text_id[:8] for n in (0, 1))
            )
            yield viewer


def epoch(home: Home) -> int:
    current = RosterStore(home.rosters).current
    assert current
    return current.epoch


@pytest.mark.parametrize("size", [pytest.param((120, 36), marks=pytest.mark.nightly), (80, 24)])
async def test_a_member_sees_all_and_is_told_why_it_may_change_nothing(
    linked: tuple[Home, Home], size: tuple[int, int]
) -> None:
    async with trust_screen(linked[1], size) as viewer:
        await viewer.sees("this Mac isn't admin", "◆ paired", "in a file only you can read", "▲ none", "admin")
        assert max(map(len, viewer.text.splitlines())) == size[0]
        await viewer.press("x")
        await viewer.sees("Only an admin Mac can do this.")
        await viewer.rests()
        assert isinstance(viewer.app.screen, TrustScreen), "no question without the right to act"
        await viewer.press("f")
        await viewer.sees(*groups(mac(0).public)[3:6])
        await viewer.press("escape")
        await viewer.until(lambda: not isinstance(viewer.app.screen, TrustScreen))


def groups(public: bytes) -> list[str]:
    text = hashlib.sha256(public).hexdigest().upper()
    return [text[i : i + 4] for i in range(0, 64, 4)]


async def test_recovery_words_stay_until_they_are_written_down_and_wrong_ones_do_nothing(
    linked: tuple[Home, Home],
) -> None:
    home, _ = linked
    async with trust_screen(home, (80, 24)) as viewer:
        await viewer.press("r")
        await viewer.sees("No recovery words exist yet.")
        await viewer.opens("w", screen=ChoiceScreen)
        await viewer.sees("Make recovery words?", "Cancel")
        await viewer.press("down", "enter")
        await viewer.sees("Write these words down", "24 ", "I have written them down")
        await viewer.press("escape", "enter", "escape")
        await viewer.sees("Write these words down")
        await viewer.opens("down", "enter", screen=TrustScreen)
        await viewer.sees("epoch 3", "● created")
        await viewer.opens("r", screen=AskScreen)
        viewer.app.screen.query_one(Input).value = "abandon " * 24
        await viewer.press("enter")
        await viewer.sees("Lost Macs")
        await viewer.opens("enter", screen=TrustScreen)
        await viewer.until(lambda: any(n.severity == "error" for n in viewer.app._notifications))
        assert epoch(home) == 3


async def test_an_admin_is_asked_first_and_the_safe_answer_is_the_first(linked: tuple[Home, Home]) -> None:
    home, _ = linked
    before = epoch(home)
    async with trust_screen(home, (120, 36)) as viewer:
        await viewer.opens("x", screen=TrustScreen)
        await viewer.sees("This is the only admin.")
        await viewer.opens("j", "x", screen=ChoiceScreen)
        await viewer.sees(f"({mac(1).text_id[:8]})?", "It is removed on every Mac", "Cancel")
        await viewer.opens("enter", screen=TrustScreen)
        await viewer.opens("x", screen=ChoiceScreen)
        await viewer.opens("escape", screen=TrustScreen)
        assert epoch(home) == before

        await viewer.opens("a", screen=ChoiceScreen)
        await viewer.opens("down", "enter", screen=TrustScreen)
        await viewer.sees(f"epoch {before + 1}")
        await viewer.opens("n", screen=AskScreen)
        viewer.app.screen.query_one(Input).value = "attic"
        await viewer.opens("enter", screen=TrustScreen)
        await viewer.sees(f"epoch {before + 2}", "attic")
        await viewer.opens("x", screen=ChoiceScreen)
        await viewer.opens("down", "enter", screen=TrustScreen)
        await viewer.sees(f"epoch {before + 3}", "revoked", "✗ attic")
