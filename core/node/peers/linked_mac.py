"""State of a linked Mac, as known to this one."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Final

from core.errors import ProtocolError
from core.link.connection_admission import MAX_CONTROL_LINKS
from core.link.control_link import ControlLink
from core.link.frames import FrameType
from core.link.rekeyed_link import RekeyedLink
from core.node.base.node_message import UNLIMITED
from core.node.base.signals import Signal
from core.node.peers.messages import Greeting, Ping, Status
from core.node.peers.stage_state import HeldStage
from core.rates import BackOff, Rate, TokenBucket

RTT_SAMPLES: Final = 16
RENEW_S: Final = (1.0, 5.0, 30.0, 120.0, 600.0)


class LinkedMacChanged(Signal, frozen=True):
    """A Mac's link, its reported state, or the reason why it can't be reached changed."""

    device_id: str


class StageHeard(Signal, frozen=True):
    """A Mac said how its stage of this Mac's plan is."""

    device_id: str
    stage: HeldStage


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
        self.rtts: dict[str, float] = {}  # its round trips to other linked Macs, in seconds
        self.rests = False  # nothing runs on it
        self.logged = 0  # lines in its log
        self.told: Status | None = None  # this Mac's status, as told to it last
        self.told_rtts: dict[str, float] = {}
        self._unanswered: tuple[float, float] | None = None  # `sent` of its last ping, and when that came
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

    def ping(
        self,
        now: float,
        status: Status,
        rtts: dict[str, float],
        stage: HeldStage | None = None,
        *,
        rests: bool,
        logged: int,
    ) -> Ping:
        """The next ping to it, with what changed since the one before."""
        answers, came_at = self._unanswered or (None, now)
        told, news = self.told, {mac: rtt for mac, rtt in rtts.items() if self.told_rtts.get(mac) != rtt}
        self._unanswered, self.told, self.told_rtts = None, status, rtts
        return Ping(
            sent=now,
            answers=answers,
            held_s=now - came_at,
            rests=rests,
            logged=logged,
            status=status if status != told else None,
            stage=stage,
            rtts=news,
        )

    def pinged(self, ping: Ping, now: float) -> bool:
        """Take in a ping; returns whether it told anything new. Raises ProtocolError if it answers one never sent."""
        before = self.rtt_s
        if ping.answers is not None:
            if not self.since <= ping.answers <= now:
                raise ProtocolError("A ping was answered that was not sent.")
            if (rtt_s := now - ping.answers - ping.held_s) >= 0:  # else the two clocks differ in speed
                self._rtts.append(rtt_s)
        self._unanswered, self.rests, self.logged = (ping.sent, now), ping.rests, ping.logged
        self.status = ping.status or self.status
        self.rtts |= ping.rtts
        if len(self.rtts) > 2 * MAX_CONTROL_LINKS:
            raise ProtocolError("More round trips than a Mac has links.")
        return bool(ping.status or ping.rtts) or self.rtt_s != before

    @property
    def rtt_s(self) -> float | None:
        """The shortest of the last round trips: the network's share, without delays inside the two nodes."""
        return min(self._rtts, default=None)
