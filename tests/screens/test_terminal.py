"""The real app over the real demo in a real terminal (tmux), at both sizes."""

from __future__ import annotations

import shutil

import psutil
import pytest
from rich.cells import cell_len

from tests.screens.conftest import Open
from tests.support.terminals import assert_gone

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")

DEMO = ("demo", "--no-multicast")


def test_the_dashboard_answers_and_ctrl_q_leaves_nothing(terminal: Open) -> None:
    window = terminal(120, 36, *DEMO)
    panes = ("1 Peers", "2 Layer split", "3 Hops", "4 Logs", "5 Chat")
    window.shows("3 of 3 Macs", *panes, "is loaded on 3 Macs", "Ctrl+Q Quit", "paired", "studio", "mbp", "mini")
    window.type("hello there", "Enter", "xyz")  # all in one read: keys after Enter begin the next question
    window.until(lambda s: "hello there " in s and "xyz" in s and "tok/s" in s and "compute" in s, "no answer")
    window.type("Escape")
    window.until(lambda s: "Esc: stop" not in s, "the answer did not stop")
    window.type("C-o")
    window.shows("Choose a model", "Fit preview", "studio")
    window.type("Escape")
    window.resize(100, 30)  # the lowest screen with all panes: three lines of the log, and its frame
    window.finds(r"4 Logs ─+╮.*\n│.*\n│.*\n│.*\n╰─+ follow ● on")
    window.resize(80, 24)
    screen = window.shows("3/3 Macs", "hops")
    assert max(cell_len(line) for line in screen.splitlines()) <= 80
    window.type("F1")
    window.shows("Help · Dashboard", "In this pane", "Esc: close")
    window.type("Escape")
    window.until(lambda s: "In this pane" not in s, "the help stays")
    window.type("Escape")
    window.shows("c Continue")
    window.type("hello")  # no key of the transcript has this letter: it is text
    window.shows("xyzhello")
    window.type("F3", "/xylophone")  # a key that opens a screen is handled before the next one
    window.shows("Nothing found.", "/ xylophone")
    window.type("Escape")
    window.until(lambda s: "xylophone" not in s, "the search stays")
    window.type("Escape")
    window.shows("xyzhello")
    window.type("Escape")
    window.shows("c Continue")
    window.type("4")
    window.finds(r"Paired with studio; the roster is at epoch \d\. +mbp \d\d:\d\d")  # in order, each with its Mac
    processes = window.processes()
    window.type("C-q")
    window.shows("Quit?", "The demo ends", "Stay")
    window.type("C-q")
    assert_gone(processes)


def test_a_narrow_terminal_and_kill_9_of_the_ui(terminal: Open) -> None:
    window = terminal(80, 24, *DEMO, "--macs", "2")
    window.shows("2/2 Macs", "5 Chat", "studio", "is loaded on 2 Macs", "Ctrl+Q Quit")
    window.type("/save this", "Enter")  # no question, and nothing is lost of it
    window.shows("/save takes no text", "/save this")
    window.type("C-a", "C-k")
    window.until(lambda s: "/save this" not in s, "it stays")
    window.type("/system", "Enter")
    window.shows("▸ System prompt")
    window.type("Escape")
    window.shows("5 Chat")
    window.type("/model", "Enter")
    window.shows("Choose a model", "Fit preview")
    window.type("Escape")
    processes = window.processes()
    assert len(processes) == 7
    psutil.Process(window.pid).kill()
    assert_gone(processes, 5.0)
