"""Statistics of measured requests: percentiles with confidence intervals, and rates. Times are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, sqrt
from typing import Final, NamedTuple

import msgspec

HTTP_OK: Final = 200
HTTP_BUSY: Final = 429
RATE: Final = "decode_tps"  # the one segment in tokens per second
# measured by the client or reported by the server
SEGMENTS: Final = (
    *("total_e2e", "parse", "reserve", "route", "queue_wait", "encrypt", "dispatch", "coordinator_to_provider"),
    *("ttft", RATE),
)
_NORMAL_95: Final = 1.96


class ReplyFigures(NamedTuple):
    """Measurements of one request."""

    status: int  # HTTP status; 0 if no response came
    total_s: float  # from the request to the end of the response
    first_s: float | None = None  # from the request to the first token, of a stream
    tokens: int = 0
    decode_s: float = 0.0  # from the first token to the last
    laps: Mapping[str, float] = {}  # seconds per part, from the server's Server-Timing


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of one part of `count` requests."""

    count: int
    mean: float
    p50: float
    p95: float
    max: float
    p50_between: tuple[float, float]  # 95 % confidence interval of p50
    p95_between: tuple[float, float]  # 95 % confidence interval of p95


def segment(samples: Sequence[float]) -> Segment:
    """Statistics of at least one sample."""
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
    """Confidence interval by ranks (binomial, normal approximation); no distribution is assumed."""
    count = len(ordered)
    middle, reach = count * share, _NORMAL_95 * sqrt(count * share * (1 - share))
    low, high = floor(middle - reach), ceil(middle + reach)
    return ordered[max(0, low)], ordered[min(count - 1, high)]


def segments(replies: Sequence[ReplyFigures]) -> dict[str, Segment]:
    """Statistics of each segment that has data, in order; only answered requests count."""
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
    return successes / duration_s if duration_s > 0 else 0.0
