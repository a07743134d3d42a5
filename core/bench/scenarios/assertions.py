"""Limits that a scenario must keep, as rows that pass or fail. A segment without data fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from core.bench.scenarios.percentiles import HTTP_BUSY, HTTP_OK, ReplyFigures, Segment


class Limit(NamedTuple):
    """Upper limits of one segment, in milliseconds."""

    segment: str
    mean_ms: float
    p95_ms: float


LIMITS: Final = (Limit("parse", 1, 5), Limit("reserve", 50, 200), Limit("encrypt", 5, 50), Limit("dispatch", 5, 50))


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report."""

    name: str
    passed: bool
    detail: str

    def __str__(self) -> str:
        return f"{self.name} {'PASS' if self.passed else 'FAIL'} {self.detail}"


def assertions(found: Mapping[str, Segment], replies: Sequence[ReplyFigures]) -> list[Assertion]:
    """Check the segments of a scenario. If no request was answered, every refusal must be a 429."""
    if not any(reply.status == HTTP_OK for reply in replies):
        refused = sum(reply.status == HTTP_BUSY for reply in replies)
        detail = f"{refused} of {len(replies)} requests were refused with status {HTTP_BUSY}"
        return [Assertion(name="refusals:429", passed=0 < refused == len(replies), detail=detail)]
    return [row for limit in LIMITS for row in _rows(limit, found.get(limit.segment))]


def _rows(limit: Limit, found: Segment | None) -> Iterator[Assertion]:
    name = limit.segment
    if found is None:
        yield Assertion(name=f"{name}:present", passed=False, detail=f"no data for segment {name}")
        return
    yield _row(name, "mean", found.mean, limit.mean_ms)
    yield _row(name, "p95", found.p95, limit.p95_ms)


def _row(name: str, what: Literal["mean", "p95"], seconds: float, most_ms: float) -> Assertion:
    return Assertion(
        name=f"{name}:{what}<={most_ms:g}ms",
        passed=1e3 * seconds <= most_ms,
        detail=f"{what}={time_text(seconds, seconds)} (threshold={most_ms:g}ms)",
    )


def time_text(seconds: float, most_s: float) -> str:
    """In µs if `most_s`, the largest value of the row, is below a millisecond, else in ms."""
    return f"{1e6 * seconds:.1f}µs" if most_s < 1e-3 else f"{1e3 * seconds:.1f}ms"
