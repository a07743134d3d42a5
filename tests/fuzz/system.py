"""A node whose questions to the operating system fail, or are answered oddly, at any time.

Its loops go on, and it still answers: what it knows, and every finding of its check.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple, get_args
from unittest.mock import patch

import psutil

from core.events import Snapshot
from core.mac import doctor
from core.mac.multicast import Echo
from core.mac.prevent_sleep import SleepPreventer
from core.node import service
from core.node.base import tasks
from core.node.config import NodeConfig
from core.node.ring import worker_supervisor
from core.node.service import Node
from core.settings import GB, Home
from tests.fuzz.target import Target
from tests.support.waiting import until
from tui.client import NodeClient

HOST: Final = "127.0.0.1"
ROUNDS: Final = 3  # of each of the node's loops under one input
ANSWER_S: Final = 30.0

_FAULTS: Final = tuple(
    OSError(number, os.strerror(number))
    for number in (errno.ENXIO, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.EPERM, errno.ENOENT, errno.EINVAL)
)
_GONE: Final = (psutil.NoSuchProcess(1), psutil.AccessDenied(1), psutil.ZombieProcess(1))
_NO_THREAD: Final = RuntimeError("can't start new thread")


def _address(address: str, netmask: str | None) -> SimpleNamespace:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return SimpleNamespace(family=family, address=address, netmask=netmask)


class _Question(NamedTuple):
    """A question to the system, and what it may answer besides the truth: errors are raised."""

    where: ModuleType
    name: str
    answers: tuple[object, ...]
    has_truth: bool = True


_QUESTIONS: Final = (
    _Question(
        psutil,
        "virtual_memory",
        (*_FAULTS, None, SimpleNamespace(total=0, available=1), SimpleNamespace(total=1 << 70, available=-1)),
    ),
    _Question(
        psutil,
        "net_if_addrs",
        (
            *_FAULTS,
            None,
            {},
            {"": []},
            {"en0": [_address("169.254.1.1", None)], "utun9": [_address("10.0.0.1", "255.255.255.255")]},
            {"en0": [_address("fe80::1%en0", None)], "lo": [_address(HOST, "255.0.0.0")]},
            {"en\n5": [_address("192.168.1.2", "0.0.0.0")], "bridge0": [_address("fe80::2", "ffff::")]},
        ),
    ),
    _Question(
        psutil,
        "net_if_stats",
        (*_FAULTS, None, {}, {"en0": SimpleNamespace(isup=True, speed=0), "lo": SimpleNamespace(isup=False, speed=-1)}),
    ),
    _Question(psutil, "Process", (*_FAULTS, *_GONE)),
    _Question(shutil, "disk_usage", (*_FAULTS, None, SimpleNamespace(total=0, used=1, free=-1))),
    _Question(
        subprocess,
        "run",
        (
            *_FAULTS,
            subprocess.TimeoutExpired("scutil", 5),
            subprocess.CompletedProcess((), 1),
            subprocess.CompletedProcess((), 0, "\x1b]52;c;x\x07\n\0" * 99),
        ),
    ),
    _Question(doctor, "echo", get_args(Echo), has_truth=False),
    _Question(subprocess, "Popen", _FAULTS, has_truth=False),
    _Question(asyncio, "create_subprocess_exec", (*_FAULTS, _NO_THREAD), has_truth=False),
)


_ALWAYS_ASKED: Final = ("virtual_memory", "net_if_addrs", "Popen", "create_subprocess_exec")  # by a loop each


class _System:
    """Answers each question by the next byte of the input; without any, truly or with a fault."""

    def __init__(self) -> None:
        self.asked = dict.fromkeys(_ALWAYS_ASKED, 0)
        self.is_sane = False  # no answer is None, which ends a check but no loop
        self._choices: Iterator[int] | None = None

    def under(self, data: bytes) -> None:
        self.is_sane = False
        self.asked = dict.fromkeys(_ALWAYS_ASKED, 0)
        self._choices = cycle(data) if data else None

    def in_place_of(self, question: _Question) -> Callable[..., Any]:
        truth, answers = getattr(question.where, question.name), question.answers

        def answer(*words: Any, **options: Any) -> Any:
            if question.name in self.asked:
                self.asked[question.name] += 1
            chosen = -question.has_truth if self._choices is None else next(self._choices) % (len(answers) + 1)
            if question.has_truth and chosen in (-1, len(answers)):
                return truth(*words, **options)
            said = answers[chosen % len(answers)]
            if said is None and self.is_sane:
                return truth(*words, **options)
            if isinstance(said, Exception):
                raise said.with_traceback(None)
            return said

        return answer


class _Bench:
    """A node on its own event loop, which runs during attacks only."""

    def __init__(self) -> None:
        self._loop, self._stack, self._system = asyncio.new_event_loop(), ExitStack(), _System()
        home = Home(Path(self._stack.enter_context(TemporaryDirectory(prefix="system"))) / "home")
        home.root.mkdir(mode=0o700)
        for question in _QUESTIONS:
            new = self._system.in_place_of(question)
            self._stack.enter_context(patch.object(question.where, question.name, new))
        for module, pause, now in (
            (service, "LOOK_S", 1e-4),
            (tasks, "RESTART_S", (0.0,)),
            (worker_supervisor, "BACK_OFF_S", (0.0,)),
        ):
            self._stack.enter_context(patch.object(module, pause, now))
        self._loop.run_until_complete(self._begin(home))

    async def _begin(self, home: Home) -> None:
        self._node = Node(
            NodeConfig(home=home, name="mac", host=HOST, port=0, budget_bytes=GB, multicast=False, awake="always")
        )
        self._node.parts.awake = SleepPreventer(1, ("/bin/sh",))  # caffeinate is only on a Mac
        self._run = asyncio.create_task(self._node.run())
        self._client = NodeClient(home)
        await until(lambda: home.socket.exists() or self._run.done())

    def attack(self, data: bytes) -> None:
        self._system.under(data)
        try:
            self._loop.run_until_complete(self._lives())
        except Exception as error:
            error.add_note("\n".join(self._node.parts.node.home.log.read_text().splitlines()[-9:]))
            raise
        finally:
            self._system.under(b"")

    async def _lives(self) -> None:
        """Its loops go on asking, and it answers."""
        self._node.parts.peers.worker.pid = os.getpid()  # whose memory is looked at
        async with asyncio.timeout(ANSWER_S):
            await until(lambda: min(self._system.asked.values()) >= ROUNDS or bool(self._failure()))
            assert not self._failure()
            async for event in self._client.events():
                assert isinstance(event, Snapshot)
                assert event.peers
                break
            self._system.is_sane = True
            findings = [each.name async for each in self._client.check()]
            assert findings[-1] == "processes", findings
            for ask in (self._client.disks, self._client.models, self._client.open_pairing, self._client.stop_pairing):
                await ask()
        assert not self._failure()

    def _failure(self) -> str:
        return self._node.parts.node.tasks.failure or ("It ended." if self._run.done() else "")

    def end(self) -> None:
        self._loop.run_until_complete(self._end())
        self._loop.close()
        self._stack.close()

    async def _end(self) -> None:
        await self._client.__aexit__(None, None, None)
        self._node.stop()
        await asyncio.gather(self._run, return_exceptions=True)  # a failure was found by its attack


def target() -> Target:
    """One choice for every question, and mixtures."""
    bench = _Bench()
    return Target("system", bench.attack, [b"\0", b"\7", bytes(range(64)), bytes(range(64, 256))], end=bench.end)
