"""The topology chooser over a real cluster: the node's text for each, and a reload that asks for confirmation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from core.demo import DEMO_MODEL
from core.requests.answers import ChatRequest, Message
from tests.support.cluster import running_demo, tokens_seen
from tests.support.person import Person
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.client import NodeClient
from tui.screens.dialogs import ChoiceScreen
from tui.screens.topology import TopologyScreen

RELOADED_S = 120.0


@asynccontextmanager
async def dashboard(demo: Demo, size: tuple[int, int]) -> AsyncIterator[Person]:
    async with NodeClient(demo.home) as client:
        app = MaclusterApp(client, folder=demo.home.root)
        async with app.run_test(size=size, notifications=True) as pilot:
            viewer = Person(app, pilot)
            await viewer.until(lambda: app.state.snapshot.plan_status == "ready" and bool(app.catalog.choices))
            prompt = app.dashboard.prompt
            await viewer.until(lambda: app.focused is prompt)
            await viewer.press("escape")
            await viewer.until(lambda: app.focused is not prompt)
            yield viewer


async def look(viewer: Person, width: int) -> None:
    """Walk through the topologies with whole layers on each Mac."""
    await viewer.opens("T", screen=TopologyScreen)
    await viewer.sees("● private  loaded", "✓ forward", "✓ reverse", "✓ single", "tok/s")
    assert max(map(len, viewer.text.splitlines())) == width
    await viewer.sees("studio output", "token ids, logits", "hidden states of layers", "(estimated)")
    await viewer.press("enter")
    await viewer.sees("private is already loaded.")
    await viewer.press("j")
    await viewer.sees("studio gets the token", "4 B")
    await viewer.press("j")
    await viewer.sees("studio asks", "mbp embeds")
    await viewer.press("j")
    await viewer.sees("1 Mac", "nothing", "Enter: reload this way (asks first)")
    await viewer.press("j")
    await viewer.sees("✓ tensor   2 Macs", "studio rank 0, output + mbp rank 1", "Every layer split: your choice")
    await viewer.press("k")


@pytest.mark.slow
async def test_what_each_topology_means_and_how_another_is_loaded() -> None:
    async with running_demo(DEMO_MODEL, (64, 32)) as demo:
        async with dashboard(demo, (80, 24)) as viewer:
            await look(viewer, 80)
            await viewer.pilot.resize_terminal(60, 16)
            await viewer.sees("● private  loaded")
            await viewer.press("escape")
            await viewer.until(lambda: not isinstance(viewer.app.screen, TopologyScreen))
        async with dashboard(demo, (120, 36)) as viewer:
            await look(viewer, 120)
            await viewer.opens("enter", screen=ChoiceScreen)
            await viewer.opens("enter", screen=TopologyScreen)
            await viewer.rests()
            assert plan_of(demo)[1] == "private", "the safe answer is the first one"

            said = Message(role="user", content="What is a hop?")
            request = ChatRequest(messages=(said,), max_tokens=3000, min_tokens=3000)
            request_id = (await demo.head.client.chat(request)).request_id
            await tokens_seen(demo.head, request_id, 2)
            await viewer.until(lambda: bool(viewer.app.state.snapshot.running))
            await viewer.opens("enter", screen=ChoiceScreen)
            await viewer.sees("loaded again on 1 Mac", "The running answer stops")
            before = plan_of(demo)[0]
            await viewer.press("down", "enter")
            await viewer.until(lambda: not isinstance(viewer.app.screen, ChoiceScreen | TopologyScreen))
            await demo.head.until(
                lambda w: plan_of(demo)[0] > before and w.now.plan_status == "ready", RELOADED_S, "Loading"
            )
            assert plan_of(demo)[1] == "single"
            assert [kept.request_id for kept in await demo.head.client.unfinished()] == [request_id]
            await viewer.until(lambda: viewer.app.state.snapshot.plan_status == "ready")
            viewer.app.dashboard.chat.focus()
            await viewer.opens("T", screen=TopologyScreen)
            await viewer.sees("● single", "✓ private")


def plan_of(demo: Demo) -> tuple[int, str]:
    """Generation and topology of the loaded plan."""
    plan = demo.head.now.plan
    assert plan
    return plan.plan_gen, plan.topology
