"""Every screen of the UI with the keys that lead to it, for recording over real nodes and for drawing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple
from unittest.mock import patch

from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from screenshots.recording import Recording, ReplayingClient
from tui.app import MaclusterApp

Size = tuple[int, int]
SIZES: Final[tuple[Size, ...]] = ((120, 36), (80, 24))
THEMES: Final = ("macluster-dark", "macluster-colour-blind", "textual-light")
NOTE: Final = "demo: simulated Macs on this one"
SETTLED: Final = 4  # equal looks in a row
LOOK_S: Final = 0.15
PATIENCE_S: Final = 60.0


class Scene(NamedTuple):
    """A picture: the recording it is drawn from, and the keys and actions (in brackets) that lead to it.

    `resizes`: it looks the same in a terminal that has a size from the start and in one that gets it.
    """

    recording: str
    steps: tuple[str, ...] = ()
    resizes: bool = True

    @property
    def note(self) -> str:
        """The app's note about where it runs; a Mac that is alone has none, as at home."""
        return "" if self.recording == "alone" else NOTE


SCENES: Final[dict[str, Scene]] = {
    "welcome": Scene("alone"),
    "check": Scene("alone", ("[open('check')]",)),
    "dashboard": Scene("main"),
    "chat": Scene("main", ("[screen.pane(5)]", "[screen.zoom]")),
    "models": Scene("main", ("ctrl+o",)),
    "split": Scene("main", ("f4", "left", "left")),
    "topology": Scene("main", ("[open('topology')]",)),
    "trust": Scene("main", ("[open('trust')]",)),
    "peer": Scene("main", ("[screen.pane(1)]", "down", "enter")),
    "hop": Scene("main", ("[open('hop')]",)),
    "logs": Scene("main", ("[open('logs')]",)),
    "sampling": Scene("main", ("[open('sampling')]",)),
    "conversations": Scene("main", ("[open('conversations')]",), resizes=False),
    "help": Scene("main", ("[screen.pane(1)]", "f1"), resizes=False),
    "batch": Scene("busy", ("[open('batch')]",)),
    "timeline": Scene("busy", ("[open('batch')]", "enter")),
    "api": Scene("serving", ("[open('api')]",)),
    "pairing": Scene("pairing", ("[pair('STRANGER')]",)),
    "lost": Scene("lost"),
}


async def lead(app: MaclusterApp, pilot: Pilot[None], scene: Scene) -> None:
    """Press the keys of `scene`, each after the screen is drawn."""
    for step in scene.steps:
        if step.startswith("["):
            await app.run_action(step.strip("[]").replace("STRANGER", _stranger(app)))
        else:
            await pilot.press(step)
        await settled(app, pilot)


def _stranger(app: MaclusterApp) -> str:
    return next((p.device_id for p in app.state.snapshot.peers if p.trust in ("unpaired", "seen")), "")


async def settled(app: MaclusterApp, pilot: Pilot[None], *, looks: int = SETTLED) -> None:
    seen: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(seen) < looks or len(set(seen[-looks:])) > 1:
            await pilot.pause(LOOK_S)
            seen.append(text_of(app))


def text_of(app: MaclusterApp) -> str:
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def colours_of(app: MaclusterApp) -> str:
    cells: dict[str, int] = {}
    for strip in app.screen._compositor.render_strips():
        for text, style, _ in strip:
            fore, back = (
                c.get_truecolor().hex if c else "default" for c in (style and style.color, style and style.bgcolor)
            )
            cells[f"{fore} on {back}"] = cells.get(f"{fore} on {back}", 0) + len(text)
    return "".join(f"{count:5} {pair}\n" for pair, count in sorted(cells.items()))


async def drawn(
    name: str,
    recording: Recording,
    sizes: Sequence[Size],
    themes: Sequence[str],
    then: Callable[[MaclusterApp, Size], None],
) -> list[str]:
    """Draw a scene from its recording and hand the app to `then` in each size, and in the first of `SIZES` in each
    of the `themes`; returns requests without a reply.
    """
    client = ReplayingClient(recording)
    state = replace(recording.state, ticked_at=recording.at)
    with standing_still(recording.at), TemporaryDirectory() as folder:
        app = MaclusterApp(client, note=SCENES[name].note, folder=Path(folder))
        app.animation_level = "none"
        async with app.run_test(size=sizes[0]) as pilot:
            await until(lambda: app.state.attached, pilot)
            app.set_state(state)
            still(app)
            await settled(app, pilot)
            await lead(app, pilot, SCENES[name])
            app.set_state(state)
            still(app)
            for size in sizes:
                if size != sizes[0]:
                    await pilot.resize_terminal(*size)
                for theme in themes if size == SIZES[0] else themes[:1]:
                    app.theme = theme
                    await settled(app, pilot, looks=SETTLED if theme == themes[0] else 2)
                    then(app, size)
    return client.missing


@contextmanager
def standing_still(at: float) -> Iterator[None]:
    """Fix the time of day at `at`, in UTC, and stop ticks; clocks that measure continue."""
    no_tick = patch("tui.state.state.ticked", lambda state, now: state)
    with patch.dict("os.environ", TZ="UTC"), patch("time.time", lambda: at), no_tick:
        time.tzset()
        try:
            yield
        finally:
            time.tzset()


def still(app: MaclusterApp) -> None:
    for field in app.screen.query("Input, TextArea"):
        if isinstance(field, Input | TextArea):
            field.cursor_blink = False


async def until(reached: Callable[[], bool], pilot: Pilot[None], *, every_s: float = 0.1) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not reached():
            await pilot.pause(every_s)
