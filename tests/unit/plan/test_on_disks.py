"""Layers are assigned by the files on the Macs' disks, and a plan knows the Macs whose disks it needs."""

from __future__ import annotations

import msgspec
import pytest

from core.plan.assign_layers import spans_on_disks
from tests.support.planning import REVERSE, part, peer, planned, profile

GB = 1_000_000_000
EVERYWHERE = range(1, 12)
# head 0–3, b 4–7, c 8–11
THREE = msgspec.structs.replace(
    REVERSE, topology="private", layers=12, stages=(part("head", 0, 4), part("b", 4, 8), part("c", 8, 12))
)


def test_a_plan_cannot_lose_a_mac_whose_layers_are_on_no_other_disk() -> None:
    macs = [peer("a", 12), peer("b", 8), peer("c", 8)]
    every = profile(*range(1, 10))
    without = planned(macs, every, can_lose=lambda *_: False)
    assert (without.indispensable, without.nowhere_else) == (("bbb", "ccc"), ("bbb", "ccc"))
    copied = planned(macs, every, can_lose=lambda _, lost: lost == "ccc")
    assert (copied.indispensable, copied.nowhere_else) == (("bbb",), ("bbb",))
    short = planned([peer("a", 10), peer("b", 6), peer("c", 6)], every, can_lose=lambda *_: False)
    assert (short.indispensable, short.nowhere_else) == (("bbb", "ccc"), ()), "memory is named first"


@pytest.mark.parametrize(
    ("here", "spans"),
    [
        pytest.param(((0, 12), (0, 12), (0, 12)), ("0:3", "4:7", "8:11"), id="all-have-all"),
        pytest.param(((0, 6), (5, 9), (9, 12)), ("0:4", "5:8", "9:11"), id="boundaries-move"),
        pytest.param(((0, 4), (4, 9), (7, 12)), ("0:3", "4:7", "8:11"), id="as-planned"),
        pytest.param(((0, 4), (4, 6), (7, 12)), None, id="a-hole"),
        pytest.param(((0, 3), (4, 12), (8, 12)), None, id="a-gap-between-two"),
        pytest.param(((0, 12), (0, 0), (0, 12)), None, id="one-has-none"),
    ],
)
def test_layers_are_given_out_as_they_lie_on_the_disks(
    here: tuple[tuple[int, int], ...], spans: tuple[str, ...] | None
) -> None:
    disks = dict(zip(("HEAD", "B", "C"), (frozenset(range(*each)) for each in here), strict=True))
    assert spans_on_disks(THREE, disks, EVERYWHERE, ["HEAD", "B", "C"]) == spans
    turned = spans_on_disks(THREE, disks, EVERYWHERE, ["HEAD", "left out", "C", "B"])
    assert turned == (spans and (spans[0], spans[2], spans[1])), "each gets its own, in whatever order they are named"


def test_boundaries_on_disks_are_where_the_model_may_be_cut() -> None:
    disks = {"HEAD": frozenset(range(6)), "B": frozenset(range(4, 10)), "C": frozenset(range(6, 12))}
    assert spans_on_disks(THREE, disks, (6, 9), ["HEAD", "B", "C"]) == ("0:5", "6:8", "9:11")
    assert spans_on_disks(THREE, disks, (2, 9), ["HEAD", "B", "C"]) is None


def test_where_the_output_is_elsewhere_its_span_says_so() -> None:
    everywhere = {mac: frozenset(range(20)) for mac in ("HEAD", "B", "C")}
    assert spans_on_disks(REVERSE, everywhere, range(1, 20), ["HEAD", "B", "C"]) == ("14:output", "0:8", "9:13")
