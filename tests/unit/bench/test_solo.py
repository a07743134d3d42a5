"""The solo bench runs both sides over a tiny model; the answers agree, and what they take is never asserted."""

from __future__ import annotations

import json

import pytest

from core.bench.solo import main


@pytest.mark.slow
def test_both_sides_answer_alike_and_every_figure_is_positive(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--runs", "2", "--tokens", "6", "--layers", "2", "--hidden", "64"]
    assert main(["--json", *sizes]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert min(shown["ratios"]["one_stage_over_solo"], shown["ratios"]["two_stages_over_solo"]) > 0
    outside = shown["outside_compute_ms"]  # less than none where one stage computes while the other one still does
    assert outside < 1e3 / shown["split_tokens_per_s"]
    assert shown["reach"]["two_stages_over_solo"]["limit"] == 0.97
    assert shown["same_tokens"] is True
    assert len(shown["runs"]) == 2
    assert min(shown["solo_tokens_per_s"], shown["split_tokens_per_s"]) > 0
    assert len(shown["stages_ms"]) == 2
    for stage in shown["stages_ms"]:
        assert set(stage) == {"compute", "codec", "seal", "send", "wait", "open"}
        assert all(spent > 0 for spent in stage.values())


def test_a_size_that_cannot_be_is_refused_by_name() -> None:
    for wrong in (["--tokens", "1"], ["--layers", "1"], ["--hidden", "100"]):
        with pytest.raises(SystemExit) as refused:
            main(wrong)
        assert refused.value.code == 2
