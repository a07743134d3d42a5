"""Requests and figures of an evaluation, and the task `tiny`. Nothing here needs lm-eval."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from core.errors import UsageError

TINY: Final = "tiny"
# lm-eval's metric names end in a filter ("acc,none"); standard errors are not compared
_ERRORS: Final = "_stderr"


class EvalApi(msgspec.Struct, frozen=True, kw_only=True):
    """An API of OpenAI's completions."""

    url: str  # ends in /v1
    model: str
    key: str
    together: int  # questions in flight at a time
    certificate: str | None = None  # path of the certificate file


class EvalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One side of an evaluation."""

    task: str  # one of lm-eval's, or `TINY`
    directory: str  # of the model; its tokenizer is used in either case
    limit: int | None = None  # most questions per task
    api: EvalApi | None = None  # None evaluates the model in this process


Figures = dict[str, float]  # keyed by "task metric"


def check_harness() -> None:
    """Raise UsageError if lm-eval is not installed."""
    if find_spec("lm_eval") is None:
        what = "`macluster eval` needs lm-eval, which is not installed."
        raise UsageError(what, "Install it with `pip install 'macluster[eval]'` (some hundred MB).")


def tiny_tasks() -> list[dict[str, Any]]:
    """The task `tiny` in lm-eval's form: choose the right one of two endings, and write one."""
    questions = str(files("core.bench.evaluation") / "tiny.jsonl")
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": questions}}, "test_split": "test"}
    return [
        {
            **common,
            "task": "tiny_choice",
            "output_type": "multiple_choice",
            "doc_to_text": "{{question}}",
            "doc_to_choice": "{{endings}}",
            "doc_to_target": 0,
            "metric_list": [{"metric": "acc"}, {"metric": "brier_score"}],
        },
        {
            **common,
            "task": "tiny_writing",
            "output_type": "generate_until",
            "doc_to_text": "{{question}}",
            "doc_to_target": "{{endings[0]}}",
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8},
            "metric_list": [{"metric": "bleu"}],
        },
    ]


def figures(results: Mapping[str, Mapping[str, object]]) -> Figures:
    """Figures of lm-eval's results without standard errors: both sides get the same questions."""
    found = {}
    for task, metrics in results.items():
        for name, value in metrics.items():
            metric, comma, filtered = name.partition(",")
            if not comma or metric.endswith(_ERRORS) or not isinstance(value, int | float):
                continue
            found[f"{task} {metric}{'' if filtered == 'none' else f' ({filtered})'}"] = float(value)
    return found
