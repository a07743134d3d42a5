"""Typed keys arrive as the person meant them: in order, in the prompt, and never as a command by accident."""

from __future__ import annotations

import pytest
from textual.command import CommandList, CommandPalette
from textual.events import Key, Paste
from textual.keys import _character_to_key
from textual.pilot import Pilot

from core.events import Snapshot
from core.requests.answers import ChatRequest, RequestAccepted
from tests.support.app import StillNode
from tests.support.screen_events import PLAN
from tests.support.waiting import until
from tui.app import MaclusterApp
from tui.control.slash_commands import SLASH_COMMANDS
from tui.screens.conversations import ConversationsScreen
from tui.screens.help import HelpScreen
from tui.screens.models import ModelsScreen
from tui.screens.sampling import SamplingScreen

READY = Snapshot(plan=PLAN, plan_status="ready")


class Asked(StillNode):
    """A node that takes questions and never answers."""

    def __init__(self) -> None:
        super().__init__(READY)
        self.questions: list[str] = []

    async def chat(self, request: ChatRequest) -> RequestAccepted:
        self.questions.append(request.messages[-1].content)
        return RequestAccepted(request_id="r", prompt_tokens=1)


def app_of(node: StillNode) -> MaclusterApp:
    return MaclusterApp(node)  # type: ignore[arg-type]


def burst(app: MaclusterApp, *keys: str) -> None:
    """Send all keys in one read of the terminal: texts letter by letter, names of keys as they are."""
    for key in keys:
        for each in [key] if key in ("enter", "f3", "escape", "ctrl+n", "ctrl+u", "f1") else key:
            character = each if len(each) == 1 else None
            app.post_message(Key(_character_to_key(each) if character else each, character))


async def ready(pilot: Pilot[None], app: MaclusterApp) -> None:
    await until(lambda: app.focused is app.prompt)


@pytest.mark.slow
async def test_keys_of_one_read_are_dealt_with_one_after_the_other() -> None:
    node = Asked()
    app = app_of(node)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, app)
        burst(app, "What is a lane?", "enter", "xyz")
        await until(lambda: app.prompt.text == "xyz")
        assert node.questions == ["What is a lane?"]
        burst(app, "f3", "/xylophone")
        await until(lambda: isinstance(app.screen, ConversationsScreen) and app.screen._filter.value == "xylophone")
        burst(app, "escape", "escape", "more")
        await until(lambda: app.prompt.text == "xyzmore")


async def test_what_the_transcript_has_no_key_for_goes_into_the_prompt() -> None:
    app = app_of(Asked())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, app)
        app.dashboard.chat.focus()
        await until(lambda: app.focused is app.dashboard.chat)
        burst(app, "hello")
        await until(lambda: app.prompt.text == "hello" and app.focused is app.prompt)
        app.dashboard.chat.focus()
        await until(lambda: app.focused is app.dashboard.chat)
        app.post_message(Paste("\r\n".join(f"quit {n}" for n in range(200))))
        await until(lambda: app.prompt.text.endswith("quit 199") and app.focused is app.prompt)
        assert app.prompt.text.startswith("helloquit 0\nquit 1\n")
        assert len(app.screen_stack) == 1


@pytest.mark.slow
async def test_a_command_in_the_prompt_is_no_question() -> None:
    node = Asked()
    app = app_of(node)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot, app)
        for command, screen in (("/model", ModelsScreen), ("/help", HelpScreen)):
            burst(app, command, "enter")
            await until(lambda screen=screen: isinstance(app.screen, screen))  # type: ignore[misc]
            await pilot.press("escape")
            await until(lambda: app.focused is app.prompt)
        burst(app, "/what is that?", "enter")
        await until(lambda: node.questions == ["/what is that?"])
    assert all(hasattr(app, f"action_{run.partition('(')[0]}") for run in SLASH_COMMANDS.values())


@pytest.mark.slow
async def test_the_focus_comes_back_to_the_prompt() -> None:
    app = app_of(Asked())
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        app.dashboard.chat.focus()
        await until(lambda: app.focused is app.dashboard.chat)
        burst(app, "ctrl+n", "new")
        await until(lambda: app.prompt.text == "new")
        app.dashboard.chat.focus()
        await pilot.press("ctrl+o")
        await until(lambda: isinstance(app.screen, ModelsScreen))
        await pilot.press("escape")
        await until(lambda: app.focused is app.prompt)
        app.dashboard.peers.focus()
        await pilot.press("f1")
        await until(lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await until(lambda: app.focused is app.dashboard.peers)  # a pane that was in use keeps the focus


def first_of(app: MaclusterApp) -> str:
    """The first command that an open palette lists."""
    lists = [each for each in app.screen.query(CommandList) if each.option_count]
    return str(lists[0].get_option_at_index(0).prompt) if lists else ""


@pytest.mark.slow
async def test_a_colon_opens_the_palette_where_no_text_is_written_and_what_was_chosen_comes_first() -> None:
    app = app_of(Asked())
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        burst(app, "a: b")
        await until(lambda: app.prompt.text == "a: b")
        app.prompt.clear()
        for where in (app.prompt, app.dashboard.chat):
            where.focus()
            await until(lambda where=where: app.focused is where)  # type: ignore[misc]
            burst(app, ":")
            await until(lambda: isinstance(app.screen, CommandPalette))
            burst(app, "system prompt")
            await until(lambda: first_of(app).startswith("Chat settings: temperature, system prompt, format  "))
            burst(app, "enter")
            await until(lambda: isinstance(app.screen, SamplingScreen))
            burst(app, "escape")
            await until(lambda: app.screen is app.dashboard)
        burst(app, ":")
        await until(lambda: isinstance(app.screen, CommandPalette) and first_of(app).startswith("Chat settings"))
        burst(app, "history")  # its name elsewhere comes before titles with these letters somewhere
        await until(lambda: first_of(app).startswith("Conversations: open"))
        burst(app, "ctrl+u", "api")  # the footer's name for it
        await until(lambda: first_of(app).startswith("API for other programs: "))


async def test_a_slash_command_with_words_sets_what_it_names() -> None:
    node = Asked()
    app = app_of(node)
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot, app)
        burst(app, "/temp 0.7", "enter", "/system Be brief.", "enter", "/temp 9", "enter")
        await until(lambda: any("at most 5" in n.message for n in app._notifications))
        options = app.state.chat.options
        assert (options.sampling.temperature, options.system, app.prompt.text) == (0.7, "Be brief.", "/temp 9")
        assert node.questions == []
