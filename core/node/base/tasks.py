"""Background tasks, each with a rule for its failure; every unexpected failure is logged with its place in the code."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from traceback import walk_tb
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from core.errors import MaclusterError
from core.node.base.journal import Journal
from core.rates import BackOff

RESTART_S: Final = (0.2, 1.0, 5.0, 30.0)
STEADY_S: Final = 60.0

_HOUSE: Final = Path(__file__).parents[3]
_GUARD: Final = Path(__file__)

Work = Coroutine[Any, Any, object]
Loop = Callable[[], Work]

_T = TypeVar("_T")


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def next_look(every_s: float) -> None:
    """Sleep until the clock shows a multiple of `every_s`: an idle node's loops then wake it all at once."""
    await asyncio.sleep(every_s - asyncio.get_running_loop().time() % every_s)


class Restarts(NamedTuple):
    """Number of restarts of a loop; `since`: its first failure, in seconds since the epoch."""

    times: int
    since: float


class Tasks:
    """Holds the tasks of a node until they are done. `failure`: the failed part that the node needs, or ""; then
    `stopping` is set. `restarts`: loops that failed and run again, by name.
    """

    def __init__(self, journal: Journal, stopping: asyncio.Event) -> None:
        self._journal, self._stopping = journal, stopping
        self._running: set[asyncio.Task[None]] = set()
        self.failure = ""
        self.restarts: dict[str, Restarts] = {}

    def essential(self, name: str, loop: Loop) -> asyncio.Task[None]:
        """Run a loop that the node needs: if it fails, the node stops in order, and its supervisor restarts it."""
        return self._hold(name, self._run_essential(name, loop))

    def restartable(self, name: str, loop: Loop) -> asyncio.Task[None]:
        """Run a loop that is started again after a pause if it fails."""
        return self._hold(name, self._run_again(name, loop))

    def spawn(self, name: str, work: Work, on_defect: Callable[[], None] = lambda: None) -> asyncio.Task[None]:
        """Run work that ends by itself; a failure ends this work only. `on_defect` informs its waiters."""
        task = self._hold(name, self._run_once(name, work, on_defect))
        task.add_done_callback(lambda _: work.close())  # if it was cancelled before it started
        return task

    def spawn_essential(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run work whose defect would make others wait forever: it stops the node."""
        return self.spawn(name, work, partial(self._give_up, name))

    def thread(self, name: str, work: Callable[[], None]) -> Thread:
        """Run blocking work in a thread that nothing waits for; an unexpected failure ends it and is logged."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            try:
                work()
            except Exception as error:
                with suppress(RuntimeError):  # the node has ended
                    loop.call_soon_threadsafe(self.log_defect, name, error)

        thread = Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def log_defect(self, name: str, error: BaseException) -> None:
        self._journal.error(f"{name} failed by a defect: {place_of(error)}.")

    def unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Exception handler of the event loop, for callbacks and other work that is not awaited."""
        error = context.get("exception")
        if error is not None:
            self._log("Work of the event loop", error)

    def _hold(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run_essential(self, name: str, loop: Loop) -> None:
        if error := await _failure_of(loop()):
            self.log_defect(name, error)
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        self.failure = self.failure or name
        self._stopping.set()

    async def _run_again(self, name: str, loop: Loop) -> None:
        back_off, clock = BackOff(RESTART_S, STEADY_S), asyncio.get_running_loop().time
        while True:
            back_off.started(clock())
            error = await _failure_of(loop())
            if error is None:
                return
            self.log_defect(name, error)
            del error  # its frames hold the loop's variables
            before = self.restarts.get(name, Restarts(0, time.time()))
            self.restarts[name] = before._replace(times=before.times + 1)
            await asyncio.sleep(back_off.failed(clock()))

    async def _run_once(self, name: str, work: Work, on_defect: Callable[[], None]) -> None:
        if error := await _failure_of(work):
            self._log(name, error)
            if not isinstance(error, MaclusterError):
                on_defect()

    def _log(self, name: str, error: BaseException) -> None:
        if isinstance(error, MaclusterError):
            self._journal.error(str(error))
        else:
            self.log_defect(name, error)


def defects_logger(name: str, what: str, tasks: Tasks) -> logging.Logger:
    """A logger for aiohttp: logs the place of a defect, never its text, and no mistakes of clients."""
    logger = logging.Logger(name)
    logger.addHandler(_Defects(what, tasks))
    return logger


class _Defects(logging.Handler):
    def __init__(self, what: str, tasks: Tasks) -> None:
        super().__init__()
        self._what, self._tasks = what, tasks

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error and not isinstance(error, HttpProcessingError | RequestPayloadError | ConnectionError):
            self._tasks.log_defect(self._what, error)


async def _failure_of(work: Awaitable[object]) -> Exception | None:
    """The one place that catches everything: an unexpected error must not end a loop silently."""
    try:
        await work
    except Exception as error:
        return error
    return None


def place_of(error: BaseException) -> str:
    """Place in our code and type of an error, without values or its text: they may contain what the user typed."""
    frames = [(Path(frame.f_code.co_filename), line, frame.f_code) for frame, line in walk_tb(error.__traceback__)]
    ours = [each for each in frames if each[0].is_relative_to(_HOUSE / "core") and each[0] != _GUARD]
    if not (found := ours or frames):
        return type(error).__qualname__
    path, line, code = found[-1]
    where = path.relative_to(_HOUSE) if ours else path.name
    return f"{type(error).__qualname__} at {where}:{line} in {code.co_qualname}"
