"""Phases of a frame on one hop, and the gain of a cable. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from tui.state.hop_history import HOP_WINDOW_S, HopPoint
from tui.state.hops import Ring
from tui.state.state import UiState

# an Ethernet or Thunderbolt cable between two Macs takes 0.3 to 0.5 ms there and back
CABLE_RTT_S: Final = 0.0005
WORTH_SAYING: Final = 0.01

WINDOWS_S: Final = (HOP_WINDOW_S, 600.0, 3600.0)


class Phases(NamedTuple):
    """Seconds per frame, in order."""

    compute_s: float
    codec_s: float
    seal_s: float
    send_s: float
    wire_s: float  # half a round trip
    open_s: float
    wait_s: float  # of the receiver; the other Macs work meanwhile
    bytes: float  # per frame
    frames: int  # in total


class Spread(NamedTuple):
    """Percentiles of the samples in the chart, in seconds per frame."""

    p50_s: float
    p95_s: float
    max_s: float


class Worth(NamedTuple):
    """Gain of a cable instead of a hop: it saves `saved_s` of a token's `token_s` seconds."""

    saved_s: float
    token_s: float

    @property
    def gain(self) -> float:
        return self.token_s / (self.token_s - self.saved_s) - 1


def points_of(state: UiState, pair: tuple[str, str], now: float, window_s: float) -> list[HopPoint]:
    """The points of a hop in the window. Points with a prefill, whose frames are larger, count only without others."""
    whole = (*state.past, *state.points) if window_s > HOP_WINDOW_S else state.points
    found = [p for p in whole if (p.source, p.target) == pair and p.at >= now - window_s]
    return [p for p in found if not p.first] or found


def samples_of(points: list[HopPoint]) -> tuple[tuple[float, float], ...]:
    """(time, seconds per frame)."""
    return tuple((p.at, p.transfer_s / p.frames) for p in points)


def phases_of(points: list[HopPoint]) -> Phases | None:
    """Means over the points; None without points."""
    frames = sum(p.frames for p in points)
    if not frames:
        return None

    def mean(field: str) -> float:
        return float(sum(getattr(p, field) for p in points)) / frames

    codec_s, send_s, open_s = mean("codec_s"), mean("send_s"), mean("open_s")
    return Phases(
        compute_s=mean("compute_s"),
        codec_s=codec_s,
        seal_s=max(0.0, mean("seal_s") - codec_s - open_s),
        send_s=send_s,
        wire_s=max(0.0, mean("wire_s") - send_s),
        open_s=open_s,
        wait_s=max(0.0, mean("target_s") - open_s),
        bytes=mean("bytes"),
        frames=frames,
    )


def spread_of(points: list[HopPoint]) -> Spread | None:
    """None if nothing was measured."""
    times = sorted(time for _, time in samples_of(points))
    if not times:
        return None
    return Spread(times[_rank(50, len(times))], times[_rank(95, len(times))], times[-1])


def worth_of(ring: Ring, rtt_s: float | None) -> Worth | None:
    """Seconds a cable saves on a hop with round trip `rtt_s`; None without all measurements, or for several rows."""
    spent = ring.shares
    if spent is None or ring.rows > 1 or rtt_s is None or spent.token_s <= 0:
        return None
    # at most the time of the whole wire
    saved_s = min(max(0.0, rtt_s - CABLE_RTT_S) / 2, spent.wire_s)
    return Worth(saved_s, spent.token_s)


def _rank(percent: int, count: int) -> int:
    return max(0, -(-percent * count // 100) - 1)
