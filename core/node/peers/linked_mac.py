"""State of a linked Mac, as known to this one."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Final

from core.errors import ProtocolError
from core.link.control_link import ControlLink
from core.link.frames import FrameType
from core.link.rekeyed_link import RekeyedLink
from core.node.base.node_message import UNLIMITED
from core.node.base.signals import Signal
from core.node.peers.messages import Greeting, Status
from core.rates import BackOff, Rate, TokenBucket

RTT_SAMPLES: Final = 16
RENEW_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)


class LinkedMacChanged(Signal, frozen=True):
    """A Mac's link, its reported state, or the reason why it can't be reached changed."""

    device_id: str


class LinkedMac:
    """A linked Mac and everything it has reported."""

    def __init__(self, rekeyed: RekeyedLink) -> None:
        self.rekeyed = rekeyed
        self.since = self.changed_at = self.renew_at = monotonic()
        self.back_off = BackOff(RENEW_S)  # between attempts to renew the keys
        self._rtts: deque[float] = deque(maxlen=RTT_SAMPLES)
        self.greeting: Greeting | None = None
        self.is_apart = False  # there is no version of messages, or of rosters, that both Macs know
        self.status: Status | None = None
        self.goodbye = ""
        self._budgets: dict[FrameType, TokenBucket] = {}
        self.beat: asyncio.Task[None] | None = None
        self.dispute = ""

    @property
    def link(self) -> ControlLink:
        return self.rekeyed.link

    def spend(self, kind: FrameType, rate: Rate, now: float) -> float:
        """Count a received frame; returns seconds until this Mac's next one may be read."""
        if kind not in self._budgets:
            self._budgets[kind] = TokenBucket(rate)
        return self._budgets[kind].spend(now) if rate != UNLIMITED else 0.0

    def timed(self, sent: float, now: float) -> None:
        """Record the round trip of the ping sent at `sent`. Raises ProtocolError if none was sent then."""
        if not self.since <= sent <= now:
            raise ProtocolError("A ping was answered that was not sent.")
        self._rtts.append(now - sent)

    @property
    def rtt_s(self) -> float | None:
        """The shortest of the last round trips: the network's share, without delays inside the two nodes."""
        return min(self._rtts, default=None)
