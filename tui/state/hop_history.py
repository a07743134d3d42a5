"""What the hops did longer ago than the last minute, in fewer points. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tui.state.hop_points import HopPoint

PAST_S: Final = 3600.0
GRAIN_S: Final = 10.0
_TIMES: Final = ("compute_s", "codec_s", "seal_s", "send_s", "wire_s", "open_s", "source_s", "target_s")
_SUMS: Final = ("frames", "bytes", *_TIMES)


def faded(past: tuple[HopPoint, ...], leaving: tuple[HopPoint, ...], now: float) -> tuple[HopPoint, ...]:
    """`past` with the points that leave the last minute, those of a hop within `GRAIN_S` as one, for an hour."""
    grains = {_grain(point): point for point in past if point.at >= now - PAST_S}
    for point in leaving:
        known = grains.get(_grain(point))
        grains[_grain(point)] = _joined(known, point) if known else point
    return tuple(grains.values())


def last_of(past: tuple[HopPoint, ...], pair: tuple[str, str]) -> list[HopPoint]:
    """What the hop between these two did last: figures of an answer stay until there are newer ones."""
    found = [point for point in past if (point.source, point.target) == pair]
    return [point for point in found if point.at > found[-1].at - GRAIN_S]


def _grain(point: HopPoint) -> tuple[str, str, bool, int]:
    return point.source, point.target, point.first, int(point.at // GRAIN_S)


def _joined(one: HopPoint, other: HopPoint) -> HopPoint:
    return msgspec.structs.replace(one, **{field: getattr(one, field) + getattr(other, field) for field in _SUMS})
