"""Summary and text of the bench of forecasts; tests/processes/test_benches.py runs it."""

from __future__ import annotations

from core.plan.topology import TOPOLOGIES
from tests.benches.forecast import CASES, ForecastRun, describe, summary


def a_run(tokens_per_s: float, foretold: float | None, *, advised: bool, first_s: float | None = None) -> ForecastRun:
    return ForecastRun(
        foretold_tokens_per_s=foretold,
        tokens_per_s=tokens_per_s,
        foretold_first_s=first_s,
        first_s=2.0,
        advised_alone=advised,
    )


def test_eleven_cases_over_one_to_four_macs_in_every_way_that_several_share() -> None:
    assert len(CASES) == len({case.name for case in CASES}) == 11
    assert {case.macs for case in CASES} == {1, 2, 3, 4}
    asked = {str(case.how.get("topology", "private")) for case in CASES} | {"tensor", "single"}
    assert asked == {*TOPOLOGIES}


def test_what_was_foretold_over_what_was_measured_and_whether_the_advice_was_right() -> None:
    alone = a_run(10.0, 10.0, advised=False, first_s=2.0)
    others = {
        "2 stages": a_run(5.0, 5.5, advised=True, first_s=1.0),
        "3 stages": a_run(5.0, 10.0, advised=False),
        "4 stages": a_run(8.5, 8.5, advised=True),  # 1.18 times as fast alone: that is hardly clear
    }
    rounds = [{case.name: others.get(case.name, alone) for case in CASES}] * 2
    told = summary(rounds, "a model", 32)
    found = {name: (case.decode, case.first, case.advice_is_right) for name, case in told.cases.items()}
    assert found["1 Mac"] == (1.0, 1.0, True)
    assert found["2 stages"] == (5.0 / 5.5, 0.5, True)
    assert found["3 stages"] == (0.5, None, False)
    assert found["4 stages"] == (1.0, None, None)
    assert told.within == {"decode": 10, "first": 8}
    assert told.ratios["advice_right"] < 1
    lines = describe(told).split("\n")
    assert lines[5].split() == ["3", "stages", "5.00", "0.50", "2.00", "-", "WRONG"]
