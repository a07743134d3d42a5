"""What this Mac knows of another one as long as the two are linked."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Final

from core.link.control import ControlLink
from core.link.rekeyed_link import RekeyedLink
from core.node.base.messages import Status
from core.node.base.signals import Signal

RTT_SAMPLES: Final = 16


class ContactChanged(Signal, frozen=True):
    """Whether that Mac is linked, what it told, or why it cannot be reached, changed."""

    device_id: str


class Contact:
    """A Mac that is linked and what it has told us."""

    def __init__(self, rekeyed: RekeyedLink) -> None:
        self.rekeyed = rekeyed
        self.since = self.changed_at = self.renew_at = monotonic()
        self.attempts = 0
        self._rtts: deque[float] = deque(maxlen=RTT_SAMPLES)
        self.status: Status | None = None
        self.goodbye = ""
        self.beat: asyncio.Task[None] | None = None
        self.dispute = ""

    @property
    def link(self) -> ControlLink:
        """Where to send to it."""
        return self.rekeyed.link

    def timed(self, rtt_s: float) -> None:
        """A ping came back after `rtt_s` seconds."""
        self._rtts.append(rtt_s)

    @property
    def rtt_s(self) -> float | None:
        """The shortest of the last pings: what the network takes, without what the two nodes were busy with."""
        return min(self._rtts, default=None)
