"""Ask a command of the system, which may be missing, fail or hang. Standard library only."""

from __future__ import annotations

import subprocess
from contextlib import suppress

ASK_S = 5.0


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
