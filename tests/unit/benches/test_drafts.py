"""Summary and text of the bench of drafts; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from tests.benches.drafts import MEANING, DraftRun, describe_drafts, summary_of_drafts
from tests.benches.made_models import FIRST_TOKEN, STRIDE, VOCABULARY, ModelSize

SIZES = ModelSize(6, 64, "float16")


def a_turn(drafted: float, plain: float, *, same: bool = True) -> DraftRun:
    return DraftRun(drafted_tokens_per_s=drafted, plain_tokens_per_s=plain, drafted=20, accepted=14, same_tokens=same)


def test_ratios_are_medians_of_ratios_within_a_run() -> None:
    turns = {"drafted": [a_turn(16, 10), a_turn(24, 8), a_turn(20, 10)], "wandering": [a_turn(9, 10)] * 3}
    result = summary_of_drafts(turns, 64, SIZES)
    assert result.ratios == {"drafted_over_plain": 2, "wandering_drafted_over_plain": 0.9}
    assert [verdict.reached for verdict in result.reach.values()] == [True, False]
    assert all(verdict.counts for verdict in result.reach.values())


@pytest.mark.parametrize(("same", "word"), [(True, "are the same"), (False, "DIFFER")])
def test_the_text_has_both_drafts_and_whether_answers_agree(same: bool, word: str) -> None:
    turn = a_turn(18, 10, same=same)
    text = describe_drafts(summary_of_drafts({"drafted": [turn], "wandering": [turn]}, 64, SIZES))
    assert word in text
    assert all(meaning in text for meaning in MEANING.values())
    assert "1.80, target at least 1.6: reached" in text
    assert "20 guesses, 14 of them right" in text


def test_the_text_never_comes_back_within_an_answer() -> None:
    said = VOCABULARY - FIRST_TOKEN
    assert len({at * STRIDE % said for at in range(said)}) == said
