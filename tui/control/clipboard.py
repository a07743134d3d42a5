"""Copies text: with pbcopy on a local Mac, else through the terminal, else to a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from core.errors import NodeError
from tui.control.app_interface import AppInterface

# terminals cut or drop an OSC 52 sequence longer than this
OSC52_LIMIT = 74_000
PBCOPY_TIMEOUT_S = 3.0

Way = Literal["pbcopy", "osc52", "file"]


class Clipboard:
    """Copies text and reports where it is; `folder` is for text that no clipboard takes."""

    def __init__(self, app: AppInterface, folder: Path) -> None:
        self._app = app
        self._folder = folder

    def copy(self, text: str) -> None:
        self._app.in_background(self._copy, text)

    async def _copy(self, text: str) -> None:
        self._app.notify(await copy(text, self._app.copy_to_clipboard, self._folder))


def way_for(text: str, platform: str, environ: dict[str, str]) -> Way:
    """The way to copy that works here. Terminal.app lacks OSC 52; over SSH, pbcopy would copy on the other Mac."""
    remote = "SSH_CONNECTION" in environ
    if platform == "darwin" and not remote:
        return "pbcopy"
    known_deaf = environ.get("TERM_PROGRAM") == "Apple_Terminal" or environ.get("TERM") in ("linux", "dumb")
    return "file" if known_deaf or len(text.encode()) > OSC52_LIMIT else "osc52"


async def copy(text: str, osc52: Callable[[str], None], folder: Path) -> str:
    """Copy `text` and return where it is. `osc52` writes to the terminal. Raises NodeError for a failed write."""
    way = way_for(text, sys.platform, dict(os.environ))
    if way == "pbcopy" and await _pbcopy(text):
        return "Copied."
    if way == "osc52":
        osc52(text)
        return "Copied."
    return f"This terminal has no clipboard. The text is in {_to_file(text, folder)}."


async def _pbcopy(text: str) -> bool:
    try:
        # without a locale, as under tmux from launchd, it takes the bytes for MacRoman
        utf8 = {**os.environ, "LC_CTYPE": "UTF-8"}
        process = await asyncio.create_subprocess_exec("pbcopy", stdin=asyncio.subprocess.PIPE, env=utf8)
        await asyncio.wait_for(process.communicate(text.encode()), PBCOPY_TIMEOUT_S)
    except (OSError, TimeoutError):
        return False
    return process.returncode == 0


def _to_file(text: str, folder: Path) -> Path:
    path = folder / "copied.txt"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise NodeError(f"The text can't be written to {path} ({error.strerror}).", "Free some space.") from error
    return path
