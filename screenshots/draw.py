"""`make screenshots`: records real demos, draws every screen from the recordings, and the pictures of benches.

`--replay` draws again from the last recordings. The text of each picture is kept next to it; CI compares it with the
app's current screens.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from screenshots import architecture, moving, png, record, recording, timeline
from screenshots.scenes import SCENES, SIZES, THEMES, Size, colours_of, drawn, text_of
from tui.app import MaclusterApp

TEXTS = Path(__file__).parent / "text"


async def look(name: str, themes: Sequence[str] = THEMES, *, picture: bool = False) -> dict[str, str]:
    """A scene as text by the file's name, in each size: the screen, then the colours of its themes.

    Draws the `picture`, too.
    """
    told = recording.load(SCENES[name].recording)
    looks: dict[str, str] = {}

    def take(app: MaclusterApp, size: Size) -> None:
        file = f"{name}-{size[0]}x{size[1]}"
        if file not in looks:
            looks[file] = text_of(app)
            if picture:
                # without xml:space, librsvg drops the leading non-breaking spaces and words stick together
                png.write(file, app.export_screenshot().replace("<svg ", '<svg xml:space="preserve" ', 1))
        looks[file] += f"--- {app.theme}\n{colours_of(app)}"

    # the help names the file where keys are changed
    with patch.dict(os.environ, XDG_CONFIG_HOME="/Users/anna/.config"):
        for sizes in [SIZES] if SCENES[name].resizes else [[size] for size in SIZES]:
            if missing := await drawn(name, told, sizes, themes, take):
                raise LookupError(f"The recording {SCENES[name].recording} lacks {missing}; run `make screenshots`.")
    return looks


async def draw_all() -> None:
    TEXTS.mkdir(exist_ok=True)
    for name in SCENES:
        for file, text in (await look(name, picture=True)).items():
            (TEXTS / f"{file}.txt").write_text(text)
    png.HERE.joinpath(f"{moving.NAME}.svg").write_text(await moving.picture())


if __name__ == "__main__":
    png.require()
    if "--replay" not in sys.argv:
        asyncio.run(record.everything())
    asyncio.run(draw_all())
    architecture.main()
    if "--replay" not in sys.argv:
        timeline.main()
