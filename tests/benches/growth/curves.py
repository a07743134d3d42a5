"""All curves of the bench."""

from __future__ import annotations

from typing import Final

from tests.benches.growth import kept_answers, reopening
from tests.benches.growth.curve import Curve

CURVES: Final = {
    "kept_answers": Curve(
        "finished answers kept: the question for unfinished ones", "ms", (10, 100, 1000), kept_answers.measure, 0.5
    ),
    "reopening": Curve(
        "messages of a conversation: shown again", "ms", (1000, 10_000, 100_000), reopening.measure, 1.2
    ),
}
