"""Two nodes whose Macs are ranks of one group: after any fault nothing hangs, and the answer is the same."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import psutil
import pytest
import pytest_asyncio

from core.errors import NodeError
from core.events import Plan, PlanLoaded
from core.requests.answers import ChatRequest, Message
from core.requests.plans import LoadRequest
from tests.support.cluster import Make, finish, running_demo, tokens_seen
from tests.support.waiting import until
from tui.cli.demo import Demo
from tui.cli.load import loaded

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHAPE: Final = {"layers": 4, "hidden": 64, "intermediate": 256, "heads": 8, "kv_heads": 4, "head_dim": 8}
TOKENS: Final = 32


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama", **SHAPE), (64, 32), load=LoadRequest(model="", parallelism="tp")) as running:
        yield running


def plan_of(demo: Demo) -> Plan:
    assert demo.head.now.plan
    return demo.head.now.plan


def worker(demo: Demo, index: int) -> int:
    (found,) = workers(demo, index)
    return found


def workers(demo: Demo, index: int) -> list[int]:
    """Workers of a node; none while one is replaced."""
    return [c.pid for c in psutil.Process(demo.pid_of(index)).children() if "core.worker" in c.cmdline()]


async def asked(demo: Demo, *, most: int = TOKENS) -> str:
    message = Message(role="user", content="How does macluster split a model?")
    request = ChatRequest(messages=(message,), min_tokens=most, max_tokens=most)
    return (await demo.head.client.chat(request)).request_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(demo: Demo) -> list[int]:
    """The undisturbed answer."""
    tokens = (await finish(demo.head, await asked(demo))).tokens
    assert 2 * len(set(tokens)) >= len(tokens) == TOKENS
    return tokens


@pytest.mark.parametrize("most", [1, 2])
async def test_an_answer_that_ends_at_once(demo: Demo, whole: list[int], most: int) -> None:
    answer = await finish(demo.head, await asked(demo, most=most))
    assert answer.tokens == whole[:most]
    assert answer.done.finish_reason == "length"


@pytest.mark.parametrize("index", [0, 1])
async def test_a_rank_that_is_killed_is_replaced_and_the_answer_goes_on(
    demo: Demo, whole: list[int], index: int
) -> None:
    before = [worker(demo, number) for number in range(2)]
    (logits,) = demo.home.references.iterdir()
    made = logits.stat().st_ino
    request = await asked(demo)
    await tokens_seen(demo.head, request, 5)
    os.kill(before[index], signal.SIGKILL)
    assert (await finish(demo.head, request)).tokens == whole
    assert plan_of(demo).topology == "tensor"

    def is_replaced() -> bool:
        now = [pid for number in range(2) for pid in workers(demo, number)]
        return len(now) == 2 and not {*now} & {*before} and demo.head.now.plan_status == "ready"

    await until(is_replaced)  # on a busy machine the answer may end before its Mac is missed
    first, *others = [event.proof for event in demo.head.seen if isinstance(event, PlanLoaded)]
    assert others
    assert all("against mlx_lm" in proof for proof in (first, *others))
    assert logits.stat().st_ino == made, "the whole model is read once"


async def test_a_rank_that_stands_still_is_replaced_and_the_answer_goes_on(demo: Demo, whole: list[int]) -> None:
    frozen = worker(demo, 1)
    for _ in range(8):
        request = await asked(demo)
        await tokens_seen(demo.head, request, 5)
        os.kill(frozen, signal.SIGSTOP)
        assert (await finish(demo.head, request)).tokens == whole
        if worker(demo, 1) != frozen:
            return
        os.kill(frozen, signal.SIGCONT)  # the answer ended before its fifth token was reported
    pytest.fail("The answer always went on without that rank.")


async def test_macs_that_can_form_no_group_get_layers_of_their_own(demo: Demo, whole: list[int]) -> None:
    """There is no RDMA here; every rank finds that out for itself."""
    order = LoadRequest(model=demo.model, parallelism="auto", rdma=True)
    await loaded(demo.head, order)
    assert plan_of(demo).topology == "private"
    how = plan_of(demo).parallelism
    assert how
    assert (how.choice, how.strategy) == ("auto", "pp")
    assert "RDMA over Thunderbolt needs a Mac" in how.reason
    assert any("Split by layers" in line.text for line in demo.head.now.logs)
    assert (await finish(demo.head, await asked(demo))).tokens == whole
    with pytest.raises(NodeError, match="needs a Mac"):
        await loaded(demo.head, msgspec.structs.replace(order, parallelism="tp"))
