"""Evaluation: the request to lm-eval and the reading of its results. tests/evaluated runs lm-eval itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.bench.evaluation import lm_eval_tasks
from core.bench.evaluation.lm_eval_tasks import check_harness, figures, tiny_tasks
from core.errors import UsageError
from tui.cli.evaluation import ALONE, RING, lines

# as lm-eval 0.4 names them
RESULTS = {
    "gsm8k": {
        "alias": "gsm8k",
        "exact_match,strict-match": 0.25,
        "exact_match_stderr,strict-match": "N/A",
        "exact_match,flexible-extract": 0.5,
        "exact_match_stderr,flexible-extract": 0.1,
        "sample_len": 8,
    },
    "arc_easy": {"alias": "arc_easy", "acc,none": 1, "acc_stderr,none": 0.0, "acc_norm,none": 0.75},
}


def test_figures_are_those_of_the_metrics_without_their_errors() -> None:
    assert figures(RESULTS) == {
        "gsm8k exact_match (strict-match)": 0.25,
        "gsm8k exact_match (flexible-extract)": 0.5,
        "arc_easy acc": 1.0,
        "arc_easy acc_norm": 0.75,
    }


def test_the_task_that_comes_along_has_its_questions_with_it() -> None:
    for task in tiny_tasks():
        questions = Path(task["dataset_kwargs"]["data_files"]["test"]).read_text("utf-8").splitlines()
        assert len(questions) == 8
        for question in map(json.loads, questions):
            assert not question["question"].endswith(" ")
            assert all(ending.startswith(" ") for ending in question["endings"])


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lm_eval_tasks, "find_spec", lambda _: None)
    with pytest.raises(UsageError) as refused:
        check_harness()
    assert "pip install 'macluster[eval]'" in refused.value.fix


def test_both_sides_stand_beside_each_other() -> None:
    shown = lines({RING: {"a acc": 0.5, "a f1": 0.25}, ALONE: {"a acc": 0.5}})
    assert [line.split() for line in shown] == [
        ["over", "the", "ring", "in", "one", "process"],
        ["a", "acc", "0.5000", "0.5000"],
        ["a", "f1", "0.2500", "–"],
    ]
    assert lines({RING: {"a acc": 0.5}})[1].split() == ["a", "acc", "0.5000"]
