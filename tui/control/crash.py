"""Writes crash reports of the screen to a file that only this user can read."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from core.version import program_version

TRACE: Final = "tui-crash.log"


def write(error: BaseException, folder: Path) -> str:
    """Write where `error` happened, without typed text (values, the error's words), and return a sentence about it."""
    path = folder / TRACE
    lines = [f"{time.strftime('%Y-%m-%d %H:%M:%S')} macluster {program_version()}\n", *_frames(error), "\n"]
    sorry = f"macluster crashed ({type(error).__name__})."
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.writelines(lines)
    except OSError:
        return f"{sorry} The details can't be written to {path}."
    return f"{sorry} The details are in {path}."


def _frames(error: BaseException) -> Iterator[str]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _frames(cause)
        yield "\nThen:\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__qualname__}\n"
