"""What an evaluation is asked for, and what comes of it. Nothing here needs lm-eval."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from core.errors import UsageError

TINY: Final = "tiny"
# lm-eval's names of what is measured end in the filter of the answers; what is behind them is no figure
_ERRORS: Final = "_stderr"


class EvalApi(msgspec.Struct, frozen=True, kw_only=True):
    """An API that speaks OpenAI's completions: its address, which ends in /v1, the model's name there, a key, how many
    questions are asked at a time, and the file of its certificate where it has one.
    """

    url: str
    model: str
    key: str
    together: int
    certificate: str | None = None


class EvalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One side of an evaluation: `task`, which is lm-eval's or `TINY`, of at most `limit` questions each; by the `api`,
    or in this process by the model in `directory`, which has the tokenizer in either case.
    """

    task: str
    directory: str
    limit: int | None = None
    api: EvalApi | None = None


Figures = dict[str, float]  # by "task metric"


def check_harness() -> None:
    """Raises UsageError where lm-eval is not installed."""
    if find_spec("lm_eval") is None:
        what = "`macluster eval` asks by lm-eval, which is not installed beside macluster."
        raise UsageError(what, "Install it with `pip install 'macluster[eval]'` (some hundred MB).")


def tiny_tasks() -> list[dict[str, Any]]:
    """The task that comes along, as lm-eval takes it: whether the right one of two endings is the more likely, and what
    the model writes itself.
    """
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
    """The figures of lm-eval's results, without how sure they are: what is compared was asked the same."""
    found = {}
    for task, metrics in results.items():
        for name, value in metrics.items():
            metric, comma, filtered = name.partition(",")
            if not comma or metric.endswith(_ERRORS) or not isinstance(value, int | float):
                continue
            found[f"{task} {metric}{'' if filtered == 'none' else f' ({filtered})'}"] = float(value)
    return found
