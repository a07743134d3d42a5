"""How Macs share a model: every branch of the decision in its order, its effect on a plan, and refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from core.errors import DoesNotFit, PlanError, UsageError
from core.events import Parallelism, ParallelismChoice, Plan, Topology
from core.models.files.sharding import Sharding
from core.plan.hop_bytes import hop_bytes
from core.plan.notes import EVERY_RANK_SEES, ON_THE_CABLE, sees
from core.plan.strategy import Circumstances, decide
from core.plan.topology import is_ring
from core.requests.plans import Forecast
from core.settings import GB
from tests.support.planning import peer, planned, profile

ABLE = Sharding(family="llama", has_variant=True, heads=8, kv_heads=4, pieces=(("groups of 64", 6),))
UNABLE = Sharding(family="gemma3", heads=8, kv_heads=4)
AWAY, FAR = Circumstances(no_group="rdma_ctl says disabled"), Circumstances(rtt_s=0.0123)
LARGE, SLOW = Circumstances(too_large="equal parts need 2.0 GB more on b"), Circumstances(slower="3 instead of 9")
ALONE = "no other Mac is linked"
NO_VARIANT = "mlx-lm can't split every layer of gemma3"
HEADS = "8 heads and 4 KV heads do not divide by 3"
TOO_FAR = "a round trip takes 12.3 ms, more than 5 ms"
GROUPS = "6 groups of 64 do not divide by 4"


@pytest.mark.parametrize(
    ("choice", "world", "model", "other", "strategy", "reason"),
    [
        *((choice, 1, ABLE, Circumstances(), "single", ALONE) for choice in ("auto", "tp", "pp", "single")),
        ("single", 2, ABLE, Circumstances(), "single", "your choice"),
        ("pp", 2, ABLE, Circumstances(), "pp", "your choice"),
        ("tp", 2, ABLE, AWAY, "single", "rdma_ctl says disabled"),
        ("tp", 2, UNABLE, Circumstances(), "single", NO_VARIANT),
        ("tp", 3, ABLE, Circumstances(), "single", HEADS),
        ("tp", 4, ABLE, Circumstances(), "single", GROUPS),
        ("tp", 2, ABLE, Circumstances(), "tp", "your choice"),
        ("tp", 2, ABLE, FAR, "tp", "your choice"),
        ("auto", 2, ABLE, AWAY, "pp", "rdma_ctl says disabled"),
        ("auto", 2, UNABLE, FAR, "pp", NO_VARIANT),
        ("auto", 3, ABLE, Circumstances(), "pp", HEADS),
        ("auto", 4, ABLE, Circumstances(), "pp", GROUPS),
        ("auto", 2, ABLE, FAR, "pp", TOO_FAR),
        ("auto", 2, ABLE, LARGE, "pp", LARGE.too_large),
        ("auto", 2, ABLE, SLOW, "pp", "3 instead of 9"),
        ("tp", 3, UNABLE, AWAY, "single", "rdma_ctl says disabled"),
        ("tp", 3, UNABLE, Circumstances(), "single", NO_VARIANT),
        (
            "auto",
            2,
            ABLE,
            FAR._replace(too_large="a", slower="b"),
            "pp",
            "a round trip takes 12.3 ms, more than 5 ms",
        ),
        ("auto", 2, ABLE, LARGE._replace(slower="b"), "pp", LARGE.too_large),
        ("auto", 2, ABLE, Circumstances(rtt_s=0.005), "tp", "chosen automatically"),
        ("auto", 2, ABLE, Circumstances(), "tp", "chosen automatically"),
    ],
)
def test_every_branch(
    choice: ParallelismChoice, world: int, model: Sharding, other: Circumstances, strategy: str, reason: str
) -> None:
    assert decide(choice, world, model, other) == (strategy, reason)


MACS = [peer("a", 24), peer("b", 24)]


def split(*macs: int, **how: Any) -> Plan:
    return planned([peer("abcdef"[i], size) for i, size in enumerate(macs)], profile(*range(1, 10)), **how)


def test_ranks_have_equal_parts_of_all_layers_and_see_the_words() -> None:
    plan = split(24, 12, topology="tensor")
    assert [(s.start, s.stop) for s in plan.stages] == [(0, 10)] * 2
    # of ten layers nine can be divided; both embed, the head has the output
    assert [s.weight_bytes * 2 // GB for s in plan.stages] == [21, 15]
    assert [s.kv_bytes for s in plan.stages] == [10 * (GB // 10) // 2] * 2
    assert (plan.topology, plan.output, plan.window, is_ring(plan)) == ("tensor", "aaa", 2, True)
    assert plan.parallelism == Parallelism(choice="tp", strategy="tp", reason="your choice", group="sealed")
    assert plan.notes == ("Every layer split: your choice; reduces over encrypted links.", EVERY_RANK_SEES)
    assert [sees(plan, mac) for mac in ("aaa", "bbb")] == ["token ids, logits", "token ids"]
    assert hop_bytes(plan, None) == (4, 4)


def test_over_rdma_the_plan_says_that_the_cable_is_plain() -> None:
    plan = split(24, 24, parallelism="tp", rdma=True)
    assert plan.parallelism is not None
    assert plan.parallelism.group == "rdma"
    assert plan.notes[0] == "Every layer split: your choice; reduces over RDMA."
    assert ON_THE_CABLE in plan.notes
    cannot = split(24, 24, parallelism="tp", rdma=True, no_group="no cable").parallelism
    assert cannot == Parallelism(choice="tp", strategy="single", reason="no cable", group="sealed")


@pytest.mark.parametrize(
    ("how", "topology", "strategy"),
    [
        ({}, "private", None),
        ({"topology": "forward"}, "forward", None),
        ({"parallelism": "pp"}, "private", "pp"),
        ({"parallelism": "pp", "topology": "reverse"}, "reverse", "pp"),
        ({"parallelism": "pp", "layers": ("0:4", "5:output")}, "forward", "pp"),
        ({"parallelism": "single"}, "single", "single"),
        ({"parallelism": "tp"}, "tensor", "tp"),
        ({"parallelism": "tp", "topology": "tensor"}, "tensor", "tp"),
        ({"parallelism": "auto"}, "tensor", "tp"),
        ({"parallelism": "auto", "rtt": lambda *_: 0.02}, "private", "pp"),
        ({"parallelism": "auto", "rdma": True, "rtt": lambda *_: 0.02}, "tensor", "tp"),
        ({"parallelism": "tp", "rtt": lambda *_: 0.02}, "tensor", "tp"),
    ],
)
def test_what_was_asked_for_makes_the_topology(how: dict[str, Any], topology: Topology, strategy: str | None) -> None:
    plan = split(24, 24, **how)
    assert plan.topology == topology
    assert (plan.parallelism and plan.parallelism.strategy) == strategy
    assert is_ring(plan)


def test_the_plan_says_why_it_is_not_shared() -> None:
    assert split(24, 24, parallelism="pp").notes == ("Split by layers: your choice.",)
    assert split(24, 24).notes == (), "nothing was decided"


def test_auto_goes_by_memory_and_by_what_is_expected() -> None:
    def expects(plan: Plan) -> Forecast:
        token_s = 0.25 if plan.topology == "tensor" else 0.1
        return Forecast(stages_s=(token_s,), hops_s=(), prompt_s=None, load_s=1.0, measured=True)

    small = split(40, 4, parallelism="auto").parallelism
    assert small is not None
    assert small.reason == "equal parts need 4.0 GB more on b"
    slow = split(24, 24, parallelism="auto", expects=expects).parallelism
    assert slow is not None
    assert slow.reason == "splitting every layer would give about 4.0 tokens/s, splitting by layers 10.0"
    with pytest.raises(DoesNotFit, match="on b"):
        split(40, 4, parallelism="tp")


@pytest.mark.parametrize(
    ("how", "said", "cure"),
    [
        ({"parallelism": "tp", "topology": "private"}, "makes the topology tensor, not private", "Leave out"),
        ({"parallelism": "pp", "topology": "tensor"}, "private or forward or reverse, not tensor", "Leave out"),
        ({"parallelism": "single", "topology": "forward"}, "makes the topology single, not forward", "Leave out"),
        ({"parallelism": "auto", "topology": "private"}, "the one that is chosen, not private", "split by layers"),
        ({"parallelism": "tp", "layers": ("0:4", "5:9")}, "parallelism tp gives no Mac layers", "split by layers"),
        (
            {"parallelism": "auto", "layers": ("0:4", "5:9")},
            "parallelism auto gives no Mac layers",
            "Leave out the layers",
        ),
        (
            {"topology": "tensor", "layers": ("0:4", "5:9")},
            "the topology tensor gives no Mac layers",
            "Leave out the layers",
        ),
        ({"rdma": True}, "RDMA is only for splitting every layer", "parallelism tp or auto"),
        ({"rdma": True, "parallelism": "pp"}, "RDMA is only for splitting every layer", "parallelism tp or auto"),
    ],
)
def test_wishes_that_exclude_each_other_are_refused_with_what_to_do(how: dict[str, Any], said: str, cure: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        split(24, 24, **how)
    assert cure in refused.value.fix


@pytest.mark.parametrize(("macs", "cure"), [(1, "Pair another Mac"), (3, "Leave out some of the Macs")])
def test_ranks_that_were_asked_for_by_name_are_refused_where_they_cannot_be(macs: int, cure: str) -> None:
    with pytest.raises(PlanError, match="cannot run in the topology tensor: ") as refused:
        split(*[40] * macs, topology="tensor")
    assert cure in refused.value.fix


def test_what_is_no_plan_of_ranks_is_no_ring() -> None:
    plan, change = split(24, 24, topology="tensor"), msgspec.structs.replace
    half = change(plan.stages[1], stop=5)
    for other in (
        change(plan, parallelism=None),
        change(plan, topology="private"),
        change(plan, stages=(plan.stages[0], half)),
        change(plan, stages=plan.stages[:1]),
        change(plan, output="bbb"),
        change(plan, layers=9),
    ):
        assert not is_ring(other)
