"""Summary and text of the bench of schemas; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import re

import pytest

from core.models.text.grammar import matcher_of, tokenizer_of
from tests.benches.made_models import ModelSize
from tests.benches.schema import FIELDS, FORM_TOKENS, WAYS, SchemaRun, a_form, describe, summary

SIZES = ModelSize(2, 64, "bfloat16")


def a_run(free: float, constrained: float, plain: float, forced: float, *, same: bool = True) -> SchemaRun:
    speeds = {"free": free, "constrained": constrained, "plain": plain, "forced": forced}
    return SchemaRun(tokens_per_s=speeds, forced=90, form_tokens=100, same_tokens=same)


def test_ratios_are_medians_of_ratios_within_a_run() -> None:
    result = summary([a_run(10, 10, 5, 10), a_run(20, 19, 10, 30), a_run(40, 36, 10, 40)], 80, SIZES)
    assert result.ratios == {"constrained_over_free": 0.95, "forced_over_plain": 3}
    assert all(verdict.reached and verdict.counts for verdict in result.reach.values())
    assert result.tokens_per_s == {"free": 20, "constrained": 19, "plain": 10, "forced": 30}


def test_it_does_not_count_where_a_token_takes_no_time() -> None:
    assert not any(verdict.counts for verdict in summary([a_run(90, 90, 90, 90)], 80, SIZES).reach.values())


@pytest.mark.parametrize(("same", "word"), [(True, "are the same"), (False, "DIFFER")])
def test_the_text_has_every_way_and_whether_the_forms_agree(same: bool, word: str) -> None:
    text = describe(summary([a_run(10, 9, 5, 10, same=same)], 80, SIZES))
    assert word in text
    assert "90 of 100 tokens of a form went round at once" in text
    assert all(f"  {meaning} " in text for meaning in WAYS.values())
    assert "target at least 0.95: NOT reached" in text


def test_a_form_is_fixed_but_for_its_values_and_says_nothing_twice() -> None:
    words = [*(bytes([byte]) for byte in range(256)), b""]
    matcher = matcher_of(a_form(), tokenizer_of(words, frozenset(), (256,)))
    text = b""
    while not matcher.is_stopped():
        forced = bytes(matcher.compute_ff_tokens()) or b"q"
        assert matcher.consume_tokens(list(forced)) or matcher.is_accepting()
        text += forced
        if matcher.is_accepting():
            break
    assert len(text) < FORM_TOKENS
    assert re.findall(r'"([^"]+)": "qq"', text.decode()) == list(FIELDS)
