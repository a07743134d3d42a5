"""What many measured requests come to: percentiles with their confidence, and rates. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, sqrt
from typing import Final, NamedTuple

import msgspec

HTTP_OK: Final = 200
HTTP_BUSY: Final = 429
RATE: Final = "decode_tps"  # the one segment that is tokens a second
# of the client, and of the server's own clocks
SEGMENTS: Final = (
    *("total_e2e", "parse", "reserve", "route", "queue_wait", "encrypt", "dispatch", "coordinator_to_provider"),
    *("ttft", RATE),
)
_NORMAL_95: Final = 1.96


class ReplyFigures(NamedTuple):
    """What came of one request: its HTTP status, 0 where nothing came; seconds from the question to the end, and from
    the question to the first token, where it streams; how many tokens came, and how long from the first to the last.
    `laps`: seconds of the server's own parts, by the names that it tells.
    """

    status: int
    total_s: float
    first_s: float | None = None
    tokens: int = 0
    decode_s: float = 0.0
    laps: Mapping[str, float] = {}


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of `count` requests. Between the two figures of `p50_between` (`p95_between`) the true percentile lies
    with 95 % confidence, as far as so many requests tell.
    """

    count: int
    mean: float
    p50: float
    p95: float
    max: float
    p50_between: tuple[float, float]
    p95_between: tuple[float, float]


def segment(samples: Sequence[float]) -> Segment:
    """Of one sample at least."""
    ordered, count = sorted(samples), len(samples)
    return Segment(
        count=count,
        mean=sum(ordered) / count,
        p50=ordered[count // 2],
        p95=ordered[count * 95 // 100],
        max=ordered[-1],
        p50_between=_between(ordered, 0.50),
        p95_between=_between(ordered, 0.95),
    )


def _between(ordered: Sequence[float], share: float) -> tuple[float, float]:
    """By the ranks between which a binomial count falls (its normal approximation): no shape is assumed."""
    count = len(ordered)
    middle, reach = count * share, _NORMAL_95 * sqrt(count * share * (1 - share))
    low, high = floor(middle - reach), ceil(middle + reach)
    return ordered[max(0, low)], ordered[min(count - 1, high)]


def segments(replies: Sequence[ReplyFigures]) -> dict[str, Segment]:
    """Those that have data, in their order; only what was answered counts."""
    good = [reply for reply in replies if reply.status == HTTP_OK]
    samples: dict[str, list[float]] = {name: [] for name in SEGMENTS}
    for reply in good:
        samples["total_e2e"].append(reply.total_s)
        for name in SEGMENTS:
            if name in reply.laps:
                samples[name].append(reply.laps[name])
        if reply.first_s is not None:
            samples["ttft"].append(reply.first_s)
        if reply.tokens > 1 and reply.decode_s > 0:
            samples[RATE].append((reply.tokens - 1) / reply.decode_s)
    return {name: segment(taken) for name, taken in samples.items() if taken}


def per_second(successes: int, duration_s: float) -> float:
    """Requests a second: only those that succeeded count."""
    return successes / duration_s if duration_s > 0 else 0.0
