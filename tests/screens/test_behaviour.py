"""Behaviour only a real terminal shows: a crash, no colour, plain glyphs, the clipboard, changed keys."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.screens.conftest import Open
from tests.support.terminals import assert_gone

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")

# the same program, with a key that breaks it
BREAKS = """
import sys
from tui import app
from tui.cli.main import main

def broken(self):
    typed = "my secret words"
    raise RuntimeError(typed)

app.MaclusterApp.action_new_chat = broken
sys.argv = ["macluster", "--home", sys.argv[1], "demo", "--no-multicast", "--macs", "1"]
main()
"""


def in_tmux(socket: Path, *words: str) -> str:
    return subprocess.run(["tmux", "-S", str(socket), *words], check=True, capture_output=True, text=True).stdout


def test_plain_colourless_and_ctrl_q_in_the_palette(terminal: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    window = terminal(100, 30, "demo", "--no-multicast", "--macs", "1", "--plain")
    screen = window.shows("5 Chat", "is loaded on 1 Mac", "Ctrl+Q Quit")
    assert screen.isascii()
    coloured = in_tmux(window.socket, "capture-pane", "-e", "-p", "-t", "m")
    shades = {part.split("m")[0] for part in coloured.split("\x1b[38;2;")[1:]}
    assert all(len(set(shade.split(";"))) == 1 for shade in shades), shades
    workers = [p for p in window.processes() if {"core.node", "core.worker"} & {*p.cmdline()}]
    assert workers
    assert all(p.environ().get("NO_COLOR") == "1" for p in workers)
    window.type("C-o")
    window.shows("Choose a model", "loaded on 1 Mac")
    window.type("u")
    window.shows("Enter: load")
    window.type("m", "w")
    window.shows("Chosen: link data: float32", "layers: by speed")
    (home,) = map(str, window.socket.parent.glob("macluster-*/studio"))
    for words in (("load", "macluster-demo", "--context", "2048", "--rows", "2"), ("unload",)):
        subprocess.run([sys.executable, "-m", "tui.cli.main", "--home", home, *words], check=True, capture_output=True)
    window.shows("Chosen: context 2k - 2 rows", "Enter: load")  # another window chose that after this one
    window.type("F2", "F6")
    window.shows("> exact (greedy)", "> Temperature")
    window.type("Tab")
    window.shows("> Top-p")
    window.type("Escape", "C-p")
    assert window.shows("Search for commands").isascii()
    window.type("dark")
    window.until(lambda s: "Change the theme" in s and "Zoom" not in s.split("Change the theme")[0], "not the first")
    window.type("Escape", "Escape", "C-o")
    window.shows("Choose a model", "Enter: load")
    window.type("c")
    window.until(lambda s: ">2k (current)" in s and "Fit preview" not in s, "what a dialog covers is heard, too")
    processes = window.processes()
    window.type("C-q", "C-q")
    assert_gone(processes)


def test_text_is_copied_through_the_terminal_and_keys_are_the_person_s(
    terminal: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "macluster").mkdir()
    (tmp_path / "macluster" / "config.toml").write_text('[keys]\npalette = "f12"\nhelp = "ctrl+m"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    window = terminal(80, 24, "demo", "--no-multicast", "--macs", "1")
    window.shows("config.toml, line 3", "can't tell Ctrl+M from Enter")
    in_tmux(window.socket, "set", "-s", "set-clipboard", "on")
    window.shows("is loaded on 1 Mac", "F12 Palette")
    window.type("Escape")
    window.shows("c Continue")  # Esc and a digit at once would be Alt and that digit
    window.type("4")
    window.shows("4 Logs", "is ready on 1 Mac")
    window.type("y")
    window.shows("Copied.")
    assert "is ready on 1 Mac" in in_tmux(window.socket, "show-buffer")
    window.type("F12")
    window.shows("Search for commands")
    window.type("C-q", "C-q")


def test_a_crash_leaves_a_terminal_that_works_and_a_file_without_words(tmp_path: Path) -> None:
    program, socket, home = tmp_path / "breaks.py", tmp_path / "s", tmp_path / "home"
    program.write_text(BREAKS)
    clean = "env -u COLUMNS -u LINES TERM=tmux-256color"
    run = f"{clean} {sys.executable} {program} {home}; echo status $?; stty -a | grep -o ' echo '; cat"
    in_tmux(socket, "-f", "/dev/null", "new-session", "-d", "-s", "m", "-x", "100", "-y", "30", run)
    try:
        crashed = ("macluster crashed (RuntimeError)", "status 1", "echo")
        for words, key in ((("is loaded on 1 Mac",), "C-n"), (crashed, "")):
            for _ in range(400):
                screen = in_tmux(socket, "capture-pane", "-p", "-t", "m")
                if all(word in screen for word in words):
                    break
                subprocess.run(["sleep", "0.1"], check=True)
            else:
                pytest.fail(screen)
            if key:
                in_tmux(socket, "send-keys", "-t", "m", key)
        assert "Traceback" not in screen
        assert "secret" not in screen
        modes = in_tmux(socket, "display-message", "-p", "-t", "m", "#{mouse_any_flag}#{alternate_on}#{cursor_flag}")
        assert modes.strip() == "001"
        trace = home / "tui-crash.log"
        assert trace.stat().st_mode & 0o777 == 0o600
        assert "in broken" in trace.read_text()
        assert "secret words" not in trace.read_text().replace('typed = "my secret words"', "")
    finally:
        in_tmux(socket, "kill-server")
