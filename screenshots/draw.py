"""`make shots`: runs the demo, drives the app in it, and writes the README's pictures as PNG; then those of benches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psutil
from textual.pilot import Pilot

from core.events import Peer
from core.requests import PairWith
from screenshots import png, timeline
from tui.app import MaclusterApp
from tui.cli import DEMO_PROMPT
from tui.client import NodeClient
from tui.demo import START_S, Demo, DemoConfig, pair
from tui.watch import Watch

SIZES = ((120, 36), (80, 24))
PAIRED = 3
LONG_PROMPTS = ("Tell me a story about a fox.", "Give me a table of the keys.")
TOO_SMALL_GB = (0.03, 0.02)


async def main() -> None:
    """Draw every screen at both sizes."""
    png.require()
    await _draw_all()
    await _draw_lost()


async def _draw_all() -> None:
    """The dashboard, the model picker, the trust screen and the pairing dialog."""
    demo = Demo(DemoConfig(budgets_gb=(64, 32, 16, 24)), print)
    try:
        await demo.start()
        await demo.find_each_other()
        for other in demo.watches[1:PAIRED]:  # the last one is there to be paired
            await pair(demo.head, other)
        await demo.head.until(lambda w: len(_linked(w)) == PAIRED, START_S, "Linking the nodes")
        await demo.load()
        for size in SIZES:
            await _draw(demo, size)
    finally:
        await demo.stop()


async def _draw_lost() -> None:
    """Two Macs of which neither could go on alone, and one of them stands still."""
    demo = Demo(DemoConfig(budgets_gb=TOO_SMALL_GB), print)
    try:
        await demo.start()
        await demo.join()
        await demo.load()
        for size, prompt in zip(SIZES, LONG_PROMPTS, strict=True):
            async with NodeClient(demo.home) as client:
                app = MaclusterApp(client, note="demo: simulated Macs on this one")
                async with app.run_test(size=size) as pilot:
                    await _lose(demo, app, pilot, prompt)
                    _save(app, f"lost-{size[0]}x{size[1]}")
                    await pilot.press("escape")
            await demo.head.until(lambda w: w.now.plan_status == "ready" and not w.now.running, START_S, "Recovering")
    finally:
        await demo.stop()


async def _lose(demo: Demo, app: MaclusterApp, pilot: Pilot[None], prompt: str) -> None:
    """Freeze the other Mac in the middle of an answer, until it is seen; it goes on when the picture is drawn."""
    await _until(lambda: app.state.attached, pilot)
    await pilot.pause(1.0)
    await pilot.press(*prompt, "enter")
    await _until(lambda: (answer := app.state.answer) is not None and answer.tokens >= 12, pilot, every_s=0.01)
    node = psutil.Process(demo.pid_of(1))
    frozen = [node, *node.children()]
    try:
        for process in frozen:
            process.suspend()
        await _until(lambda: (told := app.state.snapshot.recovery) is not None and told.state == "wait", pilot)
        await pilot.pause(1.0)
    finally:
        for process in frozen:
            process.resume()


def _linked(watch: Watch) -> list[Peer]:
    return [p for p in watch.now.peers if p.state == "connected" and p.budget_bytes]


def _id_of(watch: Watch) -> str:
    return next(p.device_id for p in watch.now.peers if p.is_self)


async def _draw(demo: Demo, size: tuple[int, int]) -> None:
    async with NodeClient(demo.home) as client:
        app = MaclusterApp(client, note="demo: simulated Macs on this one")
        async with app.run_test(size=size) as pilot:
            await _until(lambda: demo.head.now.plan_status == "ready" and not demo.head.now.running, pilot)
            await _ask(demo, pilot)
            _save(app, f"dashboard-{size[0]}x{size[1]}")
            await pilot.press("ctrl+o")
            await pilot.pause(1.0)
            _save(app, f"models-{size[0]}x{size[1]}")
            await pilot.press("escape", "escape")
            app.action_open("trust")
            await pilot.pause(2.0)
            _save(app, f"trust-{size[0]}x{size[1]}")
            await pilot.press("escape")
            await _pair(demo, app, pilot)
            _save(app, f"pairing-{size[0]}x{size[1]}")
            await pilot.press("escape")
            await pilot.pause(1.0)


async def _pair(demo: Demo, app: MaclusterApp, pilot: Pilot[None]) -> None:
    """Up to where the digits are compared."""
    stranger = demo.watches[PAIRED]
    app.action_pair(_id_of(stranger))
    await stranger.client.pair_with(PairWith(device_id=_id_of(demo.head)))
    await _until(lambda: bool((step := app.state.snapshot.pairing) and step.state == "compare"), pilot)
    await pilot.pause(1.0)


async def _ask(demo: Demo, pilot: Pilot[None]) -> None:
    before = demo.head.now.last_done
    await pilot.pause(1.0)
    await pilot.press(*DEMO_PROMPT, "enter")
    await _until(lambda: demo.head.now.last_done is not before, pilot)
    await pilot.pause(1.0)


async def _until(reached: Callable[[], bool], pilot: Pilot[None], *, every_s: float = 0.1) -> None:
    async with asyncio.timeout(120):
        while not reached():
            await pilot.pause(every_s)


def _save(app: MaclusterApp, name: str) -> None:
    """Without xml:space, librsvg drops the leading non-breaking spaces and words stick together."""
    png.write(name, app.export_screenshot().replace("<svg ", '<svg xml:space="preserve" ', 1))


if __name__ == "__main__":
    asyncio.run(main())
    timeline.main()
