"""Who connects to this Mac and what becomes of them: decided before anyone has proved anything, and counted."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

from core.link.tls_stream import ConnectionLimiter

MAX_CONTROL_LINKS: Final = 30  # with the two data links of the worker 32 in all
HandshakeStep = Literal["failed_tls", "failed_hello", "failed_auth"]
Outcome = HandshakeStep | Literal["accepted", "refused_by_rate", "refused_full", "timed_out"]


class HandshakeProgress:
    """One handshake: what it is called if it goes no further."""

    step: HandshakeStep = "failed_tls"


class ConnectionAdmission:
    """`counts` only grows. "accepted" are those who were let in to prove themselves, not those who could."""

    def __init__(self) -> None:
        self._limiter: Final = ConnectionLimiter()
        self.counts: Final[Counter[Outcome]] = Counter()

    def admits(self, host: str, now: float, links: int) -> bool:
        """Whether who connects from `host` may try, while `links` are open; `now` in seconds of one monotonic clock."""
        if links >= MAX_CONTROL_LINKS:
            outcome: Outcome = "refused_full"
        else:
            outcome = "accepted" if self._limiter.admit(host, now) else "refused_by_rate"
        self.counts[outcome] += 1
        return outcome == "accepted"

    def crowded_out(self) -> None:
        """A handshake gave way to a newer one."""
        self.counts["refused_full"] += 1

    def failed(self, visit: HandshakeProgress, error: Exception) -> None:
        """A handshake went no further. asyncio calls the one for TLS aborted when its time is over."""
        late = isinstance(error, TimeoutError | ConnectionAbortedError)
        self.counts["timed_out" if late else visit.step] += 1
