"""A Mac is lost in the middle of an answer: kept tokens, a person's choices, and the same answer at the end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
import pytest_asyncio

from core.demo import DEMO_MODEL
from core.errors import UsageError
from core.events import PlanLoaded, Recovery, RecoveryState, RequestDone, TokenEvent
from core.link.liveness import DEAD_S
from core.requests.answers import AnswerId, ChatRequest, Message
from core.requests.plans import LoadRequest, RecoveryOrder
from tests.support.cluster import Answer, Make, finish, running_demo, tokens_seen
from tests.support.waiting import undisturbed
from tui.cli.demo import Demo
from tui.cli.load import loaded
from tui.cli.status import status_facts
from tui.cli.watch import Watch

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "How does macluster split a model?"
TOKENS = 64
SOON_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair() -> AsyncIterator[Demo]:
    """Two Macs; neither can hold the demo model alone. The tokenizer takes 0.152 GB on the head."""
    async with running_demo(DEMO_MODEL, (0.252, 0.09)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def three(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama"), (64, 32, 16)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said_by_pair(pair: Demo) -> Answer:
    return await expected(pair)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said_by_three(three: Demo) -> Answer:
    return await expected(three)


@pytest_asyncio.fixture(loop_scope="module")
async def demo(pair: Demo) -> Demo:
    """The pair, ready."""
    await linked(pair)
    if pair.head.now.plan_status != "ready":
        await pair.load()
    return pair


@contextmanager
def frozen(demo: Demo, index: int) -> Iterator[None]:
    """Stop a Mac's node and worker for a while."""
    node = psutil.Process(demo.pid_of(index))
    processes = [node, *node.children()]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # the node continues first, and may have ended its worker already
                process.resume()


async def linked(demo: Demo) -> None:
    def all_linked(watch: Watch) -> bool:
        return all(p.state == "connected" or p.is_self for p in watch.now.peers)

    await demo.head.until(all_linked, SOON_S, "Linking")


async def state(demo: Demo, *wanted: RecoveryState) -> None:
    def reached(watch: Watch) -> bool:
        return watch.now.recovery is not None and watch.now.recovery.state in wanted

    await demo.head.until(reached, SOON_S, f"Being in {wanted}")


async def asked(demo: Demo) -> str:
    """Ask for an answer that is long enough to be disturbed."""
    message = Message(role="user", content=PROMPT)
    request = ChatRequest(messages=(message,), min_tokens=TOKENS, max_tokens=TOKENS)
    return (await demo.head.client.chat(request)).request_id


async def under_way(demo: Demo) -> str:
    """Ask for an answer and wait for its first five tokens."""
    request = await asked(demo)
    await tokens_seen(demo.head, request, 5)
    return request


async def expected(demo: Demo) -> Answer:
    answer = await finish(demo.head, await asked(demo))
    assert len(set(answer.tokens)) >= len(answer.tokens) / 2
    return answer


def workers(demo: Demo) -> set[int | None]:
    return {peer.worker_pid for peer in demo.head.now.peers}


def loads(demo: Demo) -> int:
    return sum(isinstance(event, PlanLoaded) for event in demo.head.seen)


@pytest.mark.promise("P16")
async def test_a_mac_that_comes_back_goes_on_with_what_it_held_and_a_second_answer_waits_too(
    demo: Demo, said_by_pair: Answer
) -> None:
    held = workers(demo)
    request = await under_way(demo)
    second = await asked(demo)
    with frozen(demo, 1):
        await state(demo, "wait")
        told = demo.head.now.recovery
        assert told is not None
        assert told.choices == ("wait", "save", "stop")
        assert request in told.requests
        assert told.tokens >= 5
        assert "mbp" in told.text
        assert demo.head.now.plan_status == "broken"
        await demo.head.client.cancel(second)
        assert (await finish(demo.head, second)).done.finish_reason == "cancelled"
    assert (await finish(demo.head, request)).tokens == said_by_pair.tokens
    assert workers(demo) == held
    assert demo.head.now.recovery is None


async def test_a_mac_that_comes_back_without_its_layers_loads_them_again(demo: Demo, said_by_pair: Answer) -> None:
    worker = psutil.Process(demo.pid_of(1)).children()[0].pid
    before = loads(demo)
    request = await under_way(demo)
    with frozen(demo, 1):
        await state(demo, "wait")
        os.kill(worker, signal.SIGKILL)
    assert (await finish(demo.head, request)).tokens == said_by_pair.tokens
    await demo.head.until(lambda _: loads(demo) > before, SOON_S, "Loading again")


async def test_what_is_saved_is_continued_later(demo: Demo, said_by_pair: Answer) -> None:
    request = await under_way(demo)
    with frozen(demo, 1):
        await state(demo, "wait")
        await demo.head.client.choose(RecoveryOrder(choice="save"))
        ended = await finish(demo.head, request)
    assert ended.done.problem is not None
    assert ended.done.problem.kind == "Parked"
    assert ended.tokens == said_by_pair.tokens[: len(ended.tokens)]
    assert request in [unfinished.request_id for unfinished in await demo.head.client.unfinished()]
    await linked(demo)
    await demo.load()
    mark = len(demo.head.seen)
    await demo.head.client.go_on(AnswerId(request_id=request))
    assert ended.tokens + await continued(demo, request, mark) == said_by_pair.tokens
    assert request not in [unfinished.request_id for unfinished in await demo.head.client.unfinished()]


async def continued(demo: Demo, request: str, mark: int) -> list[int]:
    """The tokens of `request` after event `mark`, until its end."""

    def done(watch: Watch) -> bool:
        return any(isinstance(e, RequestDone) and e.request_id == request for e in watch.seen[mark:])

    await demo.head.until(done, SOON_S, "Continuing")
    return [e.token for e in demo.head.seen[mark:] if isinstance(e, TokenEvent) and e.request_id == request]


async def test_a_person_who_stops_keeps_what_is_written(demo: Demo) -> None:
    request = await under_way(demo)
    with frozen(demo, 1):
        await state(demo, "wait")
        with pytest.raises(UsageError, match="is not possible now"):
            await demo.head.client.choose(RecoveryOrder(choice="replan"))
        await demo.head.client.choose(RecoveryOrder(choice="stop"))
        ended = await finish(demo.head, request)
    assert ended.done.finish_reason == "cancelled"
    assert len(ended.tokens) >= 5
    await demo.head.until(lambda w: w.now.recovery is None and w.now.plan_status == "broken", SOON_S, "Giving up")


async def test_a_person_may_rather_wait_where_it_would_go_on_without(three: Demo, said_by_three: Answer) -> None:
    request = await under_way(three)
    with frozen(three, 2):
        await state(three, "hold", "replan", "rebuild")
        await three.head.client.choose(RecoveryOrder(choice="wait"))
        await state(three, "wait")
        assert three.head.now.recovery is not None
        assert three.head.now.recovery.choices == ("wait", "replan", "save", "stop")
    assert (await finish(three.head, request)).tokens == said_by_three.tokens
    assert three.head.now.plan is not None
    assert len(three.head.now.plan.stages) == 3


async def test_a_short_stop_is_no_loss(three: Demo, said_by_three: Answer) -> None:

    async def nothing_comes_of_it() -> bool:
        await linked(three)
        before = loads(three)
        request = await under_way(three)
        with frozen(three, 1):
            await asyncio.sleep(DEAD_S / 2)
        assert (await finish(three.head, request)).tokens == said_by_three.tokens
        return loads(three) == before

    await undisturbed(nothing_comes_of_it)


async def test_two_macs_at_once_leave_one_that_goes_on(three: Demo, said_by_three: Answer) -> None:
    request = await under_way(three)
    with frozen(three, 1), frozen(three, 2):
        answer = await finish(three.head, request)
    assert answer.tokens == said_by_three.tokens
    assert three.head.now.plan is not None
    assert [stage.peer for stage in three.head.now.plan.stages] == ["studio"]
    told = [event.text for event in three.head.seen if isinstance(event, Recovery) and event.state == "running"]
    assert "continued on studio " in told[-1]


async def test_what_was_mirrored_is_not_read_again(three: Demo, said_by_three: Answer) -> None:
    await linked(three)
    await loaded(three.head, LoadRequest(model=three.model, mirror=True))
    plan = three.head.now.plan
    assert plan is not None
    assert any(note.startswith("Mirror on studio: ") for note in plan.notes)
    request = await asked(three)
    await tokens_seen(three.head, request, TOKENS // 2)
    os.kill(psutil.Process(three.pid_of(1)).children()[0].pid, signal.SIGKILL)
    assert (await finish(three.head, request)).tokens == said_by_three.tokens
    assert [restored(line.text) for line in three.head.now.logs if restored(line.text)]
    for held, rest in filter(None, (restored(line.text) for line in three.head.now.logs)):
        assert held > 0
        assert rest <= 64


async def test_an_answer_goes_on_after_a_loss_while_a_draft_model_runs(three: Demo, said_by_three: Answer) -> None:
    await loaded(three.head, LoadRequest(model=three.model, draft=three.model))
    facts = status_facts(three.head.now)["plan"]
    assert facts["draft"] in three.model
    assert facts["draft_bytes"] > 0
    assert any(f"Draft model {facts['draft']} on studio" in note for note in facts["notes"])
    request = await under_way(three)
    os.kill(psutil.Process(three.pid_of(1)).children()[0].pid, signal.SIGKILL)
    assert (await finish(three.head, request)).tokens == said_by_three.tokens
    assert three.head.now.plan
    assert three.head.now.plan.draft


def restored(line: str) -> tuple[int, int] | None:
    """Numbers from the log line about a mirror: tokens restored, and tokens read again."""
    found = re.match(r"(\d+) tokens came back from the mirror, and (\d+) are read again", line)
    return (int(found[1]), int(found[2])) if found else None
