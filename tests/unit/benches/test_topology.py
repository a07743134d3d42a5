"""Summary and text of the bench of topologies; tests/processes/test_benches.py runs it."""

from __future__ import annotations

import pytest

from core.events import Sight
from tests.benches.made_models import ModelSize
from tests.benches.topology import WAYS, WIRES, TopologyPlayed, TopologyRun, TopologySeen, describe, summary

SIZES = ModelSize(2, 64, "bfloat16")
HEAD: tuple[Sight, ...] = ("activations", "logits", "token ids")
OTHER: tuple[Sight, ...] = ("activations",)
SEEN: dict[str, TopologySeen] = {way: TopologySeen([HEAD, OTHER], [HEAD, OTHER]) for way in WAYS}


def a_run(differs: bool = False, **tokens_per_s: float) -> dict[str, TopologyPlayed]:
    return {
        way: TopologyPlayed(
            TopologyRun(tokens_per_s=tokens_per_s.get(way, 1.0), first_s=0.5, wire_bytes=3072.0),
            (1, 2 + (differs and way == "reverse")),
        )
        for way in WAYS
    }


def test_ratios_are_medians_of_ratios_within_a_run() -> None:
    runs = [a_run(private=p, forward=f, reverse=r) for p, f, r in ((1, 3, 2), (10, 20, 10), (100, 400, 100))]
    result = summary(runs, SEEN, 24, 256, SIZES)
    assert [result.ratios[f"{name}_over_private"] for name in ("forward", "reverse")] == [3, 1]
    assert result.ways["private"].tokens_per_s == 10
    assert not result.reach


@pytest.mark.parametrize(("differs", "word"), [(False, "are the same"), (True, "DIFFER")])
def test_answers_that_differ_are_told(differs: bool, word: str) -> None:
    result = summary([a_run(), a_run(differs)], SEEN, 24, 256, SIZES)
    assert result.same_tokens is not differs
    assert word in describe(result)


def test_a_mac_that_saw_what_its_plan_does_not_say_is_told() -> None:
    seen: dict[str, TopologySeen] = {"forward": TopologySeen([HEAD, HEAD], [HEAD, OTHER])}
    result = summary([a_run()], SEEN | seen, 24, 256, SIZES)
    assert not result.as_planned
    assert "OTHER than its plan says" in describe(result)


def test_the_text_has_every_way_and_every_mac() -> None:
    text = describe(summary([a_run()], SEEN, 24, 256, SIZES))
    assert all(text.count(f"  {way}  ") == 2 for way in WAYS)
    assert text.count("the head") == text.count("another Mac") == len(WAYS)
    assert all(f"{way}: 100 % of the tokens are the same" in text for way in WIRES)
    assert str(SIZES) in text
    assert "24 tokens of one row" in text
    assert "256 tokens" in text
