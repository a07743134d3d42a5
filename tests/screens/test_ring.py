"""Screens over a real ring.

The hop screen has figures during an answer and a speed test that can be stopped. The peers pane leaves a Mac out, in
the last test.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from operator import lt

import pytest
import pytest_asyncio

from core.demo import DEMO_MODEL
from tests.support.cluster import ask, running_demo
from tests.support.person import Person, viewer_of
from tui.app import MaclusterApp
from tui.cli.demo import Demo
from tui.client import NodeClient
from tui.screens.dashboard import Dashboard
from tui.screens.dialogs import ChoiceScreen
from tui.screens.hop import HopScreen
from tui.screens.peer import PeerScreen
from tui.screens.trust import TrustScreen
from tui.state.hop_history import HOP_WINDOW_S
from tui.state.hop_phases import points_of
from tui.state.hops import Hop
from tui.widgets.peer_pane import PeerPane

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

LEAST = (60, 16)
SIZES = [
    pytest.param((120, 36), id="wide"),
    pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly),
    pytest.param((60, 16), id="least"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[Demo]:
    async with running_demo(DEMO_MODEL, (64, 32, 16)) as running:
        yield running


@asynccontextmanager
async def hop_screen(demo: Demo, size: tuple[int, int]) -> AsyncIterator[Person]:
    async with viewer_of(demo, size) as viewer:
        app = viewer.app
        await viewer.until(lambda: app.state.snapshot.plan_status == "ready")
        await ask(demo.head, "Tell me about the three Macs.", 24)
        app.dashboard.chat.focus()  # comes with the next message
        await viewer.until(lambda: app.dashboard.chat.has_focus_within)
        await viewer.press("3")
        await viewer.until(lambda: app.focused is app.dashboard.hops)
        await viewer.opens("enter", screen=HopScreen)
        yield viewer


def hop_of(viewer: Person) -> Hop:
    assert isinstance(viewer.app.screen, HopScreen)
    assert viewer.app.screen.hop
    return viewer.app.screen.hop


@pytest.mark.parametrize("size", SIZES)
async def test_it_shows_where_the_time_of_every_hop_goes(demo: Demo, size: tuple[int, int]) -> None:
    async with hop_screen(demo, size) as viewer:
        await viewer.sees("TLS 1.3", "ms ┤", "┼─", "frames of", "Previous", "Pause")
        seen = set()
        for _ in range(3):
            hop = hop_of(viewer)
            seen.add(hop.label)
            await viewer.sees(f"of 3 · {hop.source} → {hop.target}", f"{hop.source} computes")
            assert max(map(len, viewer.text.splitlines())) == size[0]
            await viewer.press("right")
        assert seen == {"studio→mbp", "mbp→mini", "mini→studio"}
        await viewer.press("left")
        await viewer.until(lambda: hop_of(viewer).label in seen)
        if size[0] == 120:
            await viewer.sees("all hops", "▸ ", "p50", *seen)


async def test_the_link_is_tested_and_a_test_is_stopped_before_the_screen_is_left(demo: Demo) -> None:
    async with hop_screen(demo, (80, 24)) as viewer:
        while hop_of(viewer).source != "studio":
            await viewer.press("right")
        await viewer.press("s")
        await viewer.sees("round trip", "MB/s")
        for key in ("s", "s", "escape"):  # in one go: it rests for a second before it begins again, and may end soon
            viewer.app.simulate_key(key)
        await viewer.sees("Speed test failed", "was stopped")
        assert any("is running" in note.message for note in viewer.app._notifications)
        assert isinstance(viewer.app.screen, HopScreen)
        await viewer.press("escape")
        await viewer.until(lambda: not isinstance(viewer.app.screen, HopScreen))


def steady_frames(viewer: Person) -> list[int]:
    """The number of frames after the prompt that the screen has figures of, hop by hop."""
    assert isinstance(viewer.app.screen, HopScreen)
    now, hops = viewer.app.state, viewer.app.screen._ring.hops
    points = [points_of(now, hop.pair, time.time(), HOP_WINDOW_S) for hop in hops]
    return [sum(p.frames for p in found if not p.first) for found in points]


def has_more(viewer: Person, before: list[int]) -> bool:
    """Whether every hop has more of them."""
    return all(map(lt, before, steady_frames(viewer)))


async def test_the_figures_of_every_answer_reach_the_screen_however_short_it_is(demo: Demo) -> None:
    async with hop_screen(demo, (80, 24)) as viewer:
        await viewer.sees("frames of")
        for tokens in (1, 1, 2):
            more = partial(has_more, viewer, steady_frames(viewer))
            await ask(demo.head, "What is a hop?", tokens)
            await viewer.until(more)


async def test_the_picture_stands_still_while_it_is_paused(demo: Demo) -> None:
    async with hop_screen(demo, (80, 24)) as viewer:
        await viewer.sees("last 60 s", "p50")
        await viewer.press("p")
        await viewer.sees("paused")
        before = viewer.text
        await ask(demo.head, "What is a hop?", 12)
        viewer.app.set_state(viewer.app.state)
        await viewer.pilot.pause()
        assert viewer.text == before
        await viewer.press("w")
        await viewer.sees("last 10 min", "means of 10 s")
        await viewer.press("p")
        await viewer.until(lambda: "paused" not in viewer.text)


async def test_without_a_ring_it_says_why_and_what_to_do(demo: Demo) -> None:
    async with NodeClient(demo._home(1)) as client:
        app = MaclusterApp(client)
        async with app.run_test(size=(80, 24), notifications=True) as pilot:
            viewer = Person(app, pilot)
            await viewer.until(lambda: app.state.attached)
            await app.run_action("open('hop')")
            await viewer.sees("led by studio", "Its figures are on the screen of studio.")
            await viewer.press("s", "left", "right", "w", "p")
            await viewer.until(lambda: any("no hop to test" in note.message for note in app._notifications))


def pointed(app: MaclusterApp) -> str:
    """The Mac under the cursor of the trust screen."""
    mac = app.screen.list.pointed if isinstance(app.screen, TrustScreen) else None
    return mac.device_id if mac else ""


async def test_the_keys_of_the_peers_pane(demo: Demo) -> None:
    """A Mac is left out, and what is loaded next does without it."""
    async with viewer_of(demo, (120, 36)) as someone:
        app, macs = someone.app, {p.name: p for p in demo.head.now.peers}
        await someone.sees("mbp", "mini", "loaded")
        await someone.press("escape", "1")
        await someone.sees("●▸studio", "Enter Details", "Space Leave out")
        await someone.press("space")
        await someone.sees("This Mac leads the models it loads")
        await someone.press("G", "k", "down", "up")
        pane = app.dashboard.peers
        assert isinstance(pane, PeerPane)
        name = [p.name for p in app.state.snapshot.peers][-2]
        other = macs[name]
        await someone.sees(f"●▸{name}")
        await someone.press("space")
        await someone.sees("– left out ·", "is left out of the next load")

        for size in ((120, 36), (80, 24), LEAST):
            await someone.pilot.resize_terminal(*size)
            await someone.rests()  # a closed pane gives the focus to the prompt soon after
            await app.run_action("screen.pane(1)")
            await someone.sees("1 Peers", "– left out")
            await someone.opens("enter", screen=PeerScreen)
            await someone.sees("Details", other.device_id, "● ready", "member")
            assert max(map(len, someone.text.splitlines())) == size[0]
            await someone.opens("t", screen=TrustScreen)
            await someone.until(lambda: pointed(app) == other.device_id)
            await someone.sees("key SHA-256")
            await someone.opens("escape", screen=PeerScreen)
            await someone.opens("x", screen=ChoiceScreen)
            await someone.sees(f"Revoke {name}", "Cancel")
            await someone.opens("enter", screen=PeerScreen)
            await someone.opens("escape", screen=Dashboard)

        await app.client.unload()
        await someone.until(lambda: app.state.snapshot.plan is None)
        await someone.until(lambda: not any(choice.loaded for choice in app.catalog.choices or ()))
        split = next(choice.preview.plan for choice in app.catalog.choices or ())
        assert split
        assert other.device_id not in {s.device_id for s in split.stages}, "the list already plans without it"
        await someone.pilot.resize_terminal(120, 36)
        await someone.press("ctrl+o")
        await someone.press("enter")
        await someone.until(lambda: app.state.snapshot.plan_status == "ready")
        assert app.state.snapshot.plan
        assert {s.peer for s in app.state.snapshot.plan.stages} == {"studio", "mbp", "mini"} - {name}
