"""Why no node runs in a home: what the last one said before it ended, kept for whoever finds none there.

A file of the home (0600, a few hundred bytes): written as the node begins, with its problem where it fails, removed as
it ends in order. It holds no word of a prompt: a defect is told by its place.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec

from core.errors import IdentityError, MaclusterError, NodeError, NodeUnreachable, Problem
from core.settings import Home
from core.text import clean_text
from core.trust.private_files import read_private, write_private

TEXT_LIMIT = 1000
NOBODY = "No node answers on this Mac."
KEYCHAIN_ASKS = IdentityError(
    "macOS asks, on the screen of this Mac, whether macluster may use the keychain.",
    'Choose "Always Allow" there; `macluster trust key file` keeps the key in a file instead.',
)


class LastWords(msgspec.Struct, frozen=True, kw_only=True):
    """The node that ran last. `at`: when it began, or failed (seconds since the epoch). Without a `problem` it runs, or
    ended without a word; with one it has ended, or `waits` for a person.
    """

    at: float
    pid: int
    problem: Problem | None = None
    waits: bool = False


@contextmanager
def keeping_last_words(home: Home) -> Iterator[None]:
    """The block is the life of this process's node in `home`, which it has locked. Errors pass."""
    _write(home, None)
    try:
        yield
    except MaclusterError as error:
        _write(home, error.problem)
        raise
    except Exception as error:
        from core.node.base.tasks import place_of  # who only reads this needs none of it

        _write(home, NodeError(f"It failed by a defect: {place_of(error)}.", "Please report it.").problem)
        raise
    home.last_words.unlink(missing_ok=True)


def say_waiting(home: Home, *, is_waiting: bool) -> None:
    """This process's node waits, or no longer does, for what macOS asks a person about its key."""
    _write(home, KEYCHAIN_ASKS.problem if is_waiting else None, waits=is_waiting)
    if is_waiting:
        print(f"macluster: {KEYCHAIN_ASKS}", file=sys.stderr, flush=True)


def last_words(home: Home) -> LastWords | None:
    """None where the last node ended in order, or none ever ran, or the file is damaged."""
    try:
        return msgspec.json.decode(read_private(home.last_words), type=LastWords)
    except (MaclusterError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def unreachable(home: Home) -> NodeUnreachable:
    """Why no node answers in `home`, as far as the last one told."""
    words = last_words(home)
    if words is None:
        return NodeUnreachable(NOBODY)
    if words.problem is not None and not words.waits:
        fix = words.problem.fix or NodeUnreachable.fix_by_default
        when = time.strftime("%Y-%m-%d at %H:%M", time.localtime(words.at))
        return NodeUnreachable(f"{NOBODY} The last one ended {when}: {words.problem.what}", fix)
    if _is_running(words):
        cure = f"Wait a moment. If it stays so, end it (`kill {words.pid}`) and start another."
        what = f"The node of this Mac (process {words.pid}) does not answer yet."
        if words.problem is not None:
            what, cure = f"{what} {words.problem.what}", words.problem.fix
        return NodeUnreachable(what, cure)
    what = "The last one ended without a word: it was killed, or this Mac was switched off."
    return NodeUnreachable(f"{NOBODY} {what}", f"Start one with `macluster node`. {home.log} has what it did last.")


def _write(home: Home, problem: Problem | None, *, waits: bool = False) -> None:
    if problem is not None:
        what, fix = (clean_text(text)[:TEXT_LIMIT] for text in (problem.what, problem.fix))
        problem = Problem(kind=problem.kind, what=what, fix=fix)
    words = LastWords(at=time.time(), pid=os.getpid(), problem=problem, waits=waits)
    with suppress(MaclusterError):  # what cannot be kept on a full disk is still said where the node was started
        write_private(home.last_words, msgspec.json.encode(words))


def _is_running(words: LastWords) -> bool:
    """Whether that process still runs, be it not one that has ended unnoticed, or a younger one of the same number."""
    import psutil  # the first frame of the screen needs no processes

    try:
        process = psutil.Process(words.pid)
        return bool(process.create_time() <= words.at) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
