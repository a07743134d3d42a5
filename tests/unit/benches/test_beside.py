"""Summary and text of the bench of a prefill Mac; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from tests.benches.beside import BesideRun, describe, summary
from tests.benches.made_models import ModelSize


@pytest.mark.parametrize(
    ("beside_s", "same", "said"),
    [
        pytest.param(1.0, True, "reached", id="twice as soon"),
        pytest.param(2.0, True, "NOT reached", id="no sooner"),
        pytest.param(1.0, False, "OTHERWISE", id="another answer"),
    ],
)
def test_the_ratio_is_the_median_of_all_runs(beside_s: float, same: bool, said: str) -> None:
    runs = [
        BesideRun(ring_s=2.0, beside_s=seconds, same_tokens=same or seconds == 9.0)
        for seconds in (0.1, beside_s, beside_s, 9.0)
    ]
    result = summary(runs, 512, 4, ModelSize(2, 64, "bfloat16"))
    assert result.ratios == {"ring_over_beside": 2.0 / beside_s}
    assert result.same_tokens is same
    assert said in describe(result)
