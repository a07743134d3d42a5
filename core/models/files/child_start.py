"""Starts our child processes, and distinguishes installation faults from faults of the child's input.

A child says hello after its imports and before it opens any foreign file. A child that ends earlier shows a fault of
the installation: the error quotes its last line and doesn't blame the model.
"""

from __future__ import annotations

import os
import re
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from core.errors import NodeError
from core.settings import DEVICE
from core.text import clean_text

# environment variable: the line for the hello, which ends with the parent
HELLO: Final = "MACLUSTER_HELLO"
START_S: Final = 60.0
MAX_WORDS: Final = 300
_KEPT: Final = ("PATH", "PYTHONPATH", "TZ", DEVICE)
_SECRET: Final = re.compile(r"TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY", re.IGNORECASE)
OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def command_of(module: str, *arguments: str) -> list[str]:
    """Command that runs one of our modules with declared packages only; -P ignores files of the current folder."""
    return [sys.executable, "-P", "-m", "core.models.files.declared_packages", module, *arguments]


def environment() -> dict[str, str]:
    """Environment of a child that handles foreign files, without the user's variables."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, **OFFLINE}


def without_secrets() -> dict[str, str]:
    """The user's variables without tokens, keys and passwords, for a child that computes foreign files."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)}


class ChildStart:
    """Command and `subprocess` options of one child; `env` replaces `environment()`. Call `close` after the start, and
    keep this object as long as the child is to run.
    """

    def __init__(self, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.command = command_of(module, *arguments)
        self._module = module
        self._hello, self._theirs = (end.detach() for end in socket.socketpair())
        os.set_blocking(self._hello, False)
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 – closed with this object
        env = {**(environment() if env is None else env), HELLO: str(self._theirs)}
        self.options: dict[str, Any] = {"stderr": self.stderr, "env": env, "pass_fds": (self._theirs,)}

    def close(self) -> None:
        """Close the child's end of the line in this process."""
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1

    def wait(self) -> None:
        """Wait for the hello, or the end of the child."""
        select.select([self._hello], [], [], START_S)

    def fault(self) -> NodeError | None:
        """Error of a child that ended without a hello; None if it said hello. Call once."""
        self.close()
        try:
            said_hello = bool(os.read(self._hello, 1))
        except BlockingIOError:
            said_hello = False
        os.close(self._hello)
        self._hello = -1
        with self.stderr as stderr:
            if said_hello:
                return None
            end = stderr.seek(0, os.SEEK_END)
            stderr.seek(max(0, end - 10 * MAX_WORDS))
            lines = stderr.read().decode("utf-8", "replace").split("\n")
        last_words = next((clean_text(line).strip()[:MAX_WORDS] for line in reversed(lines) if line.strip()), "")
        what = f"A process of macluster ({self._module}) cannot start{f': {last_words}' if last_words else ''}."
        return NodeError(what, "Nothing is wrong with the model: install macluster again.")

    def __del__(self) -> None:
        self.close()
        self.stderr.close()
        if self._hello >= 0:
            os.close(self._hello)


@contextmanager
def starting(what: str) -> Iterator[None]:
    """Raises NodeError where the system has no process free, or no thread: on a Mac asyncio waits in one."""
    try:
        yield
    except FileNotFoundError as error:
        raise NodeError(f"{what} can't start: {error.filename} was removed.", "Install macluster again.") from error
    except (OSError, RuntimeError) as error:
        raise NodeError(f"{what} can't start: {error.args[-1]}.", "Close other programs, then try again.") from error


def start_fault(module: str, *arguments: str) -> NodeError | None:
    """Start a child and end it after its hello; the error of one that can't start."""
    try:
        with starting(f"A process of macluster ({module})"):
            start = ChildStart(module, *arguments)
            child = subprocess.Popen(start.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, **start.options)
    except NodeError as fault:
        return fault
    with child:
        start.close()
        start.wait()
        child.kill()
    return start.fault()


def say_hello() -> int | None:
    """In the child, after its imports: report the start. Later output to standard error is discarded. Returns the line
    to the parent, which says nothing and ends with it; None if started by hand.
    """
    if hello := os.environ.pop(HELLO, ""):
        os.write(int(hello), b".")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
    return int(hello) if hello else None
