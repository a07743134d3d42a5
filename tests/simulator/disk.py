"""A Mac's disk after its node or power is gone: token logs, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from core.engine.sessions import SessionFile
from core.events import FinishReason
from core.node.answers import token_log
from core.node.answers.token_log import AnswerEnd, AnswerRecord, MacsJoined, Written
from core.settings import Home
from tests.simulator.loop import PROCESS


class DiskHome(Home, frozen=True):
    """The state folder of a node whose files are on a simulated disk."""

    disk: Any

    tokens = sessions = property(lambda home: home.disk)


class Disk:
    """The token logs of one Mac, by request id, and its saved sessions, by name."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionFile] = {}
        self.logs: dict[str, Log] = {}
        self.forgotten: dict[str, Log] = {}

    def power_cut(self, random: Random) -> None:
        """Lose a random part of the unforced records, from the end of each log."""
        for log in self.logs.values():
            del log.records[random.randint(log.synced, len(log.records)) :]

    def tokens(self, request_id: str) -> list[int]:
        """The written tokens of an answer."""
        log = self.logs.get(request_id) or self.forgotten[request_id]
        return [record for record in log.records if isinstance(record, int)]


class Log:
    """One file with the methods of `TokenLog`; after closing it takes nothing.

    A killed process cleans nothing up, though Python still ends its generators when it collects garbage.
    """

    def __init__(self, disk: Disk, secret: bytes, record: AnswerRecord, old: Sequence[Any] = ()) -> None:
        self.record, self.records = record, list(old)
        self.path = Path(record.request_id)
        self.synced, self.unsynced, self._is_closed = len(self.records), 0, False
        self._disk, self._process = disk, PROCESS.get()
        disk.logs[record.request_id] = self

    @classmethod
    def going_on(cls, disk: Disk, secret: bytes, record: AnswerRecord, tokens: Sequence[int], text: str) -> Log:
        """Replace the log of that name."""
        assert record.request_id in disk.logs
        return cls(disk, secret, record, [*tokens, text])

    def append(self, token: int) -> None:
        self._put(token)
        self.unsynced += 1

    def say(self, text: str) -> None:
        if text:
            self._put(text)

    def join(self, macs: Collection[str]) -> None:
        self._put(MacsJoined(tuple(macs)))
        self.syncing()()

    def syncing(self) -> Callable[[], None]:
        self.unsynced = 0
        return partial(self._synced, len(self.records))

    def close(self, reason: FinishReason | None = None) -> None:
        if self._is_orphan:
            return
        if reason:
            self._put(AnswerEnd(reason))
        self.syncing()()
        self._is_closed = True

    def forget(self) -> None:
        if self._is_orphan:
            return
        self._is_closed = True
        self._disk.forgotten[self.record.request_id] = self._disk.logs.pop(self.record.request_id)

    def read(self) -> Written:
        """The content known after a crash."""
        return token_log._sum(self.record, iter(self.records), 0.0)

    @property
    def _is_orphan(self) -> bool:
        return self._process is not None and self._process.is_dead

    def _synced(self, records: int) -> None:
        self.synced = max(self.synced, records)

    def _put(self, record: Any) -> None:
        assert not self._is_closed, "a log is written after its end"
        self.records.append(record)


def unfinished(disk: Disk, secret: bytes, spared: Collection[str] = ()) -> list[Written]:
    """As `core.node.answers.token_log.unfinished`."""
    found = [log.read() for name, log in reversed(disk.logs.items()) if name not in spared]
    return [written for written in found if written.ended is None]


def old_logs(disk: Disk) -> list[Path]:
    """List no old logs, so that there is room."""
    return []


def forget_shared(disk: Disk, secret: bytes, macs: Collection[str], spared: Collection[str] = ()) -> int:
    """As `core.node.answers.token_log.forget_shared`."""
    others = [(name, log) for name, log in disk.logs.items() if name not in spared]
    shared = [name for name, log in others if not log.read().macs.isdisjoint(macs)]
    for name in shared:
        disk.forgotten[name] = disk.logs.pop(name)
    return len(shared)
