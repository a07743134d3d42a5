"""The solo bench runs both sides over a tiny model; the answers agree, and no time is asserted."""

from __future__ import annotations

import json

import pytest

from tests.benches.made_models import ModelSize
from tests.benches.solo import SoloRun, main, summary


@pytest.mark.nightly
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


@pytest.mark.parametrize(("tokens_per_s", "counts"), [(10.0, True), (100.0, False)])
def test_the_reach_of_solo_counts_only_where_a_token_takes_long(tokens_per_s: float, counts: bool) -> None:
    run = SoloRun(
        solo_tokens_per_s=tokens_per_s,
        one_tokens_per_s=tokens_per_s,
        split_tokens_per_s=tokens_per_s,
        solo_token_ms=1e3 / tokens_per_s,
        split_token_ms=1e3 / tokens_per_s,
        same_tokens=True,
        stages_ms=[],
        outside_compute_ms=0.3,
    )
    verdict = summary([run], 48, ModelSize(12, 1024, "float32")).reach["two_stages_over_solo"]
    assert (verdict.reached, verdict.counts) == (True, counts)
