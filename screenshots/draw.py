"""`make shots`: runs the demo, drives the app in it, and writes the README's pictures as PNG.

The SVG that Textual exports is turned into PNG by rsvg-convert (Debian: librsvg2-bin, with fonts-firacode).
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from tui.app import MaclusterApp
from tui.cli import DEMO_PROMPT
from tui.client import NodeClient
from tui.demo import Demo, DemoConfig

HERE = Path(__file__).parent
SIZES = ((120, 36), (80, 24))
ZOOM = "1.5"


async def main() -> None:
    """Draw the dashboard and the model picker at both sizes."""
    if not shutil.which("rsvg-convert"):
        sys.exit("Install rsvg-convert first (Debian: librsvg2-bin fonts-firacode; macOS: brew install librsvg).")
    demo = Demo(DemoConfig(budgets_gb=(64, 32, 16)), print)
    try:
        await demo.start()
        await demo.join()
        await demo.load()
        for size in SIZES:
            await _draw(demo, size)
    finally:
        await demo.stop()


async def _draw(demo: Demo, size: tuple[int, int]) -> None:
    async with NodeClient(demo.home) as client:
        app = MaclusterApp(client, note="demo: three simulated Macs")
        async with app.run_test(size=size) as pilot:
            await _until(lambda: demo.head.now.plan_status == "ready" and not demo.head.now.running, pilot)
            await _ask(demo, pilot)
            _save(app, f"dashboard-{size[0]}x{size[1]}")
            await pilot.press("ctrl+o")
            await pilot.pause(1.0)
            _save(app, f"models-{size[0]}x{size[1]}")


async def _ask(demo: Demo, pilot: Pilot[None]) -> None:
    before = demo.head.now.last_done
    await pilot.pause(1.0)
    await pilot.press(*DEMO_PROMPT, "enter")
    await _until(lambda: demo.head.now.last_done is not before, pilot)
    await pilot.pause(1.0)


async def _until(reached: Callable[[], bool], pilot: Pilot[None]) -> None:
    async with asyncio.timeout(120):
        while not reached():
            await pilot.pause(0.1)


def _save(app: MaclusterApp, name: str) -> None:
    """Without xml:space, librsvg drops the leading non-breaking spaces and words stick together."""
    svg = app.export_screenshot().replace("<svg ", '<svg xml:space="preserve" ', 1)
    target = HERE / f"{name}.png"
    subprocess.run(["rsvg-convert", "-z", ZOOM, "-o", str(target)], input=svg.encode(), check=True)
    print(target.name)


if __name__ == "__main__":
    asyncio.run(main())
