"""Whether this Mac may fall asleep by itself: not in the middle of an answer or a transfer. With its lid closed it does
all the same, and its screen may go dark. Source: caffeinate(8).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

WhenAwake = Literal["loaded", "always", "never"]
WHEN_AWAKE: Final[tuple[WhenAwake, ...]] = get_args(WhenAwake)
CAFFEINATE: Final = "/usr/bin/caffeinate"


def stays_awake(when: WhenAwake, *, is_in_use: bool) -> bool:
    """`when` is what its person wants; `is_in_use`: it holds a model, or a model is being copied."""
    return when == "always" or (when == "loaded" and is_in_use)


class Awake:
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
