"""A Mac dies in the middle of an answer on the screen: the real app over the real demo in a real terminal."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.screens.conftest import Open
from tests.support.maker import make_model
from tests.support.terminals import Terminal, paused_at

pytestmark = [pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux"), pytest.mark.slow]

# neither of these Macs can hold the model alone; its tokenizer takes 0.15 GB on the head
LITTLE_GB = "0.205,0.055"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that never ends an answer by itself."""
    directory = tmp_path_factory.mktemp("models") / "endless"
    make_model(directory, "llama")
    return directory


@pytest.mark.parametrize(
    "size", [pytest.param((120, 36), id="wide"), pytest.param((80, 24), id="narrow", marks=pytest.mark.nightly)]
)
def test_the_answer_goes_on_and_one_line_says_where(terminal: Open, model: Path, size: tuple[int, int]) -> None:
    window = terminal(*size, "demo", "--no-multicast", "--model", str(model))
    in_the_middle(window)
    window.type("C-t")
    held = window.shows("mini is offline", "Nothing lost so far", "1▸ Continue", "Stop", "paused at token")
    window.shows("─── mini dropped out")
    window.until(lambda s: s.count("─── mini dropped out") <= 1 and "keep what's written" not in s, "the offer stays")
    window.until(lambda s: tokens(s) > paused_at(held), "the answer does not go on")
    window.type("Escape")
    window.shows("─── stopped by you ───")
    window.type("C-g")
    window.shows("3 of 3 Macs" if size[0] == 120 else "3/3 Macs")


def test_it_waits_is_saved_and_continued_when_the_mac_is_back(terminal: Open, model: Path) -> None:
    options = ("--model", str(model), "--macs", "2", "--memory", LITTLE_GB)
    window = terminal(120, 36, "demo", "--no-multicast", *options)
    in_the_middle(window)
    node = node_of(window, "mbp")
    command = node.cmdline()
    node.kill()
    held = window.shows(
        "1▸ Wait for mbp", "2  Save", "3  Stop", "Ctrl+O loads a smaller model", "○ waiting", "paused at token"
    )
    window.shows("○ waiting 5 s")
    window.type("2")
    window.until(lambda s: "─── answer interrupted" in s and "Wait for mbp" not in s, "it was not saved")
    with started(command, node_of(window, "studio")):
        window.shows("2 of 2 Macs")
        go_on(window, paused_at(held))


def test_a_node_that_was_killed_goes_on_with_the_answer_that_is_on_screen(terminal: Open, model: Path) -> None:
    window = terminal(80, 48, "demo", "--no-multicast", "--model", str(model), "--macs", "1")
    in_the_middle(window)
    node = node_of(window, "studio")
    command = node.cmdline()
    node.kill()
    window.shows("✗ not running", "macluster's service on this Mac stopped.")
    with started(command):
        held = window.shows("─── answer interrupted: macluster's service was restarted ───", "tell me about hops")
        go_on(window, tokens(held))


def go_on(window: Terminal, written: int) -> None:
    """Load the model again, and continue the interrupted answer."""
    window.type("C-o")
    window.shows("Choose a model", "endless")
    # a Mac that came back counts once its worker has told what its GPU may use
    window.until(lambda s: "✗▸endless" not in s, "it does not fit")
    window.type("Enter")
    window.shows("5 Chat", "─── answer interrupted")
    window.type("Escape")  # out of the prompt
    window.shows("c Continue")
    window.type("c")
    # a frame may be caught half drawn
    window.until(lambda s: s.count("─── continued ───") == 1 and "answer interrupted" not in s, "it was not continued")
    window.until(lambda s: tokens(s) > written, "the answer does not go on")
    window.type("Escape")
    window.shows("─── stopped by you ───")


def in_the_middle(window: Terminal) -> None:
    """Wait until some tokens of an answer are written."""
    window.shows("is loaded on", "Ctrl+Q Quit")
    window.type("tell me about hops", "Enter")
    window.until(lambda s: tokens(s) >= 5, "no answer began")


def tokens(screen: str) -> int:
    """Tokens of the running answer; 0 before the first count."""
    counted = re.search(r"(\d+) tok( |$)", screen, re.MULTILINE)
    return int(counted[1]) if counted else 0


def node_of(window: Terminal, name: str) -> psutil.Process:
    return next(p for p in window.processes() if p.is_running() and p.cmdline()[-1:] and name in p.cmdline())


@contextmanager
def started(command: list[str], *others: psutil.Process) -> Iterator[None]:
    """Start an ended node again, with the addresses of the `others`."""
    listening = [c for other in others for c in other.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    peers = [word for c in listening for word in ("--peer", f"127.0.0.1:{c.laddr.port}")]
    node = subprocess.Popen([*command, *peers], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        node.communicate(timeout=60)
