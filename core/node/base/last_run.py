"""The last run of a node in a home, recorded so that commands can explain why no node answers.

A file of the home (0600): written when the node starts, with its problem if it fails, removed after a clean exit. It
contains no prompt text: of a defect only the place.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from core.errors import IdentityError, MaclusterError, NodeError, NodeUnreachable, Problem
from core.settings import Home
from core.text import clean_text
from core.trust.file_formats import JsonFile

TEXT_LIMIT = 1000
NO_NODE = "No node answers on this Mac."
KEYCHAIN_ASKS = IdentityError(
    "macOS asks, on the screen of this Mac, whether macluster may use the keychain.",
    'Choose "Always Allow" there; `macluster trust key file` keeps the key in a file instead.',
)


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The node that ran last."""

    at: float  # when it started, or failed; seconds since the epoch
    pid: int
    problem: Problem | None = None  # None while it runs, or if it was killed
    waits: bool = False  # it runs, and waits for the user to allow something (`problem`)
    led: str = ""  # the model that it led last, until it was unloaded


_FILE: Final = JsonFile[LastRun](Home.last_run, LastRun)


@contextmanager
def recording_run(home: Home) -> Iterator[None]:
    """Record the run of this process's node during the block; `home` is locked. Errors pass through."""
    _write(home, None)
    try:
        yield
    except MaclusterError as error:
        _write(home, error.problem)
        raise
    except Exception as error:
        from core.node.base.tasks import place_of  # only needed here, and slow to import

        _write(home, NodeError(f"It failed by a defect: {place_of(error)}.", "Please report it.").problem)
        raise
    _FILE.remove(home.last_run)


def record_waiting(home: Home, *, is_waiting: bool) -> None:
    _write(home, KEYCHAIN_ASKS.problem if is_waiting else None, waits=is_waiting)
    if is_waiting:
        print(f"macluster: {KEYCHAIN_ASKS}", file=sys.stderr, flush=True)


def record_led(home: Home, model: str) -> None:
    """Record that the running node leads `model`, or "" that it leads none any more."""
    _write(home, None, led=model)


def read_last_run(home: Home) -> LastRun | None:
    """The last run; None after a clean exit, before the first run, or if the file is damaged or newer."""
    return _FILE.try_to_read(home.last_run)


def unreachable(home: Home) -> NodeUnreachable:
    last = read_last_run(home)
    if last is None:
        return NodeUnreachable(NO_NODE)
    if last.problem is not None and not last.waits:
        fix = last.problem.fix or NodeUnreachable.fix_by_default
        when = time.strftime("%Y-%m-%d at %H:%M", time.localtime(last.at))
        return NodeUnreachable(f"{NO_NODE} The last one ended {when}: {last.problem.what}", fix)
    if _is_running(last):
        cure = f"Wait a moment. If it stays so, end it (`kill {last.pid}`) and start another."
        what = f"The node of this Mac (process {last.pid}) does not answer yet."
        if last.problem is not None:
            what, cure = f"{what} {last.problem.what}", last.problem.fix
        return NodeUnreachable(what, cure)
    what = "The last one was killed, or this Mac was switched off."
    return NodeUnreachable(f"{NO_NODE} {what}", f"Start one with `macluster node`. Its log is {home.log}.")


def _write(home: Home, problem: Problem | None, *, waits: bool = False, led: str | None = None) -> None:
    if led is None:
        before = read_last_run(home)
        led = before.led if before else ""
    if problem is not None:
        what, fix = (clean_text(text)[:TEXT_LIMIT] for text in (problem.what, problem.fix))
        problem = Problem(kind=problem.kind, what=what, fix=fix)
    last = LastRun(at=time.time(), pid=os.getpid(), problem=problem, waits=waits, led=led)
    _FILE.try_to_write(home.last_run, last)  # on a full disk it is still printed


def _is_running(last: LastRun) -> bool:
    """Whether that process still runs, and is neither a zombie nor a younger process with the same pid."""
    import psutil  # slow, and not needed for the first frame of the screen

    try:
        process = psutil.Process(last.pid)
        return bool(process.create_time() <= last.at) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
