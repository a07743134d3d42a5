"""Hop measurements between two samples: the last minute in full, an hour in fewer points. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from core.events import HopSample, Value

HOP_WINDOW_S: Final = 60.0
PAST_S: Final = 3600.0
GRAIN_S: Final = 10.0
_NO_HOP: Final = HopSample(
    source="", target="", frames=0, bytes=0, compute_s=0, codec_s=0, seal_s=0, send_s=0, wait_s=0, open_s=0
)

_TIMES: Final = ("compute_s", "codec_s", "seal_s", "send_s", "wait_s", "open_s")
_SUMS: Final = ("frames", "bytes", "wire_s", *_TIMES)


class HopPoint(Value, frozen=True, kw_only=True):
    """Times of one hop between two samples, in seconds over all `frames`."""

    source: str
    target: str
    at: float
    frames: int
    bytes: int
    first: bool  # first sample of a request, which contains its prefill
    compute_s: float = 0.0  # of the sender, like the next three
    codec_s: float = 0.0
    seal_s: float = 0.0
    send_s: float = 0.0
    wire_s: float = 0.0  # half a round trip per frame
    wait_s: float = 0.0  # of the receiver
    open_s: float = 0.0  # of the receiver

    @property
    def transfer_s(self) -> float:
        return self.codec_s + self.seal_s + self.send_s + self.wire_s + self.open_s


def point_of(
    base: tuple[HopSample, ...], sample: HopSample, now: float
) -> tuple[tuple[HopSample, ...], HopPoint | None]:
    """Measurements since the hop's last sample in `base`; None for nothing. Samples are sums, and a new sum starts
    whenever the ring was idle; `sample` replaces the last one in the returned base.
    """
    pair = (sample.source, sample.target)
    before = next((s for s in base if (s.source, s.target) == pair), None)
    fresh = before is None or before.since != sample.since or before.frames > sample.frames
    since = _NO_HOP if fresh or before is None else before
    base = (*(s for s in base if (s.source, s.target) != pair), sample)
    frames = sample.frames - since.frames
    if frames <= 0:
        return base, None
    return base, HopPoint(
        source=sample.source,
        target=sample.target,
        at=now,
        frames=frames,
        bytes=sample.bytes - since.bytes,
        first=fresh,
        wire_s=frames * (sample.rtt_s or 0.0) / 2,
        **{field: max(0.0, getattr(sample, field) - getattr(since, field)) for field in _TIMES},
    )


def faded(past: tuple[HopPoint, ...], leaving: tuple[HopPoint, ...], now: float) -> tuple[HopPoint, ...]:
    """`past` plus the points that leave the last minute, merged per hop and `GRAIN_S`, for an hour."""
    grains = {_grain(point): point for point in past if now - PAST_S <= point.at <= now}
    for point in leaving:
        known = grains.get(_grain(point))
        grains[_grain(point)] = _joined(known, point) if known else point
    return tuple(grains.values())


def last_of(past: tuple[HopPoint, ...], pair: tuple[str, str]) -> list[HopPoint]:
    found = [point for point in past if (point.source, point.target) == pair]
    return [point for point in found if point.at > found[-1].at - GRAIN_S]


def _grain(point: HopPoint) -> tuple[str, str, bool, int]:
    return point.source, point.target, point.first, int(point.at // GRAIN_S)


def _joined(one: HopPoint, other: HopPoint) -> HopPoint:
    return msgspec.structs.replace(one, **{field: getattr(one, field) + getattr(other, field) for field in _SUMS})
