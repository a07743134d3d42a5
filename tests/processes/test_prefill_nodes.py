"""A prefill Mac reads prompts for real nodes; while it is lost the ring reads them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from core.errors import UsageError
from core.events import LogLine
from core.requests.plans import LoadRequest, PreviewRequest
from core.requests.trust import Target
from tests.support.cluster import Make, ask, begin, finish, reference, running_demo
from tests.support.command import macluster
from tui.cli.demo import Demo
from tui.cli.load import loaded
from tui.cli.watch import Watch

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAIT_S = 120.0
PROMPT = "Tell me about the three Macs. " * 20
OTHER = "What does a hop cost? " * 22
TOKENS = 12


def id_of(watch: Watch, name: str) -> str:
    return next(peer.device_id for peer in watch.now.peers if peer.name == name)


async def says(watch: Watch, words: str, mark: int) -> None:
    await watch.until(
        lambda w: any(isinstance(e, LogLine) and words in e.text for e in w.seen[mark:]), WAIT_S, f"To hear {words!r}"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama", layers=4), (64, 32, 16), load=None) as running:
        head, mark = running.head, len(running.head.seen)
        await loaded(head, LoadRequest(model=running.model, prefill=id_of(head, "mini")))
        await says(head, "mini prefills prompts of 256 tokens or more", mark)
        yield running


async def test_it_reads_long_prompts_and_the_tokens_are_those_of_one_process(demo: Demo) -> None:
    plan = demo.head.now.plan
    assert plan
    assert plan.prefill
    assert [stage.peer for stage in plan.stages] == ["studio", "mbp"]
    assert any("mini reads prompts of 256 tokens or more, and sees their token ids" in note for note in plan.notes)
    # until rates are measured; later they decide
    told = await macluster(demo.home.root, "plan", demo.model, "--prefill", "mini")
    assert "mini would see token ids of the prompts that it reads." in told.stdout
    auto = await demo.head.client.plan(PreviewRequest(model=demo.model, prefill="auto"))
    assert auto.plan
    assert auto.plan.prefill is None
    long, short = await ask(demo.head, PROMPT, TOKENS), await ask(demo.head, "Hello", TOKENS)
    assert [long.tokens, short.tokens] == reference(Path(demo.model), [PROMPT, "Hello"], TOKENS)
    assert (long.done.beside_tokens, long.done.reused_tokens) == (long.done.prompt_tokens - 1, 0)
    assert short.done.beside_tokens == 0
    macs = (await demo.head.client.trust()).macs
    assert next(mac.sees for mac in macs if mac.name == "mini") == "token ids of the prompts that it reads"


async def test_the_ring_reads_once_it_is_lost_and_it_reads_again_once_it_is_back(demo: Demo) -> None:
    head, mark = demo.head, len(demo.head.seen)
    mini = next(peer for peer in head.now.peers if peer.name == "mini")
    assert mini.worker_pid
    request = await begin(head, OTHER, TOKENS)
    os.kill(mini.worker_pid, signal.SIGKILL)
    answer = await finish(head, request)
    await says(head, "mini can't prefill now; the ring does", mark)
    await says(head, "mini prefills prompts of 256 tokens or more", mark)
    again = await ask(head, f"And two? {OTHER}", TOKENS)
    assert again.done.beside_tokens > 0
    assert [answer.tokens, again.tokens] == reference(Path(demo.model), [OTHER, f"And two? {OTHER}"], TOKENS)


async def test_who_leads_or_is_not_there_reads_for_nobody(demo: Demo) -> None:
    with pytest.raises(UsageError, match="studio leads"):
        await demo.head.client.plan(PreviewRequest(model=demo.model, prefill=id_of(demo.head, "studio")))
    nobody = await demo.head.client.plan(PreviewRequest(model=demo.model, prefill="nobody"))
    assert nobody.problem
    assert "is not connected" in nobody.problem.what


@pytest.mark.promise("P36")
async def test_the_plan_ends_where_it_must_see_no_prompt_any_more(demo: Demo) -> None:
    assert demo.head.now.trust.level == "paired"
    await demo.head.client.revoke(Target(mac="mini"))
    await demo.head.until(lambda w: w.now.plan_status == "broken", WAIT_S, "The end of the plan")
    problem = demo.head.now.plan_problem
    assert problem
    assert "mini was revoked by studio" in problem.what
