"""Answers of the system: of a command, which may be missing, fail or hang, and of psutil. Standard library only."""

from __future__ import annotations

import errno
import subprocess
from contextlib import suppress
from typing import TypeVar

ASK_S = 5.0

_T = TypeVar("_T")


def answered(answer: _T | None) -> _T:
    """Check an answer of psutil, which on some Macs is None. Raises OSError then."""
    if answer is None:
        raise OSError(errno.EIO, "it gives no answer")
    return answer


def said(*command: str) -> str:
    """Output of a command that only reads; "" if it can't be run, or takes longer than `ASK_S`."""
    with suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ASK_S,
            check=False,
        )
        return asked.stdout or ""
    return ""
