"""Keep this Mac from falling asleep on its own during an answer or a transfer.

It still sleeps when its lid is closed, and its display may turn off. Source: caffeinate(8).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, get_args

from core.mac.system_command import said

WhenAwake = Literal["loaded", "always", "never"]
WHEN_AWAKE: Final[tuple[WhenAwake, ...]] = get_args(WhenAwake)
CAFFEINATE: Final = "/usr/bin/caffeinate"
PMSET: Final = "/usr/bin/pmset"
_ASSERTION: Final = re.compile(r"pid (\d+)\(caffeinate\):.*\bPreventUserIdleSystemSleep\b")


def stays_awake(when: WhenAwake, *, is_in_use: bool) -> bool:
    """Whether to keep this Mac awake. `when` is the user's setting; `is_in_use`: a model is loaded or being copied."""
    return when == "always" or (when == "loaded" and is_in_use)


class SleepPreventer:
    """Runs `command`, caffeinate, while this Mac must stay awake; does nothing where it isn't installed."""

    def __init__(self, pid: int, command: Sequence[str] = (CAFFEINATE,)) -> None:
        self._command = (*command, "-i", "-s", "-w", str(pid))
        self._exists = Path(command[0]).exists()
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self, *, wanted: bool) -> None:
        """Start or stop keeping this Mac awake. Call it regularly: it is cheap, and caffeinate may have been killed."""
        is_kept = self._process is not None and self._process.poll() is None
        if wanted and not is_kept and self._exists:
            with suppress(OSError):  # no process or memory is free for it now
                self._process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
        elif not wanted and self._process:
            process, self._process = self._process, None
            process.kill()
            process.wait()


def awake_by() -> frozenset[int]:
    return parse_assertions(said(PMSET, "-g", "assertions"))


def parse_assertions(text: str) -> frozenset[int]:
    return frozenset(int(pid) for pid in _ASSERTION.findall(text))
