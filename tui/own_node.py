"""Starts a node process that ends with this one, and reports why it failed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from core.errors import MaclusterError, NodeError, Problem
from core.node.base.last_run import read_last_run
from core.node.base.stderr_log import rotate_stderr_log
from core.settings import STAY, Home
from core.text import clean_text
from core.trust.private_files import private_folder

END_S = 15.0
QUIET_S = 3.0  # a node that takes longer to start is reported
TAIL_BYTES = 4096
TAIL_LIMIT = 500


def start_node(home: Home, *options: str) -> subprocess.Popen[bytes]:
    """Start the process of a node, which ends when its standard input closes. Raises OSError, IdentityError."""
    private_folder(home.root)
    rotate_stderr_log(home)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(home.stderr_log, flags, 0o600), "wb") as complaints:
        return subprocess.Popen(
            [sys.executable, "-m", "core.node", "--home", str(home.root), "--until-eof", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )


class OwnNode:
    """A node process that this window starts, with these `options`."""

    def __init__(self, home: Home, options: Sequence[str] = ()) -> None:
        self._home, self._options = home, options
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._refused: Problem | None = None

    def start(self, *more: str) -> None:
        """Start it with `more` options; failures show in `trouble`. Keeps the complaints of the last two."""
        if self._process is not None and self._process.stdin:
            self._process.stdin.close()
        self._process, self._refused, self._started_at = None, None, time.monotonic()
        try:
            self._process = start_node(self._home, *self._options, *more)
        except MaclusterError as error:
            self._refused = error.problem
        except OSError as error:
            what = f"{error.filename or sys.executable}: {error.strerror or error}."
            self._refused = NodeError(
                f"macluster's service can't be started: {what}", "Fix that and try again."
            ).problem

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_starting(self) -> bool:
        return self.is_running and time.monotonic() - self._started_at < QUIET_S

    @property
    def trouble(self) -> Problem | None:
        """Why the node that was started last doesn't run, in its own words; None if it runs."""
        if self._process is None or self._process.poll() is None:
            return self._refused
        words = read_last_run(self._home)
        if words is not None and words.pid == self._process.pid and words.problem is not None:
            return words.problem
        what = self._last_complaint() or f"macluster's service ended with status {self._process.returncode}."
        return NodeError(what, f"See {self._home.log}.").problem

    def leave(self) -> None:
        """Let the node run on when this program ends."""
        if self._process is not None and self._process.stdin:
            with suppress(OSError):  # it has ended
                self._process.stdin.write(STAY)
                self._process.stdin.close()
            self._process = None

    async def close(self) -> None:
        if self._process is not None and self._process.stdin:
            self._process.stdin.close()
            try:
                await asyncio.to_thread(self._process.wait, END_S)
            except subprocess.TimeoutExpired:  # it may be waiting for a macOS dialog
                self._process.terminate()
                await asyncio.to_thread(self._process.wait)

    def _last_complaint(self) -> str:
        try:
            with self._home.stderr_log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        last = next((line for line in reversed(lines) if line.strip()), "")
        return clean_text(last.removeprefix("macluster: "))[:TAIL_LIMIT].strip()
