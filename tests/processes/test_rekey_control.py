"""The links between real nodes get new keys every few frames, without effect on a plan or an answer."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from core.events import LogLine, PeerChanged, PeerGone, PlanFailed
from core.requests.plans import LoadRequest
from core.settings import Home
from tests.support.attentive import START_S, TOKENS, Attentive, knows, paired_nodes
from tests.support.cluster import Make, ask, begin, finish, reference, tokens_seen
from tests.support.nodes import HOST, own_port, paired_home, running_node
from tui.cli.watch import Watch

PROMPT = "Hello there, how are you?"
RENEWALS = 4


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama", layers=4)


def accepted(nodes: list[Attentive]) -> list[int]:
    """The number of links each node has been dialled for."""
    return [node.parts.peers.mesh.admissions.get("accepted", 0) for node in nodes]


def troubles(watch: Watch, since: int) -> list[object]:
    """Events on this Mac's screen that no change of keys may cause; a busy machine may make a Mac slow."""
    (own,) = (peer.name for peer in watch.now.peers if peer.is_self)
    return [
        event
        for event in watch.seen[since:]
        if isinstance(event, PeerGone | PlanFailed)
        or (isinstance(event, PeerChanged) and event.peer.state not in ("connected", "suspect"))
        or (
            isinstance(event, LogLine)
            and event.source == own
            and event.level in ("WARN", "ERROR")
            and " is slow: " not in event.text
        )
    ]


@pytest.mark.slow
@pytest.mark.promise("P15")
async def test_links_get_new_keys_again_and_again_under_a_plan_and_its_answers_while_a_new_roster_goes_round(
    model: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (expected,) = reference(model, [PROMPT], TOKENS)
    assert len(set(expected)) >= TOKENS // 2, "a reference that repeats one token proves nothing"
    async with paired_nodes(tmp_path_factory.mktemp("n"), model, 3) as (nodes, head):
        begun, since = accepted(nodes), len(head.seen)
        assert (await ask(head, PROMPT, TOKENS)).tokens == expected
        before = nodes[0].samples[-1].stages[0].renewals
        request = await begin(head, PROMPT, TOKENS)
        await tokens_seen(head, request, 5)
        await nodes[0].learn(4)
        assert (await finish(head, request)).tokens == expected
        assert {node.epoch for node in nodes} == {4}
        assert nodes[0].samples[-1].stages[2].renewals > before + 3 > 10
        async with asyncio.timeout(120):
            while sum(accepted(nodes)) < sum(begun) + 3 * RENEWALS:
                assert (await ask(head, PROMPT, TOKENS)).tokens == expected
        assert troubles(head, since) == []
        assert (head.now.plan_status, head.now.plan_problem) == ("ready", None)
        assert all(len(node.parts.peers.mesh.contacts) == 2 for node in nodes)


# ---- a twin: the same Mac once more, from a copy of its folder


@contextmanager
def frozen(home: Home) -> Iterator[None]:
    """Stop the node over that folder, as if it hangs: its links stay open without replies."""
    node = next(c for c in psutil.Process().children() if str(home.root) in c.cmdline())
    node.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        node.send_signal(signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("leads", [0, pytest.param(1, marks=pytest.mark.nightly)])
async def test_a_node_that_was_started_anew_ends_the_plan_and_not_before_the_old_one_is_silent(
    model: Path, tmp_path_factory: pytest.TempPathFactory, leads: int
) -> None:
    """Either of the two is the head once, so that each side has the lower device id."""
    folder, copies = tmp_path_factory.mktemp("n"), tmp_path_factory.mktemp("c")
    homes = [paired_home(folder, number) for number in range(2)]
    member, models = 1 - leads, ("--models", str(model), "--no-multicast")
    async with running_node(homes[leads], *models, has_worker=True) as head:
        place = f"{HOST}:{own_port(head)}"
        async with running_node(homes[member], *models, "--peer", place, has_worker=True):
            await head.until(knows(2), START_S, "Linking the nodes")
            await head.client.load(LoadRequest(model=str(model)))
            await head.until(lambda w: w.now.plan_status == "ready", START_S, "Loading")
            before, since = head.now.counters.accepted, len(head.seen)
            async with running_node(paired_home(copies, member), *models, "--peer", place, has_worker=True):
                await head.until(lambda w: w.now.counters.accepted >= before + 2, START_S, "Dialling of the twin")
                assert troubles(head, since) == []
                with frozen(homes[member]):
                    await head.until(lambda w: w.now.plan_status != "ready", START_S, "The end of the plan")
                    await head.until(knows(2), START_S, "Linking the twin")
                    assert any(isinstance(e, PeerGone) for e in head.seen[since:])
