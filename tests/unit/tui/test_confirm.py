"""A person saves a conversation under a name, and resumes it: the chat then shows its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from textual.pilot import Pilot

from core.errors import SessionError
from core.events import Snapshot
from core.requests.answers import Message
from core.requests.conversations import SavedSession, SessionName
from tests.support.app import StillNode, text_of
from tests.support.screen_events import PLAN
from tui.app import MaclusterApp
from tui.screens.conversations import ConversationsScreen
from tui.screens.dialogs import AskScreen
from tui.state import conversation

SAID = (Message(role="user", content="hello"), Message(role="assistant", content="good day"))


class Keeper(StillNode):
    """A node that keeps saved sessions."""

    def __init__(self) -> None:
        super().__init__(Snapshot(plan=PLAN, plan_status="ready"))
        self.kept: dict[str, SavedSession] = {}

    async def save_session(self, wanted: SessionName) -> SavedSession:
        self.kept[wanted.name] = SavedSession(name=wanted.name, model="tiny", tokens=7, messages=SAID)
        return self.kept[wanted.name]

    async def sessions(self) -> list[SavedSession]:
        broken = SavedSession(name="broken", problem=SessionError("It was cut.").problem)
        return [broken, *self.kept.values()]

    async def load_session(self, wanted: SessionName) -> SavedSession:
        return self.kept[wanted.name]


class LateKeeper(Keeper):
    """A node that lists its sessions late."""

    def __init__(self) -> None:
        super().__init__()
        self.tells = asyncio.Event()

    async def sessions(self) -> list[SavedSession]:
        await self.tells.wait()
        return await super().sessions()


class SlowKeeper(Keeper):
    """A node that loads until it is stopped, and then for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped, self.gives_up = asyncio.Event(), asyncio.Event()

    async def load_session(self, wanted: SessionName) -> SavedSession:
        await self.gives_up.wait()
        raise SessionError("It was stopped.")

    async def stop_session(self) -> None:
        self.stopped.set()


K = TypeVar("K", bound=Keeper)


@asynccontextmanager
async def opened(keeper: K) -> AsyncIterator[tuple[MaclusterApp, Pilot[None], K]]:
    app = MaclusterApp(keeper)  # type: ignore[arg-type]
    async with app.run_test(size=(100, 30), notifications=True) as pilot:
        await until(pilot, lambda: app.state.attached)
        await until(pilot, lambda: app.state.attached)
        yield app, pilot, keeper


async def until(pilot: Pilot[None], reached: Callable[[], bool]) -> None:
    for _ in range(500):
        if reached():
            return
        await pilot.pause(0.01)
    pytest.fail("It did not come to that.")


async def test_a_list_that_is_told_late_has_the_cursor_too() -> None:
    async with opened(LateKeeper()) as (app, pilot, keeper):
        app.action_open("conversations")
        await until(pilot, lambda: isinstance(app.screen, ConversationsScreen) and not app.screen.list.display)
        await until(pilot, lambda: app.focused is None)
        keeper.tells.set()
        await until(pilot, lambda: isinstance(app.screen, ConversationsScreen) and app.focused is app.screen.list)


@pytest.mark.slow
async def test_a_conversation_is_kept_and_taken_up() -> None:
    async with opened(Keeper()) as (app, pilot, keeper):
        app.set_state(conversation.taken_up(app.state, SAID, 1.0))
        await app.run_action("keep")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press(*"trip", "enter")
        await until(pilot, lambda: "trip" in keeper.kept)
        app.set_state(conversation.cleared(app.state))
        sessions = app.screen
        assert isinstance(sessions, ConversationsScreen)
        await until(pilot, lambda: sessions.list.option_count == 2)
        sessions.list.highlighted = 1
        await pilot.press("enter")
        await until(pilot, lambda: len(app.state.turns) == 2)
        assert [turn.text for turn in app.state.turns] == ["hello", "good day"]


@pytest.mark.slow
async def test_who_says_no_changes_nothing() -> None:
    async with opened(Keeper()) as (app, pilot, keeper):
        await app.run_action("keep")
        await until(pilot, lambda: any("Nothing has been asked yet." in n.message for n in app._notifications))
        await pilot.press("escape")
        app.set_state(conversation.taken_up(app.state, SAID, 1.0))
        await app.run_action("keep")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, AskScreen))
        assert not keeper.kept


async def test_a_line_that_will_not_do_is_said_so_before_anything_is_asked_of_the_node() -> None:
    async with opened(Keeper()) as (app, pilot, _):
        app.action_add_mac()
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press(*"studio", "enter")
        await until(pilot, lambda: "has no port from 1 to 65535" in text_of(app))
        assert isinstance(app.screen, AskScreen)


@pytest.mark.slow
async def test_esc_stops_what_is_under_way_and_leaves_when_pressed_again() -> None:
    async with opened(SlowKeeper()) as (app, pilot, keeper):
        await keeper.save_session(SessionName(name="trip"))
        app.action_open("conversations")
        await until(pilot, lambda: isinstance(app.screen, ConversationsScreen) and bool(app.screen.list.option_count))
        assert isinstance(app.screen, ConversationsScreen)
        for presses in (1, 2):
            app.screen.list.highlighted = 1
            await pilot.press("enter", *["escape"] * presses)
            await until(pilot, keeper.stopped.is_set)
            if presses == 1:
                keeper.gives_up.set()
                await until(pilot, lambda: any("It was stopped." in n.message for n in app._notifications))
                assert isinstance(app.screen, ConversationsScreen)
                keeper.gives_up.clear()
        await until(pilot, lambda: not isinstance(app.screen, ConversationsScreen))
