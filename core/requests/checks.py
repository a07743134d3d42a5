"""Results of checks and measurements made on request."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from core.events import PathKind
from core.numbers import Size
from core.requests.body import Body, Duration, Name

MAX_PATHS: Final = 4
FindingState = Literal["ok", "warn", "bad", "unknown"]


class Finding(Body, frozen=True, kw_only=True):
    """One result of the check."""

    name: str
    state: FindingState  # "unknown": can't be checked here
    what: str  # what was found
    fix: str = ""  # what to do, "" if nothing


class SpeedRequest(Body, frozen=True, kw_only=True):
    """The hop to test. A Mac is given by its device id, the start of one, or its name."""

    target: Name
    source: Name = ""  # "": this Mac


class PathFigures(Body, frozen=True, kw_only=True):
    """A network that both Macs are on."""

    kind: PathKind
    rtt_s: Duration
    bytes_per_s: Size = 0  # 0: not measured


class SpeedResult(Body, frozen=True, kw_only=True):
    """Speed of the control link between two Macs, measured by `source` on its own clock."""

    source: str  # device id
    target: str  # device id
    rtt_s: Duration  # median of `round_trips` empty messages
    rtt_min_s: Duration  # shortest
    round_trips: Size
    loaded_rtt_s: Duration  # median of `frames` full messages, as many in flight as fit without a queue
    frames: Size
    bytes: Size  # sent in full messages, encrypted, within `seconds`
    seconds: Duration
    # network port of `source`, such as "Wi-Fi (en0)"; "" if unknown
    via: Annotated[str, msgspec.Meta(max_length=64)] = ""
    # every network from `source` to `target`, best kind first
    paths: Annotated[tuple[PathFigures, ...], msgspec.Meta(max_length=MAX_PATHS)] = ()
    answering: bool = False  # an answer was being written during the test

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds if self.seconds > 1e-6 else 0.0
