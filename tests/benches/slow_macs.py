"""Macs of other speeds on one machine: stopping a process for a part of the time slows it by that part."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

PERIOD_S: Final = 0.02


@contextmanager
def slowed(pids: Sequence[int], times: float) -> Iterator[None]:
    """Run these processes for one `times`-th of the time inside the block, all at once."""
    end = threading.Event()

    def send(what: signal.Signals) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, what)

    def take_turns() -> None:
        while not end.wait(PERIOD_S / times):
            send(signal.SIGSTOP)
            end.wait(PERIOD_S * (1 - 1 / times))
            send(signal.SIGCONT)

    thread = threading.Thread(target=take_turns, name="slow Macs", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        send(signal.SIGCONT)
