"""Simulated time: an event loop whose clock jumps to the next timer, and processes that can be stopped or killed.

A process's callbacks run in its context. A stopped process does nothing, and its due callbacks run late, when it
continues. A killed process does nothing any more, and cleans nothing up.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any

from core.errors import MaclusterError

BUSIEST = 20_000  # callbacks in a simulated second


class Process:
    """One process of a Mac."""

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop, self.name = loop, name
        self.is_dead = self.is_stopped = False
        self.late: list[asyncio.Handle] = []
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def stop(self) -> None:
        """Stop, as SIGSTOP does."""
        self.is_stopped = True

    def go_on(self) -> None:
        """Continue, as SIGCONT does."""
        self.is_stopped, late = False, self.late
        self.late = []
        self._loop.again(late)

    def kill(self) -> None:
        """Kill, as SIGKILL does."""
        self.is_dead = True
        self.late.clear()

    def soon(self, callback: Callable[..., object], *args: Any, after: float = 0.0) -> asyncio.TimerHandle:
        """Call `callback` in this process; another process may ask for it."""
        return self._loop.call_later(after, callback, *args, context=self.context)

    def spawn(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Start a task in this process."""
        self.soon(lambda: self._loop.create_task(work(*args)))


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class Loop(asyncio.AbstractEventLoop):
    """Event loop in simulated time. `failures`: errors that nothing awaited; `thread_s`: time of a call in a thread."""

    def __init__(self) -> None:
        self.now, self.thread_s = 0.0, 0.001
        self.failures: list[BaseException] = []
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._second, self._busy = 0, 0

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self.now + delay
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, work: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self, name=name or "", context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # a process that is killed finishes nothing
        task.add_done_callback(self._look)
        return task

    def _look(self, task: asyncio.Task[Any]) -> None:
        """Record errors other than the product's own, which a caller may handle."""
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, MaclusterError | OSError | TimeoutError):
            self.failures.append(error)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run `func` in a thread that takes a moment."""
        done = self.create_future()
        self.call_later(self.thread_s, self._in_thread, done, func, args)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context.get("exception") or RuntimeError(context["message"]))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def again(self, handles: list[asyncio.Handle]) -> None:
        """Queue the handles that a stopped process had due."""
        self._ready.extend(handles)

    def run_for(self, seconds: float) -> None:
        """Let `seconds` pass."""
        until = self.now + seconds
        asyncio._set_running_loop(self)
        try:
            while True:
                while self._ready:
                    self._run(self._ready.popleft())
                if not self._timers or self._timers[0][0] > until:
                    break
                when, _, handle = heapq.heappop(self._timers)
                self.now = max(self.now, when)
                self._run(handle)
        finally:
            asyncio._set_running_loop(None)
        self.now = until

    def _run(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None:
            if process.is_dead:
                return
            if process.is_stopped:
                process.late.append(handle)
                return
        self._busy += 1
        if int(self.now) != self._second:
            self._second, self._busy = int(self.now), 0
        assert self._busy < BUSIEST, f"a storm at {self.now:.2f}"
        handle._run()
        if self.failures:
            raise self.failures[0]

    @staticmethod
    def _in_thread(done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if done.done():
            return
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
