"""The Macs that a plan can't lose, and how a model continues without the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PlanError
from core.events import Topology
from core.plan.make_plan import draft_plan, make_plan
from core.plan.plan_inputs import PlanInputs, plan_options_of
from core.plan.survival import options_after_loss
from core.requests.plans import PlanRequest
from tests.support.planning import FLAT, peer, profile

EVERYWHERE = tuple(range(1, FLAT.layers))


def wished(request: PlanRequest, gigabytes: tuple[int, ...], cuts: tuple[int, ...] | None = EVERYWHERE) -> PlanInputs:
    """`request` over Macs of these budgets: 11 GB for ten layers and their cache, 5 GB for embedding and output."""
    wish: PlanInputs = {
        "model": "m",
        "fingerprint": "f",
        "layout": FLAT,
        "peers": [peer("abcdefg"[i], size) for i, size in enumerate(gigabytes)],
        "plan_gen": 1,
        "profile": None if cuts is None else profile(*cuts),
        "context": request.context,
    }
    return {**wish, **plan_options_of(request)}


@pytest.mark.parametrize(
    ("gigabytes", "how", "indispensable"),
    [
        pytest.param((40,), {}, (), id="alone"),
        pytest.param((40, 20), {}, (), id="the-head-holds-it"),
        pytest.param((12, 10), {}, ("bbb",), id="the-head-does-not-hold-it"),
        pytest.param((14, 8, 8), {}, (), id="any-one-of-three"),
        pytest.param((14, 8, 2), {}, ("bbb",), id="only-one-of-three"),
        pytest.param((10, 6, 6), {}, ("bbb", "ccc"), id="all"),
        pytest.param((40, 20), {"topology": "forward"}, (), id="forward-becomes-single"),
        pytest.param((8, 14, 14), {"topology": "forward"}, (), id="forward-stays"),
        pytest.param((12, 10), {"topology": "reverse"}, ("bbb",), id="reverse"),
        pytest.param((40, 4, 4), {"layers": ("0:7", "8:8", "9:9")}, (), id="spans-bind-no-new-plan"),
        pytest.param((40, 20), {"topology": "single"}, (), id="single"),
        pytest.param((40, 20), {"topology": "tensor"}, (), id="tensor-becomes-single"),
        pytest.param((14, 12), {"topology": "tensor"}, ("bbb",), id="tensor-alone-does-not-fit"),
        pytest.param((14, 14, 14, 14), {"parallelism": "tp"}, ("bbb", "ccc", "ddd"), id="three-are-no-ranks-of-eight"),
        pytest.param((14, 14, 14, 14), {"parallelism": "auto"}, (), id="auto-has-layers-of-its-own"),
    ],
)
def test_a_plan_names_the_macs_that_it_cannot_lose(
    gigabytes: tuple[int, ...], how: dict[str, Any], indispensable: tuple[str, ...]
) -> None:
    assert make_plan(**wished(PlanRequest(model="m", **how), gigabytes)).indispensable == indispensable


def test_a_mac_that_was_left_out_can_take_the_place_of_a_lost_one() -> None:
    plan = make_plan(**wished(PlanRequest(model="m"), (11, 9, 8), cuts=(5,)))
    assert [s.peer for s in plan.stages] == ["a", "b"]
    assert plan.indispensable == (), "c is there too"


def test_what_does_not_fit_names_nobody() -> None:
    assert draft_plan(**wished(PlanRequest(model="m"), (3, 2, 2))).indispensable == ()


@pytest.mark.parametrize(
    ("asked", "macs", "topology"),
    [
        pytest.param(None, 2, None, id="none"),
        pytest.param("private", 3, "private", id="private"),
        pytest.param("forward", 2, "forward", id="forward"),
        pytest.param("reverse", 2, "reverse", id="reverse"),
        pytest.param("reverse", 1, "single", id="reverse-alone"),
        pytest.param(None, 1, "single", id="alone"),
        pytest.param("tensor", 2, None, id="tensor"),
        pytest.param("tensor", 1, None, id="tensor-alone"),
    ],
)
def test_it_goes_on_as_was_asked_where_that_can_be(asked: Topology | None, macs: int, topology: Topology) -> None:
    request = PlanRequest(model="m", context=99, kv_bits=8, rows=2, topology=asked, layers=("0:4", "5:9"))
    ranks = "tp" if asked == "tensor" else None
    went = {**plan_options_of(request), "layers": (), "topology": topology, "parallelism": ranks}
    assert options_after_loss(request, macs) == went


@given(
    st.lists(st.integers(1, 24), min_size=2, max_size=5),
    st.sets(st.sampled_from(EVERYWHERE)),
    st.sampled_from([None, "private", "forward", "reverse"]),
)
def test_indispensable_are_exactly_those_without_whom_no_plan_can_be_made(
    gigabytes: list[int], cuts: set[int], topology: Topology | None
) -> None:
    request = PlanRequest(model="m", topology=topology)
    wish = wished(request, tuple(gigabytes), tuple(sorted(cuts)))
    try:
        plan = make_plan(**wish)
    except PlanError:
        return
    found = []
    for stage in plan.stages[1:]:
        left = [mac for mac in wish["peers"] if mac.device_id != stage.device_id]
        without: PlanInputs = {**wish, **options_after_loss(request, len(left)), "peers": left}
        try:
            make_plan(**without)
        except PlanError:
            found.append(stage.device_id)
    assert plan.indispensable == tuple(found)
