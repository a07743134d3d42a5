"""The checks of `macluster verify --with MAC`: the link between this Mac and a paired one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial

from core.errors import Busy, MaclusterError
from core.requests.checks import SpeedRequest, SpeedResult
from core.settings import Home
from core.text import clean_text
from core.verify.check import Check, Outcome, passed, skipped
from core.verify.machine import kind_of
from tui.cli.output import print_progress
from tui.cli.watch import Watch, watching
from tui.state.format import path_words

LIMIT_S = 25.0
BUSY_S = 0.5
NOBODY = skipped("no other Mac was named (--with MAC)")


def paired_checks(home: Home, mac: str) -> tuple[Check, ...]:
    """Checks of the link to `mac` (a name or an id) and back; skipped if it is ""."""
    return tuple(
        Check(name, proves, partial(_run, partial(measure, home, mac)) if mac else lambda _: NOBODY, LIMIT_S)
        for name, proves, measure in (
            ("link to the other Mac", "the link works, and how fast it is", there),
            ("link back", "the other Mac measures the link, too", back),
        )
    )


def _run(measure: Callable[[], Awaitable[SpeedResult]], _: threading.Event) -> Outcome:
    async def within() -> SpeedResult:
        async with asyncio.timeout(LIMIT_S):
            return await measure()

    try:
        return outcome(asyncio.run(within()))
    except MaclusterError as error:
        # it may name a Mac, so it is printed for the user and left out of the report
        print_progress(clean_text(f"macluster verify: {error}"))
        raise


async def there(home: Home, mac: str) -> SpeedResult:
    """Measure the link from this Mac; raises the node's error."""
    async with watching(home) as watch:
        return await _measured(watch, SpeedRequest(target=mac))


async def back(home: Home, mac: str) -> SpeedResult:
    """Measure the link from the other Mac; raises the node's error."""
    async with watching(home) as watch:
        own = next(peer.device_id for peer in watch.now.peers if peer.is_self)
        return await _measured(watch, SpeedRequest(source=mac, target=own))


async def _measured(watch: Watch, wanted: SpeedRequest) -> SpeedResult:
    """Retry while the Mac pauses between two tests; the check's own limit ends this."""
    while True:
        try:
            return await watch.client.test_speed(wanted)
        except Busy:
            await asyncio.sleep(BUSY_S)


def outcome(found: SpeedResult) -> Outcome:
    """Figures of speed never fail."""
    by = f", by {kind_of(found.via)}" if found.via else ""
    every = f"; {path_words(found.paths)}" if found.paths else ""
    return passed(f"{1e3 * found.rtt_s:.2f} ms round trip, {found.bytes_per_s / 1e6:.0f} MB/s sealed{by}{every}")
