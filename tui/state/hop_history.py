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

_TIMES: Final = ("compute_s", "codec_s", "seal_s", "send_s", "wire_s", "open_s", "source_s", "target_s")
_SUMS: Final = ("frames", "bytes", *_TIMES)


class HopPoint(Value, frozen=True, kw_only=True):
    """Times of one hop between two samples, in seconds over all `frames`."""

    source: str
    target: str
    at: float
    frames: int
    bytes: int
    compute_s: float  # of the sender
    seal_s: float  # encoding, encrypting and decrypting at both ends, with `codec_s` and `open_s`
    wire_s: float  # `send_s` plus half a round trip per frame
    source_s: float  # everything the sender did; on the first Mac, with `target_s`, one turn of the ring
    target_s: float  # the receiver waiting and decrypting
    first: bool  # first sample of a request, which contains its prefill
    codec_s: float = 0.0
    send_s: float = 0.0
    open_s: float = 0.0

    @property
    def transfer_s(self) -> float:
        return self.seal_s + self.wire_s


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

    def spent(*fields: str) -> float:
        seconds: float = sum(getattr(sample, f) - getattr(since, f) for f in fields)
        return max(0.0, seconds)

    return base, HopPoint(
        source=sample.source,
        target=sample.target,
        at=now,
        frames=frames,
        bytes=sample.bytes - since.bytes,
        compute_s=spent("compute_s"),
        seal_s=spent("codec_s", "seal_s", "open_s"),
        wire_s=spent("send_s") + frames * (sample.rtt_s or 0.0) / 2,
        source_s=spent("compute_s", "codec_s", "seal_s", "send_s"),
        target_s=spent("wait_s", "open_s"),
        first=fresh,
        codec_s=spent("codec_s"),
        send_s=spent("send_s"),
        open_s=spent("open_s"),
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
