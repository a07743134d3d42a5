"""Cuts by measured speed: never slower than others that fit, used on request or when worth it, with figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import UsageError
from core.events import BalanceChoice
from core.plan.balance_by_speed import StageOwners, balanced, fastest_cuts, is_clearly_slower
from core.plan.strategy import check_asked
from tests.support.planning import peer, planned, profile

CUTS = range(1, 10)


def paces(*layer_s: float | None) -> dict[str, float | None]:
    """Seconds a layer of the Macs a, b, c … by device id."""
    return {name * 3: pace for name, pace in zip("abcd", layer_s, strict=False)}


def owners(known: dict[str, float | None], output: int = 0, layers: int = 10) -> StageOwners:
    macs = [peer(device_id[0], 64) for device_id in known]
    return StageOwners(macs, output, layers, lambda mac, part, _: (pace := known[mac]) and len(part) * pace)


@pytest.mark.parametrize(
    ("choice", "layer_s", "cuts", "reason"),
    [
        ("memory", (1, 1), (7,), ""),
        (
            "speed",
            (0.001, 0.001),
            (5,),
            "speed: the slowest Mac takes 5 ms per token instead of 7 ms by memory",
        ),
        (
            "auto",
            (0.001, 0.004),
            (8,),
            "speed: the slowest Mac takes 8 ms per token instead of 12 ms by memory",
        ),
        ("speed", (0.001, 0.002), (7,), "memory: the slowest Mac takes 7 ms per token; by speed it would be no faster"),
        ("auto", (0.001, 0.0013), (7,), "memory: by speed the slowest Mac would take 6 ms per token instead of 7 ms"),
        ("speed", (0.001, None), (7,), "memory: the speed of b isn't measured yet. The next answer measures it"),
        ("auto", (None, None), (7,), "memory: the speed of a and b isn't measured yet. The next answer measures it"),
    ],
)
def test_by_what_a_model_is_divided_and_why(
    choice: BalanceChoice, layer_s: Sequence[float | None], cuts: tuple[int, ...], reason: str
) -> None:
    found = balanced(choice, (7,), CUTS, owners(paces(*layer_s)), lambda *_: 0)
    assert found == (cuts, f"Divided by {reason}." if reason else "")


@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=4),
    st.lists(st.integers(1, 8), min_size=4, max_size=4),
    st.sets(st.integers(1, 9), min_size=1),
)
def test_no_cuts_that_fit_are_faster(layer_s: list[float], room: list[int], places: set[int]) -> None:
    made, legal = owners(paces(*layer_s)), sorted(places)

    def overflow(owner: int, start: int, stop: int) -> int:
        return max(0, stop - start - room[owner])

    def fits(cuts: Sequence[int]) -> bool:
        edges = (0, *cuts, 10)
        return not any(overflow(i, edges[i], edges[i + 1]) for i in range(len(layer_s)))

    wanted = [(i + 1) * 10 // len(layer_s) for i in range(len(layer_s) - 1)]
    found = fastest_cuts(legal, wanted, made, overflow)
    possible = [cuts for cuts in combinations(legal, len(layer_s) - 1) if fits(cuts)]
    if found is None:
        assert not possible
    else:
        assert found in possible
        assert made.slowest_s(found) == min(map(made.slowest_s, possible))


def test_a_plan_by_speed_says_so_first_and_keeps_to_memory() -> None:
    macs, found = [peer("a", 64), peer("b", 8)], profile(*CUTS)
    known = owners(paces(0.002, 0.001))
    by_speed = planned(macs, found, balance="speed", stage_s=known.stage_s)
    assert [(s.start, s.stop) for s in by_speed.stages] == [(0, 3), (3, 10)], "b has room for seven layers"
    assert by_speed.notes[0].startswith("Divided by speed: the slowest Mac takes 7 ms per token")
    by_memory = planned(macs, found)
    assert is_clearly_slower(by_memory, by_speed, known.stage_s)
    assert not is_clearly_slower(by_speed, by_memory, known.stage_s)
    assert not is_clearly_slower(by_memory, by_speed, lambda *_: None)
    other = msgspec.structs.replace(by_speed, stages=by_speed.stages[:1])
    assert not is_clearly_slower(by_memory, other, known.stage_s), "of other Macs"


def test_layers_that_are_given_out_are_not_balanced() -> None:
    with pytest.raises(UsageError, match="balance speed has nothing to divide"):
        check_asked({"context": 9, "layers": ("0:3", "4:output"), "balance": "speed"})
