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
TOKENS = 80
SOON_S = 120.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def macs(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama", layers=4), (1.5, 1.5, 1), load=None) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def said(macs: Demo) -> Answer:
    """The undisturbed answer."""
    await loaded(macs.head, of_pair(macs))
    answer = await finish(macs.head, await asked(macs))
    assert len(set(answer.tokens)) >= len(answer.tokens) / 2
    return answer


def of_pair(macs: Demo) -> LoadRequest:
    """The model over two Macs: the caches of its context fit on neither alone."""
    mini = next(peer.device_id for peer in macs.head.now.peers if peer.name == "mini")
    return LoadRequest(model=macs.model, without=(mini,), context=1 << 19)


@pytest_asyncio.fixture(loop_scope="module")
async def pair(macs: Demo) -> Demo:
    """Two of the Macs, ready; neither can hold the model alone."""
    await linked(macs)
    if macs.head.now.plan_status != "ready":
        await loaded(macs.head, of_pair(macs))
    return macs


@pytest_asyncio.fixture(loop_scope="module")
async def three(macs: Demo) -> Demo:
    """All three Macs, ready."""
    await linked(macs)
    plan = macs.head.now.plan
    if macs.head.now.plan_status != "ready" or not plan or len(plan.stages) < 3:
        await loaded(macs.head, LoadRequest(model=macs.model))
    return macs


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


async def asked(demo: Demo, tokens: int = TOKENS) -> str:
    """Ask for an answer that is long enough to be disturbed."""
    message = Message(role="user", content=PROMPT)
    request = ChatRequest(messages=(message,), min_tokens=tokens, max_tokens=tokens)
    return (await demo.head.client.chat(request)).request_id


async def under_way(demo: Demo) -> str:
    """Ask for an answer and wait for its first five tokens."""
    request = await asked(demo)
    await tokens_seen(demo.head, request, 5)
    return request


def workers(demo: Demo) -> set[int | None]:
    return {peer.worker_pid for peer in demo.head.now.peers}


def loads(demo: Demo) -> int:
    return sum(isinstance(event, PlanLoaded) for event in demo.head.seen)


@pytest.mark.promise("P16")
async def test_a_mac_that_comes_back_goes_on_with_what_it_held_and_a_second_answer_waits_too(
    pair: Demo, said: Answer
) -> None:
    held = workers(pair)
    request = await under_way(pair)
    second = await asked(pair)
    with frozen(pair, 1):
        await state(pair, "wait")
        told = pair.head.now.recovery
        assert told is not None
        assert told.choices == ("wait", "save", "stop")
        assert request in told.requests
        assert told.tokens >= 5
        assert "mbp" in told.text
        assert pair.head.now.plan_status == "broken"
        await pair.head.client.cancel(second)
        assert (await finish(pair.head, second)).done.finish_reason == "cancelled"
    assert (await finish(pair.head, request)).tokens == said.tokens
    assert workers(pair) == held
    assert pair.head.now.recovery is None


async def test_a_mac_that_comes_back_without_its_layers_loads_them_again(pair: Demo, said: Answer) -> None:
    worker = psutil.Process(pair.pid_of(1)).children()[0].pid
    before = loads(pair)
    request = await under_way(pair)
    with frozen(pair, 1):
        await state(pair, "wait")
        os.kill(worker, signal.SIGKILL)
    assert (await finish(pair.head, request)).tokens == said.tokens
    await pair.head.until(lambda _: loads(pair) > before, SOON_S, "Loading again")


async def test_what_is_saved_is_continued_later(pair: Demo, said: Answer) -> None:
    request = await under_way(pair)
    with frozen(pair, 1):
        await state(pair, "wait")
        await pair.head.client.choose(RecoveryOrder(choice="save"))
        ended = await finish(pair.head, request)
    assert ended.done.problem is not None
    assert ended.done.problem.kind == "Parked"
    assert ended.tokens == said.tokens[: len(ended.tokens)]
    assert request in [unfinished.request_id for unfinished in await pair.head.client.unfinished()]
    await linked(pair)
    await loaded(pair.head, of_pair(pair))
    mark = len(pair.head.seen)
    await pair.head.client.go_on(AnswerId(request_id=request))
    assert ended.tokens + await continued(pair, request, mark) == said.tokens
    assert request not in [unfinished.request_id for unfinished in await pair.head.client.unfinished()]


async def continued(pair: Demo, request: str, mark: int) -> list[int]:
    """The tokens of `request` after event `mark`, until its end."""

    def done(watch: Watch) -> bool:
        return any(isinstance(e, RequestDone) and e.request_id == request for e in watch.seen[mark:])

    await pair.head.until(done, SOON_S, "Continuing")
    return [e.token for e in pair.head.seen[mark:] if isinstance(e, TokenEvent) and e.request_id == request]


async def test_a_person_who_stops_keeps_what_is_written(pair: Demo) -> None:
    request = await under_way(pair)
    with frozen(pair, 1):
        await state(pair, "wait")
        with pytest.raises(UsageError, match="is not possible now"):
            await pair.head.client.choose(RecoveryOrder(choice="replan"))
        await pair.head.client.choose(RecoveryOrder(choice="stop"))
        ended = await finish(pair.head, request)
    assert ended.done.finish_reason == "cancelled"
    assert len(ended.tokens) >= 5
    await pair.head.until(lambda w: w.now.recovery is None and w.now.plan_status == "broken", SOON_S, "Giving up")


async def test_a_person_may_rather_wait_where_it_would_go_on_without(three: Demo, said: Answer) -> None:
    request = await under_way(three)
    with frozen(three, 2):
        await state(three, "hold", "replan", "rebuild")
        await three.head.client.choose(RecoveryOrder(choice="wait"))
        await state(three, "wait")
        assert three.head.now.recovery is not None
        assert three.head.now.recovery.choices == ("wait", "replan", "save", "stop")
    assert (await finish(three.head, request)).tokens == said.tokens
    assert three.head.now.plan is not None
    assert len(three.head.now.plan.stages) == 3


async def test_a_short_stop_is_no_loss(three: Demo, said: Answer) -> None:

    async def nothing_comes_of_it() -> bool:
        await linked(three)
        before = loads(three)
        request = await under_way(three)
        with frozen(three, 1):
            await asyncio.sleep(DEAD_S / 2)
        assert (await finish(three.head, request)).tokens == said.tokens
        return loads(three) == before

    await undisturbed(nothing_comes_of_it)


async def test_two_macs_at_once_leave_one_that_goes_on(three: Demo, said: Answer) -> None:
    request = await under_way(three)
    with frozen(three, 1), frozen(three, 2):
        answer = await finish(three.head, request)
    assert answer.tokens == said.tokens
    assert three.head.now.plan is not None
    assert [stage.peer for stage in three.head.now.plan.stages] == ["studio"]
    told = [event.text for event in three.head.seen if isinstance(event, Recovery) and event.state == "running"]
    assert "continued on studio " in told[-1]


async def test_what_was_mirrored_is_not_read_again_and_a_draft_model_goes_on(macs: Demo, said: Answer) -> None:
    await linked(macs)
    await loaded(macs.head, LoadRequest(model=macs.model, mirror=True, draft=macs.model))
    plan = macs.head.now.plan
    assert plan is not None
    assert any(note.startswith("Mirror on studio: ") for note in plan.notes)
    facts = status_facts(macs.head.now)["plan"]
    assert facts["draft"] in macs.model
    assert facts["draft_bytes"] > 0
    assert any(f"Draft model {facts['draft']} on studio" in note for note in facts["notes"])
    request = await asked(macs, 3 * TOKENS)  # each step writes several
    await tokens_seen(macs.head, request, TOKENS // 2)
    os.kill(psutil.Process(macs.pid_of(1)).children()[0].pid, signal.SIGKILL)
    assert (await finish(macs.head, request)).tokens[:TOKENS] == said.tokens
    assert [restored(line.text) for line in macs.head.now.logs if restored(line.text)]
    for held, rest in filter(None, (restored(line.text) for line in macs.head.now.logs)):
        assert held > 0
        assert rest <= 64
    assert macs.head.now.plan
    assert macs.head.now.plan.draft


def restored(line: str) -> tuple[int, int] | None:
    """Numbers from the log line about a mirror: tokens restored, and tokens read again."""
    found = re.match(r"(\d+) tokens came back from the mirror, and (\d+) are read again", line)
    return (int(found[1]), int(found[2])) if found else None
