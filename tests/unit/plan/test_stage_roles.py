"""The role of each Mac in each topology, and what it lets the Mac see."""

from __future__ import annotations

import pytest

from core.events import Topology
from core.plan.stage_roles import StageRole, arriving, departing, role_of, sights
from tests.support.linked import plan_between

NOTHING = StageRole(False, False, False)
EMBED, RUN, OUTPUT = StageRole(True, True, False), StageRole(False, True, False), StageRole(False, False, True)
END, ALL = StageRole(False, True, True), StageRole(True, True, True)

WAYS = [
    pytest.param("private", EMBED, OUTPUT, (RUN, RUN), id="private"),
    pytest.param("forward", EMBED, NOTHING, (RUN, END), id="forward"),
    pytest.param("reverse", NOTHING, END, (EMBED, RUN), id="reverse"),
]


@pytest.mark.parametrize(("topology", "before", "behind", "others"), WAYS)
def test_the_head_and_the_others_share_the_work(
    topology: Topology, before: StageRole, behind: StageRole, others: tuple[StageRole, ...]
) -> None:
    plan = plan_between(3, topology)
    assert (departing(plan), arriving(plan)) == (before, behind)
    assert tuple(role_of(plan, index) for index in (1, 2)) == others
    done = [before, *others, behind]
    assert [each.embeds for each in done].count(True) == 1
    assert [each.outputs for each in done].count(True) == 1


def test_ranks_do_all_at_once_and_the_head_has_the_output() -> None:
    plan = plan_between(3, "tensor")
    assert (departing(plan), arriving(plan)) == (ALL, NOTHING)
    assert [role_of(plan, index) for index in range(3)] == [ALL, EMBED, EMBED]


def test_one_mac_does_all_before_work_would_leave_it() -> None:
    plan = plan_between(1)
    assert (departing(plan), arriving(plan)) == (ALL, NOTHING)
    assert sights(plan, 0) == ("token ids", "logits")


SEEN = [
    pytest.param("private", [("token ids", "activations", "logits"), ("activations",), ("activations",)], id="private"),
    pytest.param(
        "forward",
        [("token ids", "activations"), ("activations",), ("token ids", "activations", "logits")],
        id="forward",
    ),
    pytest.param(
        "reverse",
        [("token ids", "activations", "logits"), ("token ids", "activations"), ("activations",)],
        id="reverse",
    ),
    pytest.param("tensor", [("token ids", "activations", "logits"), *[("token ids", "activations")] * 2], id="tensor"),
]


@pytest.mark.parametrize(("topology", "seen"), SEEN)
def test_only_a_private_ring_keeps_tokens_and_logits_on_the_head(
    topology: Topology, seen: list[tuple[str, ...]]
) -> None:
    plan = plan_between(3, topology)
    assert [sights(plan, index) for index in range(3)] == seen
