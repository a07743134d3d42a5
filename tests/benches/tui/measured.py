"""The app with a clock in its event loop; `--bare` is a Textual app with nothing but a text area, to compare with.

SIGUSR1 starts a phase and ends the previous one, whose figures go to the given file.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from textual.app import App

LOOK_S = 0.01


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """Delays of the event loop, and CPU time of the process, both in seconds."""

    seconds: float
    cpu_s: float
    lags_s: tuple[float, ...]

    @property
    def cpu_percent(self) -> float:
        """Share of one core, in percent."""
        return 100 * self.cpu_s / self.seconds


class LoopClock:
    """Notes how late the loop wakes up, and writes one line per phase."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lags: list[float] = []
        self._began, self._cpu = time.perf_counter(), time.process_time()

    async def run(self) -> None:
        """Compare the clock with the wanted time for ever."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._turn)
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(LOOK_S)
            self._lags.append(time.perf_counter() - asked - LOOK_S)

    def _turn(self) -> None:
        now, cpu = time.perf_counter(), time.process_time()
        phase = Phase(seconds=now - self._began, cpu_s=cpu - self._cpu, lags_s=tuple(self._lags))
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(phase) + b"\n")
        self._lags, self._began, self._cpu = [], now, cpu


def bare_app() -> App[Any]:
    """The smallest app that takes text."""
    from textual.app import App, ComposeResult
    from textual.widgets import Static, TextArea

    class Bare(App[None]):
        def compose(self) -> ComposeResult:
            yield TextArea()
            yield Static("ready")

    return Bare()


async def run(home: Path, phases: Path, *, bare: bool) -> None:
    """Run the app until it quits."""
    clock = asyncio.create_task(LoopClock(phases).run())
    if bare:
        await bare_app().run_async()
    else:
        from core.settings import Home
        from tui.app import MaclusterApp
        from tui.client import NodeClient

        async with NodeClient(Home(home)) as client:
            await MaclusterApp(client).run_async()
    clock.cancel()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("phases", type=Path)
    parser.add_argument("--bare", action="store_true")
    given = parser.parse_args()
    asyncio.run(run(given.home, given.phases, bare=given.bare))
