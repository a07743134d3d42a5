"""Admit or refuse new control connections before authentication, and count the outcomes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from ipaddress import ip_address
from typing import Final, Literal

from core.rates import Rate, TokenBucket

CONNECTIONS: Final = Rate(per_s=4.0, burst=8.0)
ADDRESSES_KEPT: Final = 256
MAX_CONTROL_LINKS: Final = 30  # with the two data links of the worker 32 in all
HandshakeStep = Literal["failed_tls", "failed_hello", "failed_auth"]
Outcome = HandshakeStep | Literal["accepted", "refused_by_rate", "refused_full", "timed_out"]


class HandshakeProgress:
    """How far a handshake got: names its outcome if it fails."""

    step: HandshakeStep = "failed_tls"


class ConnectionAdmission:
    """Limits connections by number, and by rate for each address but those of this Mac itself. Its count of "accepted"
    is of connections that got a handshake.
    """

    def __init__(self) -> None:
        self._buckets: Final[OrderedDict[str, TokenBucket]] = OrderedDict()
        self.counts: Final[Counter[Outcome]] = Counter()

    def admits(self, host: str, now: float, links: int) -> bool:
        """Whether `host` may start a handshake at `now` (seconds, monotonic) while `links` are open."""
        if links >= MAX_CONTROL_LINKS:
            outcome: Outcome = "refused_full"
        else:
            outcome = "accepted" if self._is_in_time(host, now) else "refused_by_rate"
        self.counts[outcome] += 1
        return outcome == "accepted"

    def _is_in_time(self, host: str, now: float) -> bool:
        if ip_address(host).is_loopback:
            return True
        bucket = self._buckets.setdefault(host, TokenBucket(CONNECTIONS))
        self._buckets.move_to_end(host)
        if len(self._buckets) > ADDRESSES_KEPT:
            self._buckets.popitem(last=False)
        return bucket.take(now)

    def failed(self, visit: HandshakeProgress, error: Exception) -> None:
        """Count a failed handshake. asyncio reports a TLS timeout as an aborted connection."""
        late = isinstance(error, TimeoutError | ConnectionAbortedError)
        self.counts["timed_out" if late else visit.step] += 1
