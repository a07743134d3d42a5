"""Checks are run one after the other, each within its limit; those that need mlx in a process of their own."""

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
OUT_OF_TIME: Final = skipped("the three minutes were over: run it again when this machine has less to do")


async def run_checks(checks: Sequence[Check], within_s: float = WITHIN_S) -> AsyncIterator[CheckResult]:
    """What came of each, as soon as it is known; those for which no time is left are skipped. Whoever leaves early ends
    the one that runs.
    """
    ends = perf_counter() + within_s
    for check in checks:
        started, stop = perf_counter(), threading.Event()
        left = ends - started
        try:
            async with asyncio.timeout(max(0.0, min(left, check.limit_s + GRACE_S))):
                outcome = await _in_a_thread(partial(check.run, stop))
        except TimeoutError:
            is_its_own = left > check.limit_s
            outcome = failed(f"it did not end within {check.limit_s:g} s") if is_its_own else OUT_OF_TIME
        finally:
            stop.set()
        yield CheckResult(
            name=check.name, seconds=round(perf_counter() - started, 2), **msgspec.structs.asdict(outcome)
        )


async def _in_a_thread(work: Callable[[], Outcome]) -> Outcome:
    """As asyncio.to_thread, but nobody waits for it at the end: macOS may ask its person something first."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        try:
            outcome = work()
        except Exception as error:  # a check that breaks is one that failed, and the others go on
            outcome = in_words(error)
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, daemon=True).start()
    return await done


def in_a_child(module: str, *arguments: str, seconds: float) -> Callable[[threading.Event], Outcome]:
    """A check that `core.verify.<module>` does, with mlx, in a process that may crash without the others."""

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
                return failed(f"its process went beyond {seconds:g} s, or beyond {RSS_BYTES // GB} GB")
        return outcome_of(status, answer)

    return run


def outcome_of(status: int, answer: bytes) -> Outcome:
    """What a child said, with its exit status."""
    try:
        if status == 0:
            return msgspec.json.decode(answer, type=Outcome)
        return failed(f"it ended with {msgspec.json.decode(answer, type=Problem).kind}")
    except msgspec.MsgspecError:
        return failed(f"its process ended with status {status}")
