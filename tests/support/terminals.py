"""A real terminal (tmux) with the real command in it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

WAIT_S = 120.0


class Terminal:
    """`macluster` with these arguments in its own tmux server with one window; `socket` is the server's."""

    def __init__(self, socket: Path, width: int, height: int, *words: str) -> None:
        self.socket = socket
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        # readline, which pytest imports, exports COLUMNS and LINES without Python's knowledge; Textual would believe
        # them. A killed process leaves its state folder, which is deleted with the socket's folder
        clean = f"env -u COLUMNS -u LINES TERM=tmux-256color COLORTERM=truecolor TMPDIR={socket.parent}"
        run = f"{clean} {sys.executable} -m tui.cli.main {shlex.join(words)}"
        self._call("new-session", "-d", "-s", "m", "-x", str(width), "-y", str(height), run)
        self.pid = int(self._call("display-message", "-p", "-t", "m", "#{pane_pid}"))

    def _call(self, *words: str) -> str:
        return subprocess.run([*self._tmux, *words], check=True, capture_output=True, text=True).stdout

    def screen(self) -> str:
        return self._call("capture-pane", "-p", "-t", "m")

    def type(self, *keys: str) -> None:
        self._call("send-keys", "-t", "m", *keys)

    def resize(self, width: int, height: int) -> None:
        self._call("resize-window", "-t", "m", "-x", str(width), "-y", str(height))

    def until(self, reached: Callable[[str], bool], what: str) -> str:
        """Wait for the first screen that satisfies `reached`, which checks everything, as any screen may be
        half drawn.
        """
        deadline = time.monotonic() + WAIT_S
        while not reached(screen := self.screen()):
            assert time.monotonic() < deadline, f"{what}; the screen was:\n{screen}"
            time.sleep(0.2)  # each look starts a process
        return screen

    def shows(self, *words: str) -> str:
        """Wait for the first screen with all texts, wherever its cursor is."""
        return self.until(lambda s: all(w in s or w in s.replace("▸", " ") for w in words), f"not shown: {words}")

    def finds(self, pattern: str) -> str:
        """Wait for a match of the pattern; returns its first group, or the whole match without one."""
        found = re.search(pattern, self.until(lambda s: re.search(pattern, s) is not None, f"not found: {pattern}"))
        assert found
        return found[found.re.groups and 1]

    def processes(self) -> list[psutil.Process]:
        return [*psutil.Process(self.pid).children(recursive=True), psutil.Process(self.pid)]

    def ended(self) -> bool:
        return subprocess.run([*self._tmux, "ls"], check=False, capture_output=True).returncode != 0

    def kill(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


def assert_gone(processes: list[psutil.Process], within_s: float = 60.0) -> None:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def paused_at(screen: str) -> int:
    counted = re.search(r"paused at token (\d+)", screen)
    assert counted
    return int(counted[1])
