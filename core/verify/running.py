"""Runs checks one by one, each with a time limit; a check that needs mlx runs in a process of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import msgspec

from core.errors import BadModel, Problem
from core.models.files.sandbox import Job, run_child
from core.settings import GB
from core.verify.check import Check, CheckResult, Outcome, failed, in_words, skipped

RSS_BYTES: Final = 8 * GB
GRACE_S: Final = 1.0
WITHIN_S: Final = 175.0
OUT_OF_TIME: Final = skipped("the three minutes were over: run it again when this machine is less busy")


async def run_checks(checks: Sequence[Check], within_s: float = WITHIN_S) -> AsyncIterator[CheckResult]:
    """Yield each result as soon as it is known; closing the iterator ends the running check."""
    ends = perf_counter() + within_s
    for check in checks:
        started, stop = perf_counter(), threading.Event()
        left = ends - started
        try:
            async with asyncio.timeout(max(0.0, min(left, check.limit_s + GRACE_S))):
                outcome = await _in_a_thread(partial(check.run, stop))
        except TimeoutError:
            is_its_own = left > check.limit_s
            outcome = failed(f"not done within {check.limit_s:g} s") if is_its_own else OUT_OF_TIME
        finally:
            stop.set()
        yield CheckResult(
            name=check.name, seconds=round(perf_counter() - started, 2), **msgspec.structs.asdict(outcome)
        )


async def _in_a_thread(work: Callable[[], Outcome]) -> Outcome:
    """Like asyncio.to_thread, but exiting does not wait for the thread: macOS may be showing a question to the user."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        try:
            outcome = work()
        except Exception as error:  # the other checks continue
            outcome = in_words(error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, daemon=True).start()
    return await done


def in_a_child(module: str, *arguments: str, seconds: float) -> Callable[[threading.Event], Outcome]:
    """A check by `core.verify.<module>`, with mlx, in a process whose crash does not affect the others."""

    def run(stop: threading.Event) -> Outcome:
        with TemporaryDirectory(prefix="macluster-verify-") as folder:
            job = Job(
                module=f"core.verify.{module}",
                arguments=(folder, *arguments),
                subject="A check",
                fix="",
                seconds=seconds,
                rss_bytes=RSS_BYTES,
            )
            try:
                status, answer = run_child(job, stop=stop)
            except BadModel:
                return failed(f"its process exceeded {seconds:g} s or {RSS_BYTES // GB} GB")
        return outcome_of(status, answer)

    return run


def outcome_of(status: int, answer: bytes) -> Outcome:
    """The outcome by a child's exit status and output."""
    try:
        if status == 0:
            return msgspec.json.decode(answer, type=Outcome)
        return failed(f"ended with {msgspec.json.decode(answer, type=Problem).kind}")
    except msgspec.MsgspecError:
        return failed(f"its process ended with status {status}")
