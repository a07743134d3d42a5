"""Whether this Mac may fall asleep by itself: not in the middle of an answer or a transfer. With its lid closed it does
all the same, and its screen may go dark. Source: caffeinate(8).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

WhenAwake = Literal["loaded", "always", "never"]
WHEN_AWAKE: Final[tuple[WhenAwake, ...]] = get_args(WhenAwake)
CAFFEINATE: Final = "/usr/bin/caffeinate"
PMSET: Final = "/usr/bin/pmset"
_ASSERTION: Final = re.compile(r"pid (\d+)\(caffeinate\):.*\bPreventUserIdleSystemSleep\b")


def stays_awake(when: WhenAwake, *, is_in_use: bool) -> bool:
    """`when` is what its person wants; `is_in_use`: it holds a model, or a model is being copied."""
    return when == "always" or (when == "loaded" and is_in_use)


class SleepPreventer:
    """A process keeps this Mac awake as long as it runs: `command` is its beginning, whatever follows are options of
    caffeinate. Where there is no such program nothing happens.
    """

    def __init__(self, pid: int, command: Sequence[str] = (CAFFEINATE,)) -> None:
        self._command = (*command, "-i", "-s", "-w", str(pid))
        self._exists = Path(command[0]).exists()
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self, *, wanted: bool) -> None:
        """Keep this Mac awake from now on, or no longer. It costs nothing where nothing changes, and is to be said
        again and again: somebody may end that process.
        """
        is_kept = self._process is not None and self._process.poll() is None
        if wanted and not is_kept and self._exists:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        elif not wanted and self._process:
            process, self._process = self._process, None
            process.kill()
            process.wait()


def awake_by() -> frozenset[int]:
    """The ids of those processes of caffeinate of which macOS says that they keep this Mac awake."""
    asked = subprocess.run([PMSET, "-g", "assertions"], capture_output=True, text=True, timeout=5, check=False)
    return parse_assertions(asked.stdout)


def parse_assertions(text: str) -> frozenset[int]:
    """Those that `pmset -g assertions` lists, by process."""
    return frozenset(int(pid) for pid in _ASSERTION.findall(text))
