"""Kept conversations, and an answer of another window, on the screen of a real cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from core.demo import DEMO_MODEL
from core.requests.answers import ChatRequest, Message
from tests.support.cluster import running_demo
from tests.support.person import Person
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.client import NodeClient
from tui.screens.conversations import ConversationsScreen
from tui.widgets.conversation_list import ConversationList

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[Demo]:
    async with running_demo(DEMO_MODEL, (4,)) as running:
        yield running


async def lists(person: Person, *words: str) -> ConversationList:
    """The list of conversations, once it shows `words` and takes keys."""
    await person.sees(*words)
    await person.until(lambda: isinstance(person.app.focused, ConversationList))
    assert isinstance(person.app.screen, ConversationsScreen)
    return person.app.screen.list


@pytest.mark.parametrize(
    "size", [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly)]
)
async def test_a_conversation_is_kept_taken_up_and_deleted(demo: Demo, size: tuple[int, int], tmp_path: Path) -> None:
    async with NodeClient(demo.home) as client:
        app = MaclusterApp(client, folder=tmp_path)
        async with app.run_test(size=size, notifications=True) as pilot:
            person = Person(app, pilot)
            await person.sees("is loaded on 1 Mac")
            app.action_open("conversations")
            await person.sees("There are no saved conversations on this Mac yet")
            await person.press("s")
            await person.until(lambda: "Nothing has been asked yet." in [n.message for n in app._notifications])
            await person.press("escape")
            await person.until(lambda: app.focused is app.dashboard.prompt)
            await person.press(*"hello", "enter")
            await person.until(lambda: len(app.state.turns) == 2 and app.state.answer is None)
            said = app.state.turns[-1].text
            app.action_open("conversations")
            await person.sees("hello")
            await person.press("s")
            await person.sees("Save this chat as a session")
            await person.press(*"first", "enter")
            await lists(person, "◆ first", "macluster-demo", "2 conversations")
            kept = next(demo.home.sessions.iterdir())
            bad = kept.parent / kept.name.replace("first", "bad")
            bad.write_bytes(kept.read_bytes()[:-9])
            app.pop_screen()
            app.action_new_chat()
            await person.until(lambda: not app.state.turns)
            app.action_open("conversations")
            rows = await lists(person, "3 conversations", "◆ first", "✗ bad")
            rows.highlighted = next(n for n, row in enumerate(rows._items) if row.title == "first")
            await person.press("enter")
            await person.until(lambda: bool(app.state.turns) and app.state.turns[-1].text == said)
            await person.until(lambda: len(app.screen_stack) == 1)
            app.action_open("conversations")
            rows = await lists(person, "◆ first")
            rows.highlighted = next(n for n, row in enumerate(rows._items) if row.title == "first")
            await person.press("x")
            await person.sees("Delete the session?", "first is deleted", "Cancel")
            await person.press("down", "enter")
            await person.sees("2 conversations")
            assert max(map(len, person.text.splitlines())) == size[0]
            bad.unlink()
    for kept in (*demo.home.conversations.iterdir(), *demo.home.sessions.iterdir()):
        kept.unlink()


async def test_a_new_window_says_that_another_one_s_answer_is_being_written(demo: Demo, tmp_path: Path) -> None:
    async with NodeClient(demo.home) as client:
        asked = ChatRequest(messages=(Message(role="user", content="go on"),), max_tokens=3000, min_tokens=3000)
        accepted = await client.chat(asked)
        app = MaclusterApp(client, folder=tmp_path)
        async with app.run_test(size=(80, 24)) as pilot:
            person = Person(app, pilot)
            await person.until(lambda: accepted.request_id in app.state.snapshot.running)
            await person.sees("is loaded on 1 Mac")
            await person.sees("Another program is using the model")
            await pilot.resize_terminal(120, 36)
            await person.sees("● writing")
            await client.cancel(accepted.request_id)
