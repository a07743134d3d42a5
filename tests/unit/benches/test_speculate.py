"""Summary and text of the bench of speculation; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from tests.benches.made_models import CIRCLE, FIRST_TOKEN, VOCABULARY, ModelSize, circle
from tests.benches.speculate import TEXTS, WAYS, SpeculateRun, describe, summary

SIZES = ModelSize(2, 64, "bfloat16")


def a_turn(speculative: float, plain: float, *, guesses: int = 40, same: bool = True) -> SpeculateRun:
    speeds = {"speculative": speculative, "plain": plain, "solo": 8.0}
    return SpeculateRun(tokens_per_s=speeds, drafted=2 * guesses, accepted=guesses, same_tokens=same)


def a_run(repeating: SpeculateRun, wandering: SpeculateRun | None = None) -> dict[str, SpeculateRun]:
    return {"repeating": repeating, "wandering": wandering or a_turn(10, 10, guesses=0)}


def test_ratios_are_medians_of_ratios_within_a_run() -> None:
    result = summary([a_run(a_turn(20, 10)), a_run(a_turn(24, 20)), a_run(a_turn(64, 16))], 80, SIZES)
    assert result.ratios == {
        "speculative_over_plain": 2,
        "speculative_over_solo": 3,
        "wandering_speculative_over_plain": 1,
    }
    assert all(verdict.reached and verdict.counts for verdict in result.reach.values())
    assert result.texts["repeating"].tokens_per_s["speculative"] == 24


def test_a_step_has_the_tokens_that_its_guesses_spared_it() -> None:
    text = summary([a_run(a_turn(20, 10))], 80, SIZES).texts
    assert (text["repeating"].acceptance, text["repeating"].tokens_per_step) == (0.5, 2.0)
    assert (text["wandering"].acceptance, text["wandering"].tokens_per_step) == (None, 1.0)


def test_it_does_not_count_where_a_token_takes_no_time() -> None:
    assert not any(verdict.counts for verdict in summary([a_run(a_turn(90, 60))], 80, SIZES).reach.values())


@pytest.mark.parametrize(("same", "word"), [(True, "are the same"), (False, "DIFFER")])
def test_the_text_has_every_way_the_guesses_and_whether_answers_agree(same: bool, word: str) -> None:
    text = describe(summary([a_run(a_turn(20, 10, same=same))], 80, SIZES))
    assert word in text
    assert "80 guesses, 50% of them right, 2.0 tokens a step" in text
    assert "0 guesses, 1.0 tokens a step" in text
    assert all(text.count(f"    {meaning} ") == len(TEXTS) for meaning in WAYS.values())
    assert str(SIZES) in text
    assert "target at least 1.5: reached" in text


def test_circles_are_whole_and_differ() -> None:
    circles = [circle(number) for number in range(20)]
    assert all(len(set(each)) == CIRCLE for each in circles)
    assert len({token for each in circles for token in each}) == 20 * CIRCLE
    assert all(min(each) > FIRST_TOKEN - CIRCLE and max(each) < VOCABULARY for each in map(circle, range(1000)))
