"""No number, from any source, crashes a screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tui.state import bars, format, plan_words

ANY: Any = st.one_of(st.floats(), st.integers(), st.integers(-(10**400), 10**400))
FORMS: dict[str, Callable[[Any, Any], str]] = {
    "gigabytes": lambda a, _: format.gigabytes(a),
    "gigabytes_short": lambda a, _: format.gigabytes_short(a),
    "duration": lambda a, _: format.duration(a),
    "age": lambda a, _: format.age(a),
    "count": lambda a, _: format.count(a),
    "context_length": lambda a, _: plan_words.context_length(a),
    "layer_range": plan_words.layer_range,
    "clock": lambda a, _: format.clock(a, seconds=True),
    "moment": lambda a, _: format.moment(a),
    "plural": lambda a, _: format.plural(a, "Mac"),
    "gauge": lambda a, b: bars.gauge(a, b, 8),
    "shares": lambda a, b: str(bars.shares([a, b, 1], 8)),
    "scale_top": lambda a, b: str(bars.scale_top(a) + bars.scale_top(b)),
    "columns": lambda a, b: str(bars.columns([(a, b), (b, a)], b, 60.0, 8)),
    "spark": lambda a, b: bars.spark([a, None, b], a),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@given(a=ANY, b=ANY)
@example(a=float("nan"), b=float("inf"))
@example(a=1.7e308, b=5e-324)
@example(a=10**400, b=-(10**400))
@example(a=10**5000, b=1)
@pytest.mark.promise("P8")
def test_any_number_can_be_shown(form: Callable[[Any, Any], str], a: Any, b: Any) -> None:
    assert len(form(a, b)) < 256


@given(st.lists(st.one_of(st.integers(0, 2**53), ANY), min_size=1, max_size=6))
def test_shares_fill_their_cells_whatever_the_weights(weights: list[Any]) -> None:
    assert sum(bars.shares(weights, 24)) in (0, 24)


@given(ANY, ANY)
def test_a_gauge_has_its_width(part: Any, whole: Any) -> None:
    assert len(bars.gauge(part, whole, 12)) == 12
