"""Conversations and the batch on the screens of real nodes that several people ask; then answers that are cut off."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import pytest
import pytest_asyncio
from textual.widgets import Input

from core.events import Batch, TokenEvent
from core.models.text.tokenizer import Tokens
from core.requests.answers import ChatRequest, Message
from core.requests.conversations import ChatOptions, Conversation, ConversationId, ConversationInfo
from core.requests.plans import LoadRequest
from core.sampling_options import Sampling
from tests.support.cluster import ANSWER_S, GREEDY, Make, ask, begin, reference, running_demo, tokens_seen
from tests.support.command import macluster
from tests.support.person import Person
from tests.support.restarting import kill_head, start_head
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.cli.status import status_facts, status_lines
from tui.cli.watch import Watch
from tui.screens.batch import BatchScreen
from tui.screens.conversations import ConversationsScreen
from tui.screens.dialogs import AskScreen, ChoiceScreen
from tui.screens.sampling import SamplingScreen
from tui.screens.timeline import TimelineScreen
from tui.widgets.conversation_list import ConversationList

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROWS: Final = 4
ASKED: Final = 10
CONTEXT: Final = 16384
TOKENS: Final = 120
FEW: Final = 12
WIDE: Final = (120, 36)
NARROW: Final = (80, 24)
PROMPT: Final = "tell me about hops"
COUNT: Final = 160
KILLED_AT: Final = 20
WARM: Final = Sampling(temperature=0.8, logit_bias={2: -100.0})  # no eos
LONG: Final = 3600  # four of them fit the context, and they last long enough to look at
SIZES: Final = [pytest.param(WIDE, id="wide"), pytest.param(NARROW, id="narrow", marks=pytest.mark.nightly)]


@pytest.fixture(scope="module")
def slow_gpu() -> Iterator[None]:
    """Workers take longer for each step, so that answers which only have to run leave the CPU to others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "slow_gpu"))
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make, slow_gpu: None) -> AsyncIterator[Demo]:
    load = LoadRequest(model="", rows=ROWS, context=CONTEXT)
    async with running_demo(made("llama", layers=4, context=CONTEXT), (64, 32), load=load) as running:
        yield running


@pytest.fixture
def head(demo: Demo) -> Watch:
    return demo.head


async def begin_long(head: Watch, name: str, tokens: int = TOKENS) -> str:
    message = Message(role="user", content=f"Tell me about {name}")
    request = ChatRequest(messages=(message,), max_tokens=tokens, min_tokens=tokens)
    return (await head.client.chat(request)).request_id


async def stop_all(head: Watch) -> None:
    for request_id in head.now.running:
        await head.client.cancel(request_id)
    await head.until(lambda w: not w.now.batch.rows and not w.now.batch.lanes, ANSWER_S, "Stopping")


# ---- ten people ask a cluster that runs four rows


async def test_four_write_and_six_wait_until_all_are_done(head: Watch) -> None:
    started, before = monotonic(), len(head.seen)
    ids = [await begin_long(head, f"hop {number}") for number in range(ASKED)]
    await head.until(
        lambda w: [row.request_id for row in w.now.batch.rows] == ids, ANSWER_S, "Being told of all of them"
    )

    def is_full(w: Watch) -> bool:
        batch = w.now.batch
        return len(batch.queue) == ASKED - ROWS and all(r.tokens_per_s for r in batch.running)

    await head.until(is_full, ANSWER_S, "Filling the rows")
    batch = head.now.batch
    assert [row.request_id for row in batch.running] == ids[:ROWS]
    assert [row.request_id for row in batch.queue] == ids[ROWS:]
    assert {row.state for row in batch.running} == {"writing"}
    assert [lane.rows for lane in batch.lanes] == [2, 2], "as many lanes as there are Macs"
    assert all(0 < row.written < TOKENS and row.prompt_tokens for row in batch.running)
    assert batch.used_tokens <= batch.reserved_tokens <= CONTEXT
    lines = "\n".join(status_lines(head.now))
    assert f"Rows: 4 of 4 rows · {batch.in_flight} lane" in lines
    assert ids[-1][:8] in lines
    assert status_facts(head.now)["batch"]["waiting"] == ASKED - ROWS
    for request_id in ids[1:]:
        await head.client.cancel(request_id)
    await head.until(lambda w: not w.now.batch.rows and not w.now.batch.lanes, ANSWER_S, "Ending")
    batch = head.now.batch
    assert (batch.chunks, batch.used_tokens, batch.reserved_tokens) == (0, 0, 0)
    assert batch.parked_tokens > TOKENS
    told = [event for event in head.seen[before:] if isinstance(event, Batch)]
    assert len(told) <= 2 * (monotonic() - started) + 2, "twice a second, and at the end"


async def test_the_screen_shows_them_and_stops_one(head: Watch) -> None:
    """The screen is checked wide, then narrow."""
    app = MaclusterApp(head.client)
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        person = Person(app, pilot)
        await person.until(lambda: app.focused is app.dashboard.prompt)
        await person.press("escape", "B")
        await person.sees("No requests running")
        ids = [await begin_long(head, f"lane {number}", LONG) for number in range(ASKED)]
        await shown(person, ids, WIDE)
        await person.press("j", "j", "x")
        await person.sees("another program", "Let it continue", ids[2][:8])
        await person.press("enter")
        await person.rests()
        assert isinstance(app.screen, BatchScreen)
        assert ids[2] in app.state.snapshot.running, "the answer that is chosen first changes nothing"
        await pilot.resize_terminal(*NARROW)
        await shown(person, ids, NARROW)
        await person.press("x")
        await person.sees("another program", "Let it continue", ids[2][:8])
        await person.press("down", "enter")
        await person.until(lambda: ids[2][:8] not in person.text)
        await person.sees("5 queued")
        await stop_all(head)
        await person.sees("No requests running", "tokens of earlier chats are cached")
        await person.press("escape")
        await person.until(lambda: app.screen is app.dashboard)


async def shown(person: Person, ids: list[str], size: tuple[int, int]) -> None:
    await person.sees("4 of 4 rows", "6 queued", "● writing", "1 of 6 in the queue", "6 of 6", "lane 2", "All 4 rows")
    assert all(name[:8] in person.text for name in ids)
    assert "this chat" not in person.text
    assert max(map(len, person.text.splitlines())) <= size[0]
    await person.opens("enter", screen=TimelineScreen)
    await person.sees("decode step", "lane 2", "█ computes", "Where the time of this step went", "±")
    await person.press("left", "escape")
    await person.until(lambda: isinstance(person.app.screen, BatchScreen))


async def test_the_answer_of_the_chat_is_marked_and_stopped_without_a_question(head: Watch) -> None:
    app = MaclusterApp(head.client)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        person = Person(app, pilot)
        await person.until(lambda: app.focused is app.dashboard.prompt)
        others = [await begin_long(head, "others", LONG) for _ in range(ROWS)]
        await person.press(*"why", "enter")
        await person.until(lambda: bool(app.state.answer and app.state.answer.request_id))
        await person.press("shift+tab", "B")
        await person.sees("this chat", "1 of 1 in the queue")
        await person.press("end", "x")
        await person.until(lambda: app.state.answer is None)
        await head.until(lambda w: set(w.now.running) == set(others), ANSWER_S, "Stopping that one")
        await stop_all(head)


# ---- conversations: asked, edited, asked again, left, found, exported, deleted


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
        app.chat.ask_with(ChatOptions(max_tokens=FEW))
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
        assert (info.title, info.messages, info.tokens) == ("first question", 4, 2 * FEW)

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


@pytest.mark.parametrize("size", SIZES)
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
        assert f"{FEW} tokens · " in markdown
        said = msgspec.json.decode((tmp_path / "said.json").read_bytes(), type=Conversation)
        assert (said.id, said.options.max_tokens, len(said.turns)) == (info.id, FEW, 2)

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


@pytest.mark.parametrize("size", SIZES)
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


@pytest.mark.parametrize("size", SIZES)
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


# ---- a conversation that is kept as a session, and an answer of another window


async def lists(person: Person, *words: str) -> ConversationList:
    """The list of conversations, once it shows `words` and takes keys."""
    await person.sees(*words)
    await person.until(lambda: isinstance(person.app.focused, ConversationList))
    assert isinstance(person.app.screen, ConversationsScreen)
    return person.app.screen.list


@pytest.mark.parametrize("size", SIZES)
async def test_a_conversation_is_kept_as_a_session_taken_up_and_deleted(demo: Demo, size: tuple[int, int]) -> None:
    async with person(demo, size) as someone:
        app = someone.app
        app.action_open("conversations")
        await someone.sees("There are no saved conversations on this Mac yet")
        await someone.press("s")
        await someone.until(lambda: "Nothing has been asked yet." in [n.message for n in app._notifications])
        await someone.press("escape")
        await someone.asks("hello")
        said = app.state.turns[-1].text
        app.action_open("conversations")
        await someone.sees("hello")
        await someone.press("s")
        await someone.sees("Save this chat as a session")
        await someone.press(*"first", "enter")
        await lists(someone, "◆ first", "llama", "2 conversations")
        kept = next(demo.home.sessions.iterdir())
        bad = kept.parent / kept.name.replace("first", "bad")
        bad.write_bytes(kept.read_bytes()[:-9])
        app.pop_screen()
        app.action_new_chat()
        await someone.until(lambda: not app.state.turns)
        app.action_open("conversations")
        rows = await lists(someone, "3 conversations", "◆ first", "✗ bad")
        rows.highlighted = next(n for n, row in enumerate(rows._items) if row.title == "first")
        await someone.press("enter")
        await someone.until(lambda: bool(app.state.turns) and app.state.turns[-1].text == said)
        await someone.until(lambda: len(app.screen_stack) == 1)
        app.action_open("conversations")
        rows = await lists(someone, "◆ first")
        rows.highlighted = next(n for n, row in enumerate(rows._items) if row.title == "first")
        await someone.press("x")
        await someone.sees("Delete the session?", "first is deleted", "Cancel")
        await someone.press("down", "enter")
        await someone.sees("2 conversations")
        assert max(map(len, someone.text.splitlines())) == size[0]
    for session in demo.home.sessions.iterdir():
        session.unlink()


async def test_a_new_window_says_that_another_one_s_answer_is_being_written(head: Watch) -> None:
    written = await begin_long(head, "another window", LONG)
    app = MaclusterApp(head.client)
    async with app.run_test(size=NARROW) as pilot:
        person = Person(app, pilot)
        await person.until(lambda: written in app.state.snapshot.running)
        await person.sees("is loaded on 2 Macs")
        await person.sees("Another program is using the model")
        await pilot.resize_terminal(*WIDE)
        await person.sees("● writing")
        await stop_all(head)


# ---- the head's node dies in the middle of an answer, or its disk is full: what is written is kept, and continues


@pytest.fixture(scope="module")
def expected(demo: Demo) -> list[int]:
    """The answer of mlx-lm."""
    (tokens,) = reference(Path(demo.model), [PROMPT], COUNT)
    assert len(set(tokens)) >= COUNT // 2, "a reference that repeats one token proves nothing"
    return tokens


async def printed(demo: Demo, *words: str) -> str:
    """Output of a command, which must succeed."""
    said = await macluster(demo.home.root, *words)
    assert said.returncode == 0, said.stderr
    return said.stdout


async def test_answers_go_on_after_the_heads_node_was_killed(demo: Demo, expected: list[int]) -> None:
    head = demo.head
    greedy, warm = [await begin(head, PROMPT, COUNT, sampling=sampling) for sampling in (GREEDY, WARM)]
    for request in (greedy, warm):
        await tokens_seen(head, request, KILLED_AT)
    await kill_head(demo)
    seen = [e for e in head.seen if isinstance(e, TokenEvent)]

    head = await start_head(demo)
    unfinished = {begun.request_id: begun for begun in await head.client.unfinished()}
    assert unfinished.keys() == {greedy, warm}
    status = await printed(demo, "status")
    assert f"Unfinished answers: 2. `macluster run {unfinished[greedy].model} --continue`" in status
    for request, begun in unfinished.items():
        shown = [event for event in seen if event.request_id == request]
        assert len(shown) < COUNT, "it was killed too late"
        assert (begun.max_tokens, begun.messages[0].content) == (COUNT, PROMPT)
        assert begun.tokens >= len(shown)
        assert begun.text.startswith("".join(event.text for event in shown))
        facts = json.loads(await printed(demo, "run", demo.model, "--continue", request, "--json"))
        assert facts["finish_reason"] == "length"
        assert len(facts["tokens"]) == COUNT - begun.tokens
        assert facts["text"].startswith(begun.text)
        if request == greedy:
            assert facts["tokens"] == expected[begun.tokens :]
            stream = Tokens.load(Path(demo.model)).stream(is_chat=True)
            assert facts["text"] == "".join(map(stream.add, expected)) + stream.held
    assert await head.client.unfinished() == []


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of 256 KiB, almost full."""
    folder.mkdir(mode=0o700, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path: Path, pages_left: int) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            file.truncate(file.tell() - pages_left * 4096)


async def test_a_full_disk_ends_the_answer_and_costs_nothing_that_was_written(demo: Demo, expected: list[int]) -> None:
    folder = demo.home.root / "token-logs"
    with small_disk(folder):
        earlier = await ask(demo.head, PROMPT, 20)
        (log,) = folder.iterdir()
        before = log.read_bytes()
        fill(folder / "something else", pages_left=1)
        cut = await ask(demo.head, PROMPT, COUNT)
        assert cut.done.problem
        assert cut.done.problem.what == "The answer can't be saved on this Mac's disk: No space left on device."
        assert "Free some space" in cut.done.problem.fix
        assert 0 < len(cut.tokens) < COUNT
        assert cut.tokens == expected[: len(cut.tokens)]
        assert log.read_bytes() == before
        (folder / "something else").unlink()
        (begun,) = await demo.head.client.unfinished()
        assert begun.tokens == len(cut.tokens)
        facts = json.loads(await printed(demo, "run", begun.model, "--continue", "--json"))
        assert facts["tokens"] == expected[begun.tokens :]
        assert (await ask(demo.head, PROMPT, 20)).tokens == earlier.tokens
