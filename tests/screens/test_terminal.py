"""The real app over the real demo in a real terminal (tmux), at both sizes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from rich.cells import cell_len

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")

WAIT_S = 40.0


class Terminal:
    """A tmux server of its own with one window."""

    def __init__(self, name: str, width: int, height: int) -> None:
        self._tmux = ["tmux", "-L", name, "-f", "/dev/null"]
        # readline, which pytest imports, exports COLUMNS and LINES behind Python's back; Textual would believe them
        clean = "env -u COLUMNS -u LINES TERM=tmux-256color COLORTERM=truecolor"
        run = f"{clean} {sys.executable} -m tui.cli demo --no-multicast"
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
        deadline = time.monotonic() + WAIT_S
        while not reached(screen := self.screen()):
            assert time.monotonic() < deadline, f"{what}; the screen was:\n{screen}"
            time.sleep(0.1)
        return screen

    def shows(self, *words: str) -> str:
        return self.until(lambda s: all(w in s for w in words), f"not shown: {words}")

    def processes(self) -> list[psutil.Process]:
        return [*psutil.Process(self.pid).children(recursive=True), psutil.Process(self.pid)]

    def ended(self) -> bool:
        return subprocess.run([*self._tmux, "ls"], check=False, capture_output=True).returncode != 0

    def kill(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def terminal() -> Iterator[Callable[[int, int], Terminal]]:
    opened: list[Terminal] = []

    def open_terminal(width: int, height: int) -> Terminal:
        opened.append(Terminal(f"mc-{os.getpid()}-{len(opened)}", width, height))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        processes = [] if terminal.ended() else terminal.processes()
        terminal.kill()
        assert_gone(processes)


def assert_gone(processes: list[psutil.Process], within_s: float = 8.0) -> None:
    _, alive = psutil.wait_procs(processes, timeout=within_s)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_the_dashboard_answers_and_ctrl_q_leaves_nothing(terminal: Callable[[int, int], Terminal]) -> None:
    window = terminal(120, 36)
    panes = ("1 Peers", "2 Layer split", "3 Hops", "4 Logs", "5 Chat")
    screen = window.shows("3 of 3 Macs", *panes, "is loaded on 3 Macs", "^q Quit")
    assert "paired" in screen
    for name in ("studio", "mbp", "mini"):
        assert name in screen
    window.type("hello there", "Enter")
    window.shows("hello there", "tok/s", "slowest")
    window.type("Escape")
    window.until(lambda s: "Esc stop" not in s, "the answer did not stop")
    window.type("C-o")
    window.shows("Choose a model", "Fit preview", "studio")
    window.type("Escape")
    window.resize(80, 24)
    screen = window.shows("3/3 Macs", "hops")
    assert max(cell_len(line) for line in screen.splitlines()) <= 80
    window.type("F1")
    window.shows("Help", "In this pane", "Esc close")
    processes = window.processes()
    window.type("C-q")
    assert_gone(processes)


def test_a_narrow_terminal_and_kill_9_of_the_ui(terminal: Callable[[int, int], Terminal]) -> None:
    window = terminal(80, 24)
    window.shows("3/3 Macs", "5 Chat", "studio", "is loaded on 3 Macs", "^q Quit")
    window.type("C-o")
    window.shows("Choose a model", "Fit preview")
    window.type("Escape")
    processes = window.processes()
    assert len(processes) == 7
    psutil.Process(window.pid).kill()
    assert_gone(processes, 5.0)
