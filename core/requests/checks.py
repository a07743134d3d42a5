"""What was looked at or measured on request: findings of the check, figures of a hop."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from core.events import PathKind
from core.numbers import Size
from core.requests.body import Body, Duration, Name

MAX_PATHS: Final = 4
FindingState = Literal["ok", "warn", "bad", "unknown"]


class Finding(Body, frozen=True, kw_only=True):
    """One thing that the check looked at: `what` is so, and `fix` what a person can do about it, "" where nothing has
    to be done. "unknown": it cannot be found out here.
    """

    name: str
    state: FindingState
    what: str
    fix: str = ""


class SpeedRequest(Body, frozen=True, kw_only=True):
    """Which hop to test: two Macs, each by its device id, the beginning of that, or its name; without a `source` it is
    this Mac.
    """

    target: Name
    source: Name = ""


class PathFigures(Body, frozen=True, kw_only=True):
    """A network that both Macs are on: what a round trip takes, and what it carries, 0 where that is not known."""

    kind: PathKind
    rtt_s: Duration
    bytes_per_s: Size = 0


class SpeedResult(Body, frozen=True, kw_only=True):
    """What the control link between two Macs does, measured by `source` on its own clock; both are device ids.

    `rtt_s` is the median and `rtt_min_s` the least of `round_trips` empty messages, there and back; `loaded_rtt_s` the
    median of `frames` full ones, with as many under way as the link takes without a queue. Those carried `bytes` in
    `seconds`, sealed. `via`: by what `source` reaches the network, such as "Wi-Fi (en0)", "" where nothing says so.
    `paths`: every network by which `source` reaches `target`, the best kind first, and what each carries.
    `answering`: an answer of the Mac that asked was being written meanwhile.
    """

    source: str
    target: str
    rtt_s: Duration
    rtt_min_s: Duration
    round_trips: Size
    loaded_rtt_s: Duration
    frames: Size
    bytes: Size
    seconds: Duration
    via: Annotated[str, msgspec.Meta(max_length=64)] = ""
    paths: Annotated[tuple[PathFigures, ...], msgspec.Meta(max_length=MAX_PATHS)] = ()
    answering: bool = False

    @property
    def bytes_per_s(self) -> float:
        """The rate of the full messages."""
        return self.bytes / self.seconds if self.seconds > 1e-6 else 0.0
