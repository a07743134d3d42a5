"""Kept conversations and an answer of another window, on the screen of a real cluster."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from textual.pilot import Pilot

from core.demo import DEMO_MODEL
from core.requests import ChatRequest, Message
from tests.support.app import text_of
from tests.support.cluster import running_demo
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.client import NodeClient
from tui.screens.sessions import SessionsScreen
from tui.widgets.session_list import SessionList

WAIT_S = 120.0

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[Demo]:
    async with running_demo(DEMO_MODEL, (4, 2)) as running:
        yield running


async def until(pilot: Pilot[None], reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert isinstance(pilot.app, MaclusterApp)
        assert time.monotonic() < deadline, text_of(pilot.app)
        await pilot.pause(0.05)


async def sees(pilot: Pilot[None], *words: str) -> None:
    app = pilot.app
    assert isinstance(app, MaclusterApp)
    await until(pilot, lambda: all(word in text_of(app) for word in words))


async def lists(pilot: Pilot[None], app: MaclusterApp, *words: str) -> SessionList:
    """The list of conversations, once it shows `words` and takes keys."""
    await sees(pilot, *words)
    await until(pilot, lambda: isinstance(app.focused, SessionList))
    assert isinstance(app.screen, SessionsScreen)
    return app.screen.list


@pytest.mark.parametrize("size", [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow")])
async def test_a_conversation_is_kept_taken_up_and_deleted(demo: Demo, size: tuple[int, int], tmp_path: Path) -> None:
    async with NodeClient(demo.home) as client:
        app = MaclusterApp(client, folder=tmp_path)
        async with app.run_test(size=size, notifications=True) as pilot:
            await sees(pilot, "is loaded on 2 Macs")
            app.action_open("sessions")
            await sees(pilot, "No conversation is kept on this Mac yet", "s keeps the one of the chat")
            await pilot.press("s")
            assert "Not now: nothing was said yet." in [n.message for n in app._notifications]
            await pilot.press("escape")
            await until(pilot, lambda: app.focused is app.dashboard.prompt)
            await pilot.press(*"hello", "enter")
            await until(pilot, lambda: len(app.state.turns) == 2 and app.state.answer is None)
            said = app.state.turns[-1].text
            app.action_open("sessions")
            await sees(pilot, "No conversation is kept")
            await pilot.press("s")
            await sees(pilot, "Keep this conversation")
            await pilot.press(*"first", "enter")
            await lists(pilot, app, "first", "macluster-demo", "1 conversation", "MB")
            kept = next(demo.home.sessions.iterdir())
            bad = kept.parent / kept.name.replace("first", "bad")
            bad.write_bytes(kept.read_bytes()[:-9])
            app.pop_screen()
            app.action_new_chat()
            await until(pilot, lambda: not app.state.turns)
            app.action_open("sessions")
            rows = await lists(pilot, app, "2 conversations", "● first", "✗ bad")
            rows.highlighted = next(n for n in range(2) if rows._items[n].name == "first")
            await pilot.press("enter")
            await until(pilot, lambda: bool(app.state.turns) and app.state.turns[-1].text == said)
            await until(pilot, lambda: len(app.screen_stack) == 1)
            app.action_open("sessions")
            rows = await lists(pilot, app, "● first")
            rows.highlighted = next(n for n in range(2) if rows._items[n].name == "first")
            await pilot.press("x")
            await sees(pilot, "Delete first?", "Keep it")
            await pilot.press("down", "enter")
            await sees(pilot, "1 conversation")
            assert max(map(len, text_of(app).splitlines())) == size[0]
            bad.unlink()


async def test_a_new_window_says_that_another_one_s_answer_is_being_written(demo: Demo, tmp_path: Path) -> None:
    async with NodeClient(demo.home) as client:
        asked = ChatRequest(messages=(Message(role="user", content="go on"),), max_tokens=3000, min_tokens=3000)
        accepted = await client.chat(asked)
        app = MaclusterApp(client, folder=tmp_path)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: accepted.request_id in app.state.snapshot.running)
            await sees(pilot, "is loaded on 2 Macs")
            await sees(pilot, "An answer that was asked for elsewhere is being written")
            await pilot.resize_terminal(120, 36)
            await sees(pilot, "● writing")
            await client.cancel(accepted.request_id)
