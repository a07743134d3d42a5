"""Ten people ask a cluster that runs four rows: the node's reports, and the batch screen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic
from typing import Final

import pytest
import pytest_asyncio

from core.events import Batch
from core.requests.answers import ChatRequest, Message
from core.requests.plans import LoadRequest
from tests.support.cluster import ANSWER_S, Make
from tests.support.person import Person
from tui.app import MaclusterApp
from tui.cli.demo import Demo, DemoConfig
from tui.cli.status import status_facts, status_lines
from tui.cli.watch import Watch
from tui.screens.batch import BatchScreen
from tui.screens.timeline import TimelineScreen

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ROWS: Final = 4
ASKED: Final = 10
CONTEXT: Final = 16384
TOKENS: Final = 200
WIDE: Final = (120, 36)
NARROW: Final = (80, 24)
LONG: Final = 3600  # four of them fit the context, and they last long enough to look at


@pytest.fixture(scope="module")
def slow_gpu() -> Iterator[None]:
    """Workers take longer for each step, so that answers which only have to run leave the CPU to others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "slow_gpu"))
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make, slow_gpu: None) -> AsyncIterator[Demo]:
    said: list[str] = []
    load = LoadRequest(model="", rows=ROWS, context=CONTEXT)
    config = DemoConfig(
        budgets_gb=(64, 32), model=made("llama", context=CONTEXT), load=load, multicast=False, has_spare=False
    )
    demo = Demo(config, said.append)
    try:
        await demo.start()
        await demo.join()
        await demo.load()
        yield demo
    finally:
        await demo.stop()


@pytest.fixture
def head(demo: Demo) -> Watch:
    return demo.head


async def begin(head: Watch, name: str, tokens: int = TOKENS) -> str:
    message = Message(role="user", content=f"Tell me about {name}")
    request = ChatRequest(messages=(message,), max_tokens=tokens, min_tokens=tokens)
    return (await head.client.chat(request)).request_id


async def stop_all(head: Watch) -> None:
    for request_id in head.now.running:
        await head.client.cancel(request_id)
    await head.until(lambda w: not w.now.batch.rows and not w.now.batch.lanes, ANSWER_S, "Stopping")


async def test_four_write_and_six_wait_until_all_are_done(head: Watch) -> None:
    started, before = monotonic(), len(head.seen)
    ids = [await begin(head, f"hop {number}") for number in range(ASKED)]
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
        ids = [await begin(head, f"lane {number}", LONG) for number in range(ASKED)]
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
        others = [await begin(head, "others", LONG) for _ in range(ROWS)]
        await person.press(*"why", "enter")
        await person.until(lambda: bool(app.state.answer and app.state.answer.request_id))
        await person.press("shift+tab", "B")
        await person.sees("this chat", "1 of 1 in the queue")
        await person.press("end", "x")
        await person.until(lambda: app.state.answer is None)
        await head.until(lambda w: set(w.now.running) == set(others), ANSWER_S, "Stopping that one")
        await stop_all(head)
