"""The checks of `macluster verify` for the terminal: colours, the clipboard, keys."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Mapping
from itertools import combinations

from rich.color import Color, ColorSystem
from textual.theme import Theme

from core.verify.check import Check, Outcome, failed, passed, skipped
from tui.control.clipboard import PBCOPY_TIMEOUT_S, way_for
from tui.control.themes import OWN_THEMES

# a terminal answers this with its features: 52 means that it accepts text for the clipboard
ASK = b"\x1b[c"
ANSWER = re.compile(rb"\x1b\[\?([\d;]*)c")
TAKES_TEXT = "52"
ANSWER_S = 2.0
NO_TERMINAL = skipped("there is no terminal")
# a pasteboard of our own, so that the user's copied text stays
BOARD = ("-pboard", "ruler")
WORD = b"macluster"
TOLD_APART = ("stage-1", "stage-2", "stage-3", "stage-4")
STATES = ("text-success", "text-warning", "text-error")


def terminal_checks() -> tuple[Check, ...]:
    return (
        Check("terminal colours", "colours with different meanings look different", colours),
        Check("terminal clipboard", "copied text arrives", clipboard),
        Check("terminal keys", "keys arrive", keys),
    )


def colours(_: threading.Event) -> Outcome:
    if not sys.stdout.isatty():
        return NO_TERMINAL
    system = colours_of(os.environ)
    same = [pair for theme in OWN_THEMES for pair in alike(theme, system)]
    count = "256" if system is ColorSystem.EIGHT_BIT else "16 million"
    if same:
        return failed(f"{count} colours; the same: {', '.join(' and '.join(pair) for pair in same)}")
    return passed(f"{count} colours")


def colours_of(environ: Mapping[str, str]) -> ColorSystem:
    is_full = environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")
    return ColorSystem.TRUECOLOR if is_full else ColorSystem.EIGHT_BIT


def alike(theme: Theme, system: ColorSystem) -> list[tuple[str, str]]:
    """Pairs of a theme's colours that mean different things but look the same in `system`."""

    def shown(name: str) -> tuple[object, object]:
        colour = Color.parse(theme.variables[name]).downgrade(system)
        return colour.triplet, colour.number

    pairs = [pair for group in (TOLD_APART, STATES) for pair in combinations(group, 2)]
    return [pair for pair in pairs if shown(pair[0]) == shown(pair[1])]


def clipboard(_: threading.Event) -> Outcome:
    way = way_for("", sys.platform, dict(os.environ))
    if way == "pbcopy":
        return passed("by pbcopy") if _comes_back() else failed("pbcopy does not keep its input")
    if (said := answer_of(ANSWER_S)) is None:
        return NO_TERMINAL
    if way == "file":
        return passed("into a file: this terminal has no clipboard")
    if TAKES_TEXT in attributes(said):
        return passed("through the terminal, which reports clipboard support")
    return skipped("the terminal does not report clipboard support: copy something in the chat and paste it")


def _comes_back() -> bool:
    try:
        subprocess.run(["pbcopy", *BOARD], input=WORD, timeout=PBCOPY_TIMEOUT_S, check=True)
        reported = subprocess.run(["pbpaste", *BOARD], capture_output=True, timeout=PBCOPY_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return reported.stdout == WORD


def keys(_: threading.Event) -> Outcome:
    """Check that the terminal answers a query, since the answer arrives as keys do."""
    started = time.perf_counter()
    if (said := answer_of(ANSWER_S)) is None:
        return NO_TERMINAL
    if not said:
        return failed(f"the terminal did not answer within {ANSWER_S:g} s")
    return passed(f"the terminal answered in {1e3 * (time.perf_counter() - started):.0f} ms")


def attributes(said: bytes) -> list[str]:
    found = ANSWER.search(said)
    return found[1].decode().split(";") if found else []


def answer_of(wait_s: float) -> bytes | None:
    """The terminal's answer to `ASK`; b"" after `wait_s` seconds of silence, None without a terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return None
    try:
        is_in_front = os.tcgetpgrp(terminal) == os.getpgrp()  # otherwise the system would stop this process
        return asked(terminal, wait_s) if is_in_front else None
    except (OSError, termios.error):
        return None
    finally:
        os.close(terminal)


def asked(terminal: int, wait_s: float) -> bytes:
    """Ask the open `terminal`, then restore its settings; raises termios.error."""
    before, said = termios.tcgetattr(terminal), b""
    deadline = time.monotonic() + wait_s
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        os.write(terminal, ASK)
        while not ANSWER.search(said) and (left := deadline - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                said += os.read(terminal, 256)
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
    return said if ANSWER.search(said) else b""
