"""The hop bench measures every lane; no time is asserted."""

from __future__ import annotations

import json

import pytest

from core.local.hop_rounds import LaneTurn
from tests.benches.hop import MEANING, HopResult, describe, main, measure, summary


@pytest.fixture(scope="module")
def result() -> HopResult:
    return measure(rounds=2, hops=5)


@pytest.mark.slow
def test_every_figure_is_there_and_positive(result: HopResult) -> None:
    assert set(result.ratios) == {"sealed_over_raw_cpu", "memory_sealed_over_raw_cpu", "sealed_over_raw_rtt"}
    assert set(result.cpu_us_per_side) == set(result.rtt_us_p50) == set(MEANING)
    assert set(result.parts_us) == {"codec", "seal", "send", "open"}
    for figures in (result.ratios, result.cpu_us_per_side, result.rtt_us_p50, result.parts_us):
        assert all(figure > 0 for figure in figures.values())
    assert [set(r) for r in result.rounds] == [set(MEANING)] * 2
    assert result.reach["sealed_over_raw_cpu"].limit == 4.0


def test_the_text_names_every_lane_and_the_reach(result: HopResult) -> None:
    text = describe(result)
    assert all(lane in text for lane in MEANING)
    assert "target at most 4" in text
    assert "2 rounds of 5 hops" in text


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--rounds", "1", "--hops", "2"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["ratios"]["sealed_over_raw_cpu"] > 0
    assert shown["hops"] == 2


def test_rounds_are_positive() -> None:
    with pytest.raises(SystemExit):
        main(["--rounds", "0"])


def a_round(sealed: float, raw: float) -> dict[str, LaneTurn]:
    turns = {"sealed": sealed, "raw": raw, "memory_sealed": 2.0, "memory_raw": 1.0}
    return {lane: LaneTurn(cpu_us=(cpu, cpu), rtt_us=cpu) for lane, cpu in turns.items()}


def test_the_ratio_is_the_median_of_ratios_within_rounds() -> None:
    # noise that slows a whole round down leaves its ratio alone
    result = summary([a_round(20, 10), a_round(300, 100), a_round(500, 100)], 1, {})
    assert result.ratios["sealed_over_raw_cpu"] == 3
    assert result.cpu_us_per_side["sealed"] == 300
