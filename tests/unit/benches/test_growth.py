"""Exponents of the bench of growth, and the rows that it writes into the figures."""

from __future__ import annotations

import pytest

from tests.benches.growth.__main__ import GrowthResult, written
from tests.benches.growth.curve import exponent
from tests.benches.results import Aim

SIZES = (10, 100, 1000)


@pytest.mark.parametrize(("costs", "power"), [((7.0, 7.0, 7.0), 0), ((1.0, 10.0, 100.0), 1), ((1.0, 100.0, 1e4), 2)])
def test_an_exponent_says_how_a_cost_grows(costs: tuple[float, ...], power: int) -> None:
    assert exponent(SIZES, costs) == pytest.approx(power)


def test_a_measured_row_replaces_the_old_one_and_the_others_stay() -> None:
    def result(cost: float, name: str) -> GrowthResult:
        curve = {"of": "things", "sizes": [1, 2, 3], "costs": [cost] * 3, "unit": "ms"}
        aim = Aim(limit=0.5, at_most=True, reached=True)
        return GrowthResult(ratios={name: 0.0}, reach={name: aim}, cores=2, system="here", curves={name: curve})

    text = written(written("# Figures\n\n## Next\n", result(1.0, "b")), result(2.0, "a"))
    again = written(text, result(3.0, "b"))
    assert [line.split("|")[4].strip() for line in again.splitlines() if "| `" in line] == ["2, 2, 2 ms", "3, 3, 3 ms"]
    assert again.count("## Growth") == 1
    assert again.startswith("# Figures")
