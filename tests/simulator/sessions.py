"""Saved conversations, in memory: the files a node finds, and the worker's saving and loading."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from core.engine.ring_work import Compose, Op, Restore
from core.engine.sessions import SessionFile
from core.errors import Busy, MaclusterError, NotLoaded, Problem, UsageError
from core.requests.answers import Message
from core.worker.messages import LoadSession, Report, SaveSession, SessionFailed, SessionLoaded, SessionSaved
from tests.simulator.disk import Disk
from tests.simulator.engine import Engine


class SessionPath:
    """The path of a session, saved or not."""

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk, self.name = disk, name

    def __str__(self) -> str:
        return self.name

    def stat(self) -> Any:
        return SimpleNamespace(st_size=1)


def existing(disk: Disk, name: str) -> SessionPath:
    """As `core.engine.sessions.existing`."""
    if name not in disk.sessions:
        raise UsageError(f"There is no session {name!r}.")
    return SessionPath(disk, name)


def reading(path: SessionPath, secret: bytes) -> tuple[SessionFile, None]:
    """As `core.engine.sessions.reading`."""
    return path.disk.sessions[path.name], None


FILES = SimpleNamespace(
    SessionFile=SessionFile,
    path_of=SessionPath,
    existing=existing,
    reading=reading,
    forget_shared=lambda *_: 0,
    forget_unfinished=lambda _: None,
)


class Moves:
    """Saves or loads one session at a time, as `core.worker.sessions` does."""

    def __init__(self, disk: Disk, engine: Engine, report: Callable[[Report], None]) -> None:
        self._disk, self._engine, self._report = disk, engine, report
        self._done: Callable[[], None] | None = None
        self._handle = 0

    def save(self, order: SaveSession) -> bool:
        """Start to save; returns whether there is anything to save."""
        parked = self._engine.scheduler.parked
        whole = [row for row in parked if tuple(order.tokens[: len(row.tokens)]) == row.tokens]
        if self._done or not whole:
            self._report(SessionFailed(problem=NotLoaded("It is not in memory any more.").problem))
            return False
        row = max(whole, key=lambda row: len(row.tokens))
        try:
            self._engine.scheduler.pin(row.handle)
        except Busy as error:
            self._report(SessionFailed(problem=error.problem))
            return False

        def done() -> None:
            said = tuple(Message(role=turn.role, content=turn.content) for turn in order.messages)
            self._disk.sessions[order.path] = session(list(row.tokens), said)
            self._engine.scheduler.unpin(row.handle)
            self._report(SessionSaved())

        self._done, self._handle = done, row.handle
        return True

    def load(self, order: LoadSession) -> tuple[int, list[int]] | None:
        """Start to load; returns the new handle and its tokens, if there is room."""
        tokens = self._disk.sessions[order.path].tokens
        try:
            if self._done:
                raise Busy("Another one is moved.")
            self._handle = self._engine.scheduler.hold(tokens).handle
        except MaclusterError as error:
            self._report(SessionFailed(problem=error.problem))
            return None
        self._done = lambda: self._report(SessionLoaded())
        return self._handle, tokens

    def came(self, work: object) -> None:
        """Note that every stage has done that work."""
        if isinstance(work, Compose) and any(self._is_own(op) for op in work.ops):
            self.end()

    def end(self) -> None:
        """End the move with success."""
        done, self._done = self._done, None
        if done:
            done()

    def fail(self, problem: Problem) -> None:
        """End the move with a problem."""
        if self._done:
            self._done = None
            self._report(SessionFailed(problem=problem))

    def _is_own(self, op: Op) -> bool:
        return isinstance(op, Restore) and op.handle == self._handle


def session(tokens: list[int], messages: tuple[Message, ...]) -> SessionFile:
    """A saved file with that content."""
    return SessionFile(
        model="",
        fingerprint="",
        mlx_lm="",
        kv_bits=None,
        tokens=tokens,
        prefix_hash=b"",
        caches=0,
        messages=messages,
        created_at=0.0,
        macs=(),
    )
