"""Which layers a Mac keeps for its neighbours, and how layers are given out by what lies on disks."""

from __future__ import annotations

from itertools import accumulate, pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.plan.spare import kept_layers
from core.plan.split_by_disk import spans_on_disks
from tests.support.planning import REVERSE, FlatLayout, part, peer, planned, profile

GB = 1_000_000_000
EVERYWHERE = range(1, 12)
# head 0–3, b 4–7, c 8–11
THREE = msgspec.structs.replace(
    REVERSE, topology="private", layers=12, stages=(part("head", 0, 4), part("b", 4, 8), part("c", 8, 12))
)


@pytest.mark.parametrize(
    ("owners", "spare", "head", "kept"),
    [
        pytest.param([(0, 4), (4, 8), (8, 12)], 0, 0, [(0, 4), (4, 8), (8, 12)], id="nothing"),
        pytest.param([(0, 4), (4, 8), (8, 12)], 2, 0, [(0, 6), (4, 10), (6, 12)], id="b-keeps-none-of-the-heads"),
        pytest.param([(0, 4), (4, 8), (8, 12)], 9, 0, [(0, 8), (4, 12), (4, 12)], id="its-neighbours-only"),
        pytest.param([(0, 3), (3, 6), (6, 9), (9, 12)], 3, 0, [(0, 6), (3, 9), (5, 11), (6, 12)], id="nearest-first"),
        pytest.param([(0, 6), (6, 8), (8, 12)], 2, 2, [(0, 8), (4, 8), (6, 12)], id="reverse"),
        pytest.param([(0, 12)], 9, 0, [(0, 12)], id="alone"),
    ],
)
def test_a_mac_keeps_what_is_next_to_its_own(
    owners: list[tuple[int, int]], spare: int, head: int, kept: list[tuple[int, int]]
) -> None:
    assert kept_layers(owners, [1] * 12, spare, head) == kept


@given(
    sizes=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=5),
    spare=st.integers(0, 40),
    head=st.integers(0, 4),
)
def test_what_is_spare_fits_is_near_and_could_not_be_more(sizes: list[list[int]], spare: int, head: int) -> None:
    head %= len(sizes)
    layer_bytes = [size for stage in sizes for size in stage]
    owners = list(pairwise([0, *accumulate(len(stage) for stage in sizes)]))
    for number, ((start, stop), (first, last)) in enumerate(
        zip(owners, kept_layers(owners, layer_bytes, spare, head), strict=True)
    ):
        extra = [*range(first, start), *range(stop, last)]
        rest = spare - sum(layer_bytes[layer] for layer in extra)
        may = {
            layer
            for other in (number - 1, number + 1)
            if other in range(len(owners)) and other != head
            for layer in range(*owners[other])
        }
        assert first <= start < stop <= last
        assert rest >= 0
        assert may >= set(extra)
        beside = [layer for layer in (first - 1, last) if layer in may]
        assert all(layer_bytes[layer] > rest for layer in beside), "the next one does not fit any more"


def test_a_plan_keeps_spare_layers_by_which_a_mac_can_be_lost() -> None:
    macs = [peer("a", 12), peer("b", 8), peer("c", 8)]
    here = {"aaa": set(range(5)), "bbb": set(range(5, 8)), "ccc": set(range(8, 10))}

    def can_lose(plan: object, lost: str) -> bool:
        spare = {s.device_id: kept for s, kept in zip(plan.stages, plan.spare, strict=False)}  # type: ignore[attr-defined]
        left = [has | set(range(*spare.get(mac, (0, 0)))) for mac, has in here.items() if mac != lost]
        return set().union(*left) == set(range(FlatLayout.layers))

    every = profile(*range(1, 10))
    without = planned(macs, every, can_lose=can_lose)
    assert (without.indispensable, without.nowhere_else, without.spare) == (("bbb", "ccc"), ("bbb", "ccc"), ())
    with_some = planned(macs, every, can_lose=can_lose, spare_bytes=4 * GB)
    assert (with_some.indispensable, with_some.nowhere_else) == ((), ())
    assert [kept for kept in with_some.spare if kept[1] - kept[0] > 5] != []
    short = planned([peer("a", 10), peer("b", 6), peer("c", 6)], every, can_lose=can_lose)
    assert (short.indispensable, short.nowhere_else) == (("bbb", "ccc"), ()), "memory is told of first"


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
