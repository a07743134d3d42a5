"""Summary and text of the bench of lanes; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from core.worker.messages import TraceSpan
from tests.benches.batch import SHOWN, WAYS, BatchPlayed, BatchRun, describe, speed, summary
from tests.benches.made_models import ModelSize
from tests.benches.stage_timeline import Activity

SIZES = ModelSize(2, 64, "bfloat16")


def a_run(step_ms: float = 50.0, differs: bool = False, **tokens_per_s: float) -> dict[str, BatchPlayed]:
    spans = [TraceSpan(number, 1, "step", number * 0.1, number * 0.1 + 0.05) for number in range(6)]
    played = {}
    for name in WAYS:
        turn = BatchRun(tokens_per_s=tokens_per_s.get(name, 1.0), step_ms=step_ms, activity=Activity(1, [0.5, 0.5], 0))
        answers = [(1, 2 + differs * (name == "rows_8"))]
        played[name] = BatchPlayed(turn, answers, [spans, spans])
    return played


@pytest.mark.parametrize(
    ("rows", "tokens_per_s"),
    [
        pytest.param([[1.0, 1.5, 2.0]], 2.0, id="one"),
        pytest.param([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], 2.0, id="two together"),
        pytest.param([[1.0, 2.0, 3.0], [1.5, 2.5, 3.5]], 2.0, id="two in turns"),
        pytest.param([[0.0, 0.1, 0.2, 2.0], [1.0, 2.0, 3.0]], 1.5, id="what came before all had one does not count"),
    ],
)
def test_speed_counts_from_where_every_row_has_a_token(rows: list[list[float]], tokens_per_s: float) -> None:
    assert speed(rows) == pytest.approx(tokens_per_s)


def test_ratios_are_medians_of_ratios_within_a_run() -> None:
    runs = [a_run(rows_1=1, rows_8=3, rows_8_one_lane=2), a_run(rows_1=10, rows_8=20, rows_8_one_lane=10)]
    result = summary([*runs, a_run(rows_1=100, rows_8=400, rows_8_one_lane=200)], 5, SIZES)
    assert result.ratios == {"eight_rows_over_one": 3, "lanes_over_one_lane": 2}
    assert all(verdict.reached and verdict.counts for verdict in result.reach.values())
    assert result.ways["rows_8"].tokens_per_s == 20


def test_it_does_not_count_where_a_token_takes_no_time() -> None:
    assert not any(verdict.counts for verdict in summary([a_run(step_ms=19)], 5, SIZES).reach.values())


@pytest.mark.parametrize(("differs", "word"), [(False, "the same"), (True, "OTHERWISE")])
def test_the_text_has_every_way_its_bars_and_whether_answers_agree(differs: bool, word: str) -> None:
    result = summary([a_run(differs=differs)], 5, SIZES)
    text = describe(result)
    assert word in text
    assert all(text.count(WAYS[name].meaning) == 1 + (name in SHOWN) for name in WAYS if name != "rows_1")
    assert text.count("stage 2") == len(SHOWN)
    assert str(SIZES) in text
    assert "5 tokens a row" in text
    assert "target at least 2.5" in text
    assert "target at least 1.5" in text
