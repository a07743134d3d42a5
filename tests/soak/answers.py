"""Results of the questions: how long answers took, and which questions failed without an excuse."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from statistics import median
from typing import Final

from tests.soak.report import LEVEL, PLAIN
from tests.support.crowd import QuestionOutcome

NEAR_S: Final = 1.0  # a result this soon after a disturbance counts as hit by it
FINE: Final = ("right", "left", "status 429")

Spans = Sequence[tuple[float, float]]  # from, to
Timed = list[tuple[float, float]]  # when, value


def latencies(told: Sequence[QuestionOutcome], beside: Sequence[tuple[float, float]]) -> dict[str, Timed]:
    """Latency of each right answer over its question's median: plain, and divided by the machine's slowness.

    `beside` has the seconds that a fixed piece of work took, by time.
    """
    answers = [one for one in told if one.what == "right"]
    usual: dict[int, float] = {
        number: median(one.seconds for one in answers if one.question == number)
        for number in {one.question for one in answers}
    }
    plain = [(one.at, one.seconds / usual[one.question]) for one in answers]
    times, middle = [at for at, _ in beside], median(value for _, value in beside)
    level = [(at, value * middle / beside[min(bisect(times, at), len(times) - 1)][1]) for at, value in plain]
    return {PLAIN: plain, LEVEL: level}


def lost(told: Sequence[QuestionOutcome], loads: Spans, recoveries: Spans) -> list[str]:
    """Questions that failed without an excuse.

    During a load everything may end or be refused; during a recovery only new requests may be refused.
    """

    def met(one: QuestionOutcome, spans: Spans) -> bool:
        return any(begin <= one.at <= end + NEAR_S for begin, end in spans)

    return [
        f"{one.what} after {one.seconds:.1f} s"
        for one in told
        if one.what not in (*FINE, "wrong")  # wrong answers are reported with their text
        and not met(one, loads)
        and not (one.what == "status 503" and met(one, recoveries))
    ]


def median_and_p95(times: Sequence[float]) -> tuple[float, float]:
    """Median and 95th percentile."""
    ordered = sorted(times)
    return round(ordered[len(ordered) // 2], 2), round(ordered[len(ordered) * 95 // 100], 2)
