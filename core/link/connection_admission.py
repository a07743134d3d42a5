"""Admit or refuse new control connections before authentication, and count the outcomes."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal

from core.link.tls_stream import ConnectionLimiter

MAX_CONTROL_LINKS: Final = 30  # with the two data links of the worker 32 in all
HandshakeStep = Literal["failed_tls", "failed_hello", "failed_auth"]
Outcome = HandshakeStep | Literal["accepted", "refused_by_rate", "refused_full", "timed_out"]


class HandshakeProgress:
    """How far a handshake got: names its outcome if it fails."""

    step: HandshakeStep = "failed_tls"


class ConnectionAdmission:
    """Limits connections by number and rate, and counts outcomes. "accepted" counts connections that got a
    handshake.
    """

    def __init__(self) -> None:
        self._limiter: Final = ConnectionLimiter()
        self.counts: Final[Counter[Outcome]] = Counter()

    def admits(self, host: str, now: float, links: int) -> bool:
        """Whether a connection from `host` may start a handshake while `links` are open; `now`: seconds, monotonic
        clock.
        """
        if links >= MAX_CONTROL_LINKS:
            outcome: Outcome = "refused_full"
        else:
            outcome = "accepted" if self._limiter.admit(host, now) else "refused_by_rate"
        self.counts[outcome] += 1
        return outcome == "accepted"

    def crowded_out(self) -> None:
        """Count a handshake that was dropped for a newer one."""
        self.counts["refused_full"] += 1

    def failed(self, visit: HandshakeProgress, error: Exception) -> None:
        """Count a failed handshake. asyncio reports a TLS timeout as an aborted connection."""
        late = isinstance(error, TimeoutError | ConnectionAbortedError)
        self.counts["timed_out" if late else visit.step] += 1
