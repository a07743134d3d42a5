"""Summary and text of the bench of reuse; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from core.engine.prefix_cache import common_prefix
from tests.benches.made_models import ModelSize
from tests.benches.prompts import a_prompt
from tests.benches.reuse import MEANING, MODELS, TURNS, ReusePlayed, ReuseRun, a_turn, describe, summary

SIZES = ModelSize(2, 64, "bfloat16")
PROMPT = a_prompt(40, 3)
SAID = (7, 8, 9)


def a_run(prefilled: int, first_s: float, same: bool = True) -> dict[str, ReusePlayed]:
    turn = ReuseRun(prompt=128, new=32, prefilled=prefilled, first_s=first_s, fresh_first_s=2.0)
    return {kind: ReusePlayed(dict.fromkeys(TURNS, turn), same) for kind in MODELS}


@pytest.mark.parametrize(
    ("name", "length", "kept", "new"),
    [
        pytest.param("first", 40, 40, 40, id="first"),
        pytest.param("next", 40 + 3 + 12, 43, 12, id="next"),
        pytest.param("answer_edited", 40 + 3 + 12, 40, 3 + 12, id="answer edited"),
        pytest.param("prompt_edited", 40, 20, 20, id="prompt edited"),
    ],
)
def test_a_turn_keeps_what_was_said_up_to_what_is_new(name: str, length: int, kept: int, new: int) -> None:
    tokens, count = a_turn(name, PROMPT, SAID, 12)
    assert (len(tokens), count) == (length, new)
    assert common_prefix(tokens, PROMPT + SAID) == kept


def test_prompts_of_different_numbers_begin_differently() -> None:
    assert len({a_prompt(4, number)[0] for number in range(1000)}) == 1000


def test_ratios_are_of_the_second_turn_and_medians_over_runs() -> None:
    result = summary([a_run(33, 0.5), a_run(32, 1.0), a_run(128, 2.0)], SIZES)
    assert result.ratios["prefilled_over_new_tokens"] == result.ratios["whole_prefilled_over_new_tokens"] == 33 / 32
    assert result.ratios["second_turn_over_fresh"] == 0.5
    assert all(verdict.reached for verdict in result.reach.values())
    assert not any(verdict.reached for verdict in summary([a_run(128, 1.0)], SIZES).reach.values())


@pytest.mark.parametrize(("same", "word"), [(True, "answer the same"), (False, "OTHERWISE")])
def test_the_text_has_every_turn_and_whether_answers_agree(same: bool, word: str) -> None:
    text = describe(summary([a_run(33, 0.5), a_run(33, 0.5, same)], SIZES))
    assert word in text
    assert all(text.count(meaning) == 2 for meaning in MEANING.values())
    assert all(text.count(f"    {meaning}  ") == len(MODELS) for meaning in TURNS.values())
    assert text.count("target at most 1.05: reached") == len(MODELS)
    assert str(SIZES) in text
