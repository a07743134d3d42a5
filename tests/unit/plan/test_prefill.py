"""The prefill Mac for a ring, the prompts it reads, and the text about it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from core.demo import DEMO_MODEL
from core.errors import DoesNotFit, MaclusterError, PlanError, UnsupportedModel
from core.events import Peer, Plan, Prefill, Stage
from core.models.files.cache_size import CacheSize
from core.models.files.model_folder import read_folder
from core.models.slicing.split_profile import SplitProfile
from core.plan.cost_curve import Curve, Point, curve_name
from core.plan.forecast import Estimate, MacSpeeds
from core.plan.notes import sees
from core.plan.prefill import (
    LEAST,
    TAKEN,
    ReadTimes,
    beside_s,
    is_worth,
    prefill_plan,
    quickest_reader,
    reader_of,
    with_prefill,
)
from core.plan.stage_roles import StageRole, arriving, departing, role_of, sights
from core.plan.stage_sizes import StageSizes
from core.plan.topology import is_ring
from core.settings import GB

NOTHING = StageRole(embeds=False, runs=False, outputs=False)


def a_stage(name: str, start: int, stop: int) -> Stage:
    return Stage(device_id=name, peer=name, start=start, stop=stop, weight_bytes=GB, kv_bytes=1000, budget_bytes=8 * GB)


def a_plan(macs: int = 2) -> Plan:
    names = ("studio", "mbp", "mini")[:macs]
    return Plan(
        plan_gen=5,
        model="tiny",
        fingerprint="f",
        topology="private" if macs > 1 else "single",
        layers=4 * macs,
        context=1000,
        chunk=500,
        stages=tuple(a_stage(name, 4 * at, 4 * at + 4) for at, name in enumerate(names)),
        output="studio",
    )


def a_peer(budget_gb: float = 8.0) -> Peer:
    return Peer(
        device_id="ultra",
        name="ultra",
        chip="",
        memory_bytes=64 * GB,
        budget_bytes=int(budget_gb * GB),
        state="connected",
        trust="paired",
    )


@pytest.mark.parametrize("macs", [1, 2, 3])
def test_head_and_reader_share_a_plan_in_which_the_head_does_nothing(macs: int) -> None:
    reader = a_stage("ultra", 0, 4 * macs)
    plan = prefill_plan(replace(a_plan(macs), prefill=Prefill(stage=reader, least=1, share=0.5)), 7)
    assert is_ring(plan)
    assert (plan.plan_gen, [stage.device_id for stage in plan.stages]) == (7, ["studio", "ultra"])
    assert departing(plan) == NOTHING
    assert arriving(plan)._replace(outputs=False) == NOTHING
    assert role_of(plan, 1) == StageRole(embeds=True, runs=True, outputs=False)
    assert sights(plan, 1) == ("token ids", "activations")


def test_nobody_else_may_have_no_layers() -> None:
    plan = a_plan(3)
    head, other, last = plan.stages
    assert not is_ring(replace(plan, stages=(head, replace(other, stop=4), replace(last, start=4))))
    assert not is_ring(replace(plan, stages=(replace(head, start=0, stop=0), replace(other, start=0), last)))


@pytest.mark.parametrize(
    ("tokens", "unread", "share", "worth"),
    [
        pytest.param(1000, 1000, 0.5, True, id="all of it is new"),
        pytest.param(256, 256, 0.5, True, id="just long enough"),
        pytest.param(255, 255, 0.5, False, id="too short"),
        pytest.param(2000, 900, 0.5, False, id="the ring is through with the rest sooner"),
        pytest.param(2000, 1000, 0.5, True, id="as soon"),
        pytest.param(1000, 1000, 1.0, True, id="no quicker, and all is new"),
        pytest.param(1000, 999, 1.0, False, id="no quicker, and a part is there"),
    ],
)
def test_a_prompt_is_read_beside_where_that_is_sooner(tokens: int, unread: int, share: float, worth: bool) -> None:
    prefill = Prefill(stage=a_stage("ultra", 0, 8), least=LEAST, share=share)
    assert is_worth(prefill, tokens, unread) is worth


@pytest.mark.parametrize(
    ("ring", "beside", "share", "said"),
    [
        pytest.param((6.0, True), (2.0, True), 1 / 3, "2.0 s for 1,000 tokens instead of 6.0 s (measured)", id="quick"),
        pytest.param((6.0, False), (3.0, False), 0.5, "instead of 6.0 s (estimated)", id="a quicker chip"),
        pytest.param(None, (2.0, True), TAKEN, "not measured yet", id="the ring is not known"),
        pytest.param((6.0, False), (2.0, True), TAKEN, "not measured yet", id="a guess beside a measurement"),
        pytest.param((2.0, True), (1.9, True), None, "ultra would not be faster", id="not clearly quicker"),
        pytest.param((2.0, True), (9.0, True), None, "9.0 s for 1,000 tokens instead of 2.0 s", id="slower"),
    ],
)
def test_who_was_asked_for_reads_unless_it_is_known_not_to_be_quicker(
    ring: tuple[float, bool] | None, beside: tuple[float, bool] | None, share: float | None, said: str
) -> None:
    readers = ReadTimes(ring and Estimate(*ring), beside and Estimate(*beside))
    plan = with_prefill(a_plan(), a_stage("ultra", 0, 8), readers)
    assert (plan.prefill.share if plan.prefill else None) == share
    assert said in plan.notes[-1]
    assert ("sees their token ids" in plan.notes[-1]) == (share is not None)
    assert sees(plan, "ultra") == ("token ids of the prompts that it reads" if share else "")
    assert [part.device_id for part in plan.parts] == ["studio", "mbp", *(["ultra"] if share else [])]


@pytest.mark.parametrize(
    ("beside", "without_s", "measured", "chosen"),
    [
        pytest.param(2.0, 0.1, True, "ultra", id="it pays"),
        pytest.param(2.0, 0.1, False, "", id="nobody has measured"),
        pytest.param(3.9, 0.1, True, "", id="sooner, but not clearly"),
        pytest.param(2.0, 0.2, True, "", id="each token would take twice as long"),
        pytest.param(2.0, None, True, "", id="what a token takes is not known"),
    ],
)
def test_auto_takes_who_is_clearly_quicker_and_costs_no_token_much(
    beside: float, without_s: float | None, measured: bool, chosen: str
) -> None:
    found = ("ultra", ReadTimes(Estimate(6.0, measured), Estimate(beside, measured)), without_s)
    slower = ("mini", ReadTimes(Estimate(6.0, measured), Estimate(3.0, measured)), 0.1)
    assert quickest_reader([found], Estimate(4.0, measured), 0.1) == chosen
    assert quickest_reader([slower, found], Estimate(4.0, measured), 0.1) == (chosen or ("mini" if measured else ""))
    assert quickest_reader([], Estimate(4.0, measured), 0.1) == ""


def test_what_it_takes_is_the_slowest_of_computing_and_handing_on() -> None:
    plan, stage = a_plan(), a_stage("ultra", 0, 8)
    # 500 tokens keep 1000 bytes of two stages: 1 s; mbp's half of it is sent on in 0.1 s
    curves: dict[str, Curve] = {
        curve_name("prompt", "ultra"): (Point(5000.0, 3.0),),
        curve_name("hop", "ultra", "studio"): (Point(1000.0, 1.0),),
        curve_name("hop", "studio", "mbp"): (Point(500.0, 0.1),),
    }
    speeds = MacSpeeds({}, lambda *_: None, curves)
    found = beside_s(plan, stage, 10, speeds)
    assert found
    assert found.measured
    assert found.seconds == pytest.approx(3 + 1 + 0.1 + 3)
    assert beside_s(plan, stage, 10, MacSpeeds({}, lambda *_: None, {})) is None


def test_who_cannot_read_for_a_plan_is_refused_by_name() -> None:
    plan = replace(a_plan(), layers=8)
    layout = read_folder(DEMO_MODEL).layout()
    sizes = StageSizes(layout, None, 1000, None)
    large = SplitProfile(layers=8, cuts=(4,), caches=(CacheSize(fixed_bytes=9 << 20),) * 8)
    assert reader_of(replace(plan, layers=layout.layers), sizes, a_peer(), None).stop == layout.layers
    ranks = replace(plan, topology="tensor")
    refused: list[tuple[type[MaclusterError], Plan, Peer, SplitProfile | None]] = [
        (PlanError, ranks, a_peer(), None),
        (UnsupportedModel, plan, a_peer(), large),
        (DoesNotFit, replace(plan, layers=layout.layers), a_peer(0.0001), None),
    ]
    for kind, asked, peer, profile in refused:
        with pytest.raises(kind, match=r"Mac|tiny"):
            reader_of(asked, sizes, peer, profile)
