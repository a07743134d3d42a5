"""`make screenshots`: records real demos, draws every screen from the recordings, and the pictures of benches.

`--replay` draws again from the last recordings. The text of each picture is kept next to it; CI compares it with the
app's current screens.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from unittest.mock import patch

from screenshots import architecture, moving, png, record, recording, timeline
from screenshots.scenes import SCENES, SIZES, colours_of, drawn, text_of
from tui.app import MaclusterApp

TEXTS = Path(__file__).parent / "text"


async def look(name: str, size: tuple[int, int], *, picture: bool = False) -> str:
    """A scene as text: the screen, then the colours of each theme. Draws the `picture`, too."""
    told = recording.load(SCENES[name].recording)
    parts: list[str] = []

    def take(app: MaclusterApp) -> None:
        if not parts:
            parts.append(text_of(app))
            if picture:
                # without xml:space, librsvg drops the leading non-breaking spaces and words stick together
                svg = app.export_screenshot().replace("<svg ", '<svg xml:space="preserve" ', 1)
                png.write(f"{name}-{size[0]}x{size[1]}", svg)
        parts.append(f"--- {app.theme}\n{colours_of(app)}")

    # the help names the file where keys are changed
    with patch.dict(os.environ, XDG_CONFIG_HOME="/Users/anna/.config"):
        missing = await drawn(name, told, size, take)
    if missing:
        raise LookupError(f"The recording {SCENES[name].recording} lacks {missing}; run `make screenshots`.")
    return "".join(parts)


async def draw_all() -> None:
    TEXTS.mkdir(exist_ok=True)
    for name in SCENES:
        for size in SIZES:
            text = await look(name, size, picture=True)
            (TEXTS / f"{name}-{size[0]}x{size[1]}.txt").write_text(text)
    png.HERE.joinpath(f"{moving.NAME}.svg").write_text(await moving.picture())


if __name__ == "__main__":
    png.require()
    if "--replay" not in sys.argv:
        asyncio.run(record.everything())
    asyncio.run(draw_all())
    architecture.main()
    if "--replay" not in sys.argv:
        timeline.main()
