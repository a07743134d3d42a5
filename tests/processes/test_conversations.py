"""Conversations on the screen, on real nodes: asked, edited, asked again, left, found, exported, deleted."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import msgspec
import pytest
import pytest_asyncio
from textual.widgets import Input

from core.requests.conversations import ChatOptions, Conversation, ConversationId, ConversationInfo
from tests.support.cluster import ANSWER_S, Make, running_demo
from tests.support.person import Person
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.screens.conversations import ConversationsScreen
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.screens.sampling import SamplingScreen

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOKENS = 12
SIZES = [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow")]
WIDE_FIRST = [SIZES[0], pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama"), (64, 32)) as demo:
        yield demo


class Talker(Person):
    """A user who asks, and whose conversations are kept."""

    async def answered(self, messages: int) -> None:
        await self.until(lambda: len(self.app.state.turns) == messages and self.app.state.answer is None)

    async def asks(self, text: str) -> None:
        before = len(self.app.state.turns)
        self.app.dashboard.prompt.focus()
        self.app.dashboard.prompt.text = text
        await self.press("enter")
        await self.answered(before + 2)

    async def kept(self, count: int) -> list[ConversationInfo]:
        """Wait until the node keeps `count` conversations and none waits to be saved; returns them."""
        deadline = monotonic() + ANSWER_S
        while True:
            await self.app.conversations.settle()
            found = await self.app.client.conversations()
            if len(found) == count and not self.app.conversations._waiting:
                return found
            assert monotonic() < deadline, found
            await self.pilot.pause(0.02)


@asynccontextmanager
async def person(demo: Demo, size: tuple[int, int]) -> AsyncIterator[Talker]:
    for info in await demo.head.client.conversations():
        await demo.head.client.delete_conversation(ConversationId(id=info.id))
    app = MaclusterApp(demo.head.client)
    async with app.run_test(size=size, notifications=True) as pilot:
        someone = Talker(app, pilot)
        await someone.until(lambda: app.state.snapshot.plan_status == "ready")
        app.chat.ask_with(ChatOptions(max_tokens=TOKENS))
        yield someone


@pytest.mark.parametrize("size", SIZES)
async def test_edit_and_retry_lose_nothing_and_old_ones_are_found(
    demo: Demo, size: tuple[int, int], tmp_path: Path
) -> None:
    async with person(demo, size) as someone:
        app = someone.app
        await someone.asks("first question")
        await someone.asks("second question")
        (info,) = await someone.kept(1)
        assert (info.title, info.messages, info.tokens) == ("first question", 4, 2 * TOKENS)

        app.dashboard.chat.focus()
        await someone.press("left_square_bracket", "left_square_bracket", "e")
        await someone.until(lambda: app.dashboard.prompt.text == "second question")
        await someone.sees("Esc: cancel")
        await someone.press("escape")
        await someone.until(lambda: app.state.editing == 0)
        await someone.rests()
        assert (len(app.state.turns), app.dashboard.prompt.text) == (4, ""), "nothing is lost"

        app.dashboard.chat.focus()
        await someone.press("e")
        await someone.until(lambda: app.state.editing != 0)
        app.dashboard.prompt.text = "second, better"
        await someone.press("enter")
        await someone.until(lambda: app.state.turns[2].text == "second, better")
        await someone.answered(4)
        await someone.sees("2/2 ‹ ›")
        app.dashboard.chat.focus()
        await someone.press("less_than_sign")
        await someone.until(lambda: app.state.turns[2].text == "second question")
        await someone.sees("1/2 ‹ ›", "second question")
        await someone.press("greater_than_sign")
        await someone.until(lambda: app.state.turns[2].text == "second, better")

        await someone.press("ctrl+r")
        await someone.answered(4)
        assert [len(app.state.turns), len(app.state.others)] == [4, 3]
        await someone.kept(1)
        await someone.press("ctrl+n")
        await someone.until(lambda: app.state.turns == ())

        await someone.opens("f3", screen=ConversationsScreen)
        await someone.sees("first question", "1 conversation", "4 messages")
        await someone.press("slash", *"no such")
        await someone.sees("Nothing found.")
        await someone.press("escape")
        await someone.sees("1 conversation")
        await someone.press("enter")
        await someone.until(lambda: app.state.chat.id == info.id and app.screen is app.dashboard)
        assert [t.text for t in app.state.turns if t.role == "user"] == ["first question", "second, better"]
        assert len(app.state.others) == 3, "all branches are there again"
        assert app.state.turns[-1].rate
        app.dashboard.prompt.focus()
        await someone.press("up", "up")
        assert app.dashboard.prompt.text == "first question"
        await someone.asks("third question")
        assert [i.messages for i in await someone.kept(1)] == [6]


@pytest.mark.parametrize("size", WIDE_FIRST)
async def test_rename_export_and_delete(demo: Demo, size: tuple[int, int], tmp_path: Path) -> None:
    async with person(demo, size) as someone:
        app = someone.app
        await someone.opens("f3", screen=ConversationsScreen)
        await someone.sees("There are no saved conversations on this Mac yet", "Esc")
        await someone.press("escape")
        await someone.asks("to be named")
        (info,) = await someone.kept(1)
        await someone.opens("f3", screen=ConversationsScreen)
        await someone.sees("to be named")

        await someone.opens("r", screen=AskScreen)
        app.screen.query_one(Input).value = "Rings"
        await someone.press("enter")
        await someone.until(lambda: app.state.chat.title == "Rings")
        await someone.sees("● Rings")

        for path in (tmp_path / "said.md", tmp_path / "said.json"):
            await someone.opens("e", screen=AskScreen)
            assert app.screen.query_one(Input).value == "~/macluster-Rings.md"
            app.screen.query_one(Input).value = str(path)
            await someone.press("enter")
            await someone.until(path.exists)
            await someone.until(lambda: isinstance(app.screen, ConversationsScreen))
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        markdown = (tmp_path / "said.md").read_text()
        assert markdown.startswith("# Rings\n")
        assert "to be named" in markdown
        assert f"{TOKENS} tokens · " in markdown
        said = msgspec.json.decode((tmp_path / "said.json").read_bytes(), type=Conversation)
        assert (said.id, said.options.max_tokens, len(said.turns)) == (info.id, TOKENS, 2)

        (tmp_path / "said.md").write_text("mine")
        await someone.opens("e", screen=AskScreen)
        app.screen.query_one(Input).value = str(tmp_path / "said.md")
        await someone.opens("enter", screen=ChoiceScreen)
        await someone.press("enter")
        await someone.until(lambda: isinstance(app.screen, ConversationsScreen))
        await someone.rests()
        assert (tmp_path / "said.md").read_text() == "mine", "the safe answer comes first"

        await someone.opens("x", screen=ChoiceScreen)
        await someone.press("enter")
        await someone.until(lambda: isinstance(app.screen, ConversationsScreen))
        await someone.kept(1)
        await someone.opens("x", screen=ChoiceScreen)
        await someone.press("down", "enter")
        await someone.kept(0)
        await someone.sees("There are no saved conversations on this Mac yet")
        assert app.state.turns == ()


@pytest.mark.parametrize("size", WIDE_FIRST)
async def test_a_new_one_keeps_the_old_one_and_an_unkept_one_is_kept_nowhere(demo: Demo, size: tuple[int, int]) -> None:
    async with person(demo, size) as someone:
        app = someone.app
        folder = demo.home.root
        await someone.asks("the canary sings")
        await someone.press("ctrl+n")
        await someone.until(lambda: app.state.turns == ())
        await someone.kept(1)
        await app.run_action("keep_nothing")
        await someone.until(lambda: app.state.chat.is_unkept)
        logs = set((folder / "token-logs").glob("*.mct"))
        await someone.asks("the cuckoo whispers")
        await someone.sees("not saved")
        await someone.kept(1)
        assert set((folder / "token-logs").glob("*.mct")) <= logs, "its token log goes with its end"
        await someone.opens("ctrl+n", screen=ChoiceScreen)
        await someone.press("enter")
        await someone.until(lambda: app.screen is app.dashboard)
        await someone.rests()
        assert len(app.state.turns) == 2, "the safe answer comes first"
        await app.run_action("keep_nothing")
        await someone.kept(2)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert any(path.suffix == ".mcv" for path in files)
        for path in files:
            data = path.read_bytes()
            assert b"canary" not in data, path
            assert b"cuckoo" not in data, path


@pytest.mark.parametrize("size", WIDE_FIRST)
async def test_sampling_is_checked_at_its_line_used_and_kept(demo: Demo, size: tuple[int, int]) -> None:
    async with person(demo, size) as someone:
        app = someone.app
        app.dashboard.prompt.focus()
        await someone.opens("f6", screen=SamplingScreen)
        fields = {field.id: field for field in app.screen.query(Input)}
        fields["temperature"].value = "9"
        fields["seed"].value = "many"
        await someone.sees("✗ at most 5", "✗ not a whole number")
        await someone.press("enter")
        await someone.rests()
        assert isinstance(app.screen, SamplingScreen), "what is wrong is not used"
        app.screen.query_one("#presets").focus()
        await someone.press("down", "enter")
        assert (fields["temperature"].value, fields["top-p"].value) == ("0.7", "0.9")
        fields["seed"].value, fields["system"].value = "4", "Be brief."
        fields["constraint"].value = "regex [a-z]{8,12}"
        await someone.press("enter")
        await someone.until(lambda: app.screen is app.dashboard)
        await someone.asks("how?")
        assert app.dashboard.chat.border_title is not None
        assert "temp 0.7 · top-p 0.9 · seed 4" in str(app.dashboard.chat.border_title)
        await someone.sees("✓ valid")
        first = app.state.turns[-1].text
        await someone.press("ctrl+r")
        await someone.answered(2)
        assert app.state.turns[-1].text != first, "another seed"
        assert app.state.chat.options.sampling.seed == 5
        chat = app.state.chat
        (kept,) = await someone.kept(1)
        found = await app.client.conversation(ConversationId(id=kept.id))
        assert found.options == chat.options
        assert found.options.system == "Be brief."
