"""Runs real demos, leads the app through its screens over them, and keeps the nodes' replies."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx2
import msgspec
import psutil
from msgspec.structs import replace
from textual.pilot import Pilot

from core.demo import DEMO_MODEL
from core.events import Peer, TokenEvent
from core.requests.answers import ChatRequest, Message
from core.requests.api import ApiKeyName
from core.requests.conversations import SessionName
from core.requests.plans import LoadRequest
from core.requests.trust import PairWith
from core.settings import API_PORT
from screenshots import large_model, moving, recording
from screenshots.large_client import LargeClient, QuickClient, ShortClient, slowed
from screenshots.recording import Recording, RecordingClient
from screenshots.scenes import NOTE, SCENES, lead, settled, until
from tui.app import MaclusterApp
from tui.cli.demo import START_S, Demo, DemoConfig, pair
from tui.cli.parser import DEMO_PROMPT
from tui.cli.watch import Watch
from tui.state.state import UiState

PAIRED: Final = 3
QUESTIONS: Final = (DEMO_PROMPT, "Give me a table of the keys.")
LONG_PROMPT: Final = "Tell me a story about a fox."
TOO_SMALL_GB: Final = (0.095, 0.09)
SIZE: Final = (120, 36)
AT_ONCE: Final = 7
TOLD: Final = "What happens when a Mac is lost?"
PULLED_AT: Final = 8


class TwoModels(Demo):
    """A demo with the large model on its Macs' disks, too."""

    def _models(self, index: int, model: Path) -> Path:
        return model.parent


@asynccontextmanager
async def large_demo(budgets_gb: tuple[float, ...], api_ports: tuple[int, ...] = ()) -> AsyncIterator[Demo]:
    """A demo of Macs that have the large model and the demo model; it ends with the block."""
    with TemporaryDirectory() as folder:
        large_model.make(Path(folder))
        small = Path(folder) / DEMO_MODEL.name
        shutil.copytree(DEMO_MODEL, small)
        config = DemoConfig(budgets_gb=budgets_gb, model=small, api_ports=api_ports)
        async with running(TwoModels(config, print)) as demo:
            await demo.start()
            yield demo


async def everything() -> None:
    await alone()
    await together()
    await losing()
    await serving()
    await pulling()


async def alone() -> None:
    async with running(Demo(DemoConfig(budgets_gb=(64,), multicast=False), print)) as demo:
        await demo.start()
        async with app_over(demo, note="") as (app, pilot):
            await until(lambda: app.state.attached, pilot)
            await settled(app, pilot)
            await keep("alone", demo, app, pilot)


async def together() -> None:
    """Three Macs with a model, and a fourth one that is not paired: at rest, busy, and pairing."""
    async with large_demo((64, 32, 16, 24)) as demo:
        await demo.find_each_other()
        for other in demo.watches[1:PAIRED]:  # the last one stays unpaired
            await pair(demo.head, other)
        await demo.head.until(lambda w: len(_linked(w)) == PAIRED, START_S, "Linking the nodes")
        await demo.load()
        async with app_over(demo, LargeClient) as (app, pilot):
            await until(lambda: app.state.snapshot.plan_status == "ready", pilot)
            for question in QUESTIONS:
                await ask(app, pilot, question)
            await demo.head.client.save_session(SessionName(name="keys"))
            await keep("main", demo, app, pilot)
            stranger = _own_id(demo.watches[PAIRED])
            app.action_pair(stranger)
            await demo.watches[PAIRED].client.pair_with(PairWith(device_id=_own_id(demo.head)))
            await until(lambda: bool((step := app.state.snapshot.pairing) and step.state == "compare"), pilot)
            state = app.state
            await pilot.press("escape")
            await keep("pairing", demo, app, pilot, state)
        async with app_over(demo) as (app, pilot):
            await until(lambda: app.state.attached, pilot)
            await keep_busy(demo, app, pilot)


async def keep_busy(demo: Demo, app: MaclusterApp, pilot: Pilot[None]) -> None:
    """Send more requests than there are rows."""
    await demo.head.client.load(LoadRequest(model=demo.model, rows=4, context=4096))
    await until(lambda: app.state.snapshot.plan_status == "loading", pilot)
    await until(lambda: app.state.snapshot.plan_status == "ready", pilot)
    message = Message(role="user", content=LONG_PROMPT)
    request = ChatRequest(messages=(message,), min_tokens=900, max_tokens=900)
    ids = [(await demo.head.client.chat(request)).request_id for _ in range(AT_ONCE)]
    await until(lambda: sum(row.written for row in app.state.snapshot.batch.rows) > 200, pilot, every_s=0.05)
    await keep("busy", demo, app, pilot)
    for request_id in ids:
        await demo.head.client.cancel(request_id)
    await until(lambda: not app.state.snapshot.running, pilot)


async def losing() -> None:
    """Two Macs that can't continue alone; one of them hangs in the middle of an answer."""
    async with large_demo(TOO_SMALL_GB) as demo:
        await demo.join()
        await demo.load()
        async with app_over(demo, ShortClient) as (app, pilot):
            await until(lambda: app.state.snapshot.plan_status == "ready", pilot)
            await settled(app, pilot)
            await pilot.press(*LONG_PROMPT, "enter")
            # on the screen they come later
            written = sum(isinstance(e, TokenEvent) for e in demo.head.seen) + 12
            await until(lambda: sum(isinstance(e, TokenEvent) for e in demo.head.seen) >= written, pilot, every_s=0.01)
            node = psutil.Process(demo.pid_of(1))
            frozen = [node, *node.children()]
            try:
                for process in frozen:
                    process.suspend()
                await until(lambda: (told := app.state.snapshot.recovery) is not None and told.state == "wait", pilot)
                await pilot.pause(1.0)
                await keep("lost", demo, app, pilot)
            finally:
                for process in frozen:
                    process.resume()


async def pulling() -> None:
    """Three Macs, one of them lost in the middle of an answer: the recording of the moving picture."""
    async with large_demo((64, 32, 16)) as demo:
        await demo.join()
        await demo.load()
        async with app_over(demo, QuickClient) as (app, pilot):
            await until(lambda: app.state.snapshot.plan_status == "ready", pilot)
            client = app.client
            assert isinstance(client, QuickClient)
            expected = client.expected
            await pilot.press(*TOLD, "enter")
            await until(lambda: app.state.answer is not None, pilot, every_s=0.01)
            begun, at, mark = app.state, time.time(), len(client.told)
            await until(
                lambda: (said := app.state.answer) is not None and said.tokens >= PULLED_AT, pilot, every_s=0.02
            )
            lost_at = time.time()
            psutil.Process(demo.pid_of(2)).kill()
            await until(lambda: app.state.answer is None, pilot)
            await pilot.pause(1.0)
            played = tuple(slowed(client.told[mark:], expected))
            lost = next(i for i, (told_at, _) in enumerate(client.told[mark:]) if told_at >= lost_at)
            moving.save(moving.Played(state=of_any_version(begun), at=at, lost_at=played[lost][0], events=played))


async def serving() -> None:
    """Two Macs, and other programs that use their API."""
    async with large_demo((64, 32), (API_PORT,)) as demo:
        await demo.join()
        await demo.load()
        async with app_over(demo, LargeClient) as (app, pilot):
            await until(lambda: app.state.snapshot.plan_status == "ready", pilot)
            new_key = demo.head.client.new_api_key
            laptop, editor, _ = [(await new_key(ApiKeyName(name=name))).key for name in ("laptop", "editor", "evals")]
            asking = [asyncio.create_task(_ask_api(demo, key)) for key in (laptop, laptop, editor)]
            await until(lambda: len(_written(app)) == len(asking) and min(_written(app)) > 40, pilot, every_s=0.05)
            await keep("serving", demo, app, pilot)
            for each in asking:
                each.cancel()
            await until(lambda: not app.state.snapshot.running, pilot)


async def _ask_api(demo: Demo, key: str) -> None:
    eos = msgspec.json.decode((DEMO_MODEL / "config.json").read_bytes())["eos_token_id"]
    messages = [{"role": "user", "content": LONG_PROMPT}]
    asked = {"messages": messages, "max_tokens": 900, "logit_bias": {eos: -100}}
    api = demo.head.now.api
    assert api
    async with httpx2.AsyncClient(headers={"x-api-key": key}, timeout=60, verify=False) as http:
        await http.post(f"{api.url}/chat/completions", json=asked)


def _written(app: MaclusterApp) -> list[int]:
    return [row.written for row in app.state.snapshot.batch.rows]


@asynccontextmanager
async def running(demo: Demo) -> AsyncIterator[Demo]:
    try:
        yield demo
    finally:
        await demo.stop()


@asynccontextmanager
async def app_over(
    demo: Demo, kind: type[RecordingClient] = RecordingClient, note: str = NOTE
) -> AsyncIterator[tuple[MaclusterApp, Pilot[None]]]:
    async with kind(demo.home) as client:
        with TemporaryDirectory() as folder:
            app = MaclusterApp(client, note=note, folder=Path(folder))
            async with app.run_test(size=SIZE) as pilot:
                yield app, pilot


async def ask(app: MaclusterApp, pilot: Pilot[None], question: str) -> None:
    await until(lambda: app.focused is app.dashboard.prompt, pilot)
    await pilot.press(*question, "enter")
    await until(lambda: app.state.answer is not None, pilot, every_s=0.01)
    await until(lambda: app.state.answer is None, pilot)
    await settled(app, pilot)


def of_any_version(state: UiState) -> UiState:
    """The state without the node's version: pictures are drawn again by later ones."""
    return replace(state, snapshot=replace(state.snapshot, version=""))


async def keep(name: str, demo: Demo, app: MaclusterApp, pilot: Pilot[None], state: UiState | None = None) -> None:
    """Lead the app through the scenes of that recording, and write the result."""
    state, at = state or app.state, time.time()
    client = app.client
    assert isinstance(client, RecordingClient)
    for scene in SCENES.values():
        if scene.recording == name and name != "pairing":
            await lead(app, pilot, scene)
            await until(lambda: app.screen is app.dashboard or _left(app), pilot)
            app.dashboard.action_panes() if app.dashboard.has_class("zoom-left", "zoom-chat") else None
    hidden = {str(Path(demo.model).parent): "/models", str(demo.home.root): "/Users/you/.macluster"}
    recording.save(name, Recording(state=of_any_version(state), at=at, replies=dict(client.replies)), hidden)
    print(f"{name}: {len(client.replies)} answers")


def _left(app: MaclusterApp) -> bool:
    app.pop_screen()
    return app.screen is app.dashboard


def _linked(watch: Watch) -> list[Peer]:
    return [p for p in watch.now.peers if p.state == "connected" and p.budget_bytes]


def _own_id(watch: Watch) -> str:
    return next(p.device_id for p in watch.now.peers if p.is_self)
