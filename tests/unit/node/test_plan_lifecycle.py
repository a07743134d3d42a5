from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from core.events import Prefill
from core.node.ring.plan_leader import proof_text
from core.node.ring.plan_lifecycle import (
    MAX_RELINKS,
    Action,
    Broke,
    ConnectRing,
    GiveUp,
    PlanLifecycle,
    ProveRing,
    Ready,
    ShowStage,
)
from core.worker.messages import Proved
from tests.support.plans import FILES, GEN, PROBLEM, PROOF, held, mac_id, plan_of

_T = TypeVar("_T")


def of_kind(actions: list[Action], kind: type[_T]) -> list[_T]:
    return [a for a in actions if isinstance(a, kind)]


def loaded_ring(count: int) -> PlanLifecycle:
    lifecycle = PlanLifecycle(plan_of(count))
    for n in range(count):
        lifecycle.prepared(mac_id(n), 7000 + n)
        lifecycle.loaded(mac_id(n), held(n))
        lifecycle.checked(mac_id(n), FILES)
    return lifecycle


def test_a_ring_names_its_macs_and_their_mlx_lm() -> None:
    lifecycle = PlanLifecycle(plan_of(3))
    for number, release in enumerate(("0.32.0", "0.32.2")):
        lifecycle.loaded(mac_id(number), held(number, mlx_lm=release))
    assert lifecycle.computed_by == "Computed by mac0 (mlx-lm 0.32.0), mac1 (mlx-lm 0.32.2)."


def test_a_proof_says_what_the_ring_was_compared_with() -> None:
    proved = Proved(plan_gen=GEN, seconds=0.2, tokens=24, difference=0.0015)
    assert proof_text(proved) == (
        "Proved against mlx_lm with 24 tokens: the same logits as on one Mac (largest difference 0.0015)."
    )
    assert proof_text(replace(proved, difference=None, why="there was never room")) == (
        "Proved with 24 tokens in 0.2 s, but not against mlx_lm: there was never room."
    )


def ready_ring(count: int) -> PlanLifecycle:
    lifecycle = loaded_ring(count)
    for n in range(count):
        lifecycle.linked(mac_id(n), GEN)
    assert lifecycle.proved(GEN, PROOF) == [Ready(lifecycle.plan, PROOF)]
    return lifecycle


@given(st.integers(1, 4), st.data())
def test_any_order_of_reports_leads_to_exactly_one_ready(count: int, data: st.DataObject) -> None:
    lifecycle = PlanLifecycle(plan_of(count))
    calls: list[Callable[[], list[Action]]] = []
    for n in range(count):
        calls += [
            partial(lifecycle.prepared, mac_id(n), 7000 + n),
            partial(lifecycle.loading, mac_id(n), 5, 1000),
            partial(lifecycle.loaded, mac_id(n), held(n)),
            partial(lifecycle.checked, mac_id(n), FILES),
        ]
    before = [a for call in data.draw(st.permutations(calls)) for a in call()]
    connects = of_kind(before, ConnectRing)
    after: list[Action] = []
    if count > 1:
        assert [c.ports for c in connects] == [tuple(7000 + n for n in range(count))]
        gens = [GEN] * count + data.draw(st.lists(st.sampled_from([GEN - 1, GEN + 1, 0]), max_size=3))
        order = data.draw(st.permutations([(n % count, gen) for n, gen in enumerate(gens)]))
        after = [a for n, gen in order for a in lifecycle.linked(mac_id(n), gen)]
    else:
        assert not connects, "a plan on one Mac has no links"
    assert of_kind(before + after, ProveRing) == [ProveRing(lifecycle.plan)]
    assert not of_kind(before + after, Ready), "nobody may ask before the ring has computed"
    assert lifecycle.proved(GEN - 1, PROOF) == []
    assert lifecycle.proved(GEN, PROOF) == [Ready(lifecycle.plan, PROOF)]
    assert lifecycle.proved(GEN, PROOF) == []
    if count > 1:
        last = {a.state.device_id: a.state for a in before + after if isinstance(a, ShowStage)}
        assert {s.status for s in last.values()} == {"ready"}
        assert [last[mac_id(n)].weight_bytes for n in range(count)] == [1000 + n for n in range(count)]


def test_a_broken_link_is_made_anew_three_times_in_a_row_and_then_given_up() -> None:
    lifecycle = ready_ring(3)
    for turn in range(1, MAX_RELINKS + 1):
        shown, broke, again = lifecycle.broken(mac_id(turn % 3), GEN + turn - 1, PROBLEM)
        assert isinstance(shown, ShowStage)
        assert broke == Broke(mac_id(turn % 3), PROBLEM)
        assert isinstance(again, ConnectRing)
        assert again.plan.plan_gen == GEN + turn
        assert lifecycle.broken(mac_id(0), GEN + turn - 1, PROBLEM) == [], "one report a generation counts"
    actions = lifecycle.broken(mac_id(2), GEN + MAX_RELINKS, PROBLEM)
    assert actions == [GiveUp(mac_id(2), PROBLEM)]
    assert lifecycle.broken(mac_id(2), GEN + MAX_RELINKS, PROBLEM) == []
    assert lifecycle.lost(mac_id(2), PROBLEM) == []


def test_an_answer_that_went_through_forgives_earlier_breaks() -> None:
    lifecycle = ready_ring(2)
    for turn in range(3 * MAX_RELINKS):
        assert of_kind(lifecycle.broken(mac_id(1), GEN + turn, PROBLEM), ConnectRing)
        actions = [a for n in range(2) for a in lifecycle.linked(mac_id(n), GEN + turn + 1)]
        assert of_kind(actions, Ready) == [Ready(lifecycle.plan, PROOF)], "layers are proved once, not after each break"
        lifecycle.served()


def test_a_ring_that_breaks_while_it_is_proved_is_linked_anew_and_proved_then() -> None:
    lifecycle = loaded_ring(2)
    for n in range(2):
        lifecycle.linked(mac_id(n), GEN)
    assert lifecycle.phase == "proving"
    assert of_kind(lifecycle.broken(mac_id(1), GEN, PROBLEM), ConnectRing)
    assert lifecycle.proved(GEN, PROOF) == [], "a proof of links that are gone"
    assert lifecycle.disproved(GEN, PROBLEM) == []
    actions = [a for n in range(2) for a in lifecycle.linked(mac_id(n), GEN + 1)]
    assert of_kind(actions, ProveRing) == [ProveRing(lifecycle.plan)]
    assert lifecycle.proved(GEN + 1, PROOF) == [Ready(lifecycle.plan, PROOF)]


def test_a_failed_proof_ends_the_plan() -> None:
    lifecycle = loaded_ring(1)
    assert lifecycle.phase == "proving"
    assert lifecycle.disproved(GEN, PROBLEM) == [GiveUp("", PROBLEM)]
    assert lifecycle.proved(GEN, PROOF) == []


@pytest.mark.parametrize("missing", ["prepared", "loaded", "checked"])
def test_links_wait_for_the_last_word_of_the_slowest_mac(missing: str) -> None:
    lifecycle = PlanLifecycle(plan_of(2))
    words: dict[str, Callable[[int], list[Action]]] = {
        "prepared": lambda n: lifecycle.prepared(mac_id(n), 7000 + n),
        "loaded": lambda n: lifecycle.loaded(mac_id(n), held(n)),
        "checked": lambda n: lifecycle.checked(mac_id(n), FILES),
    }
    said = [a for n in range(2) for word, say in words.items() if (n, word) != (1, missing) for a in say(n)]
    assert lifecycle.phase == "loading"
    assert not of_kind(said, ConnectRing)
    assert of_kind(words[missing](1), ConnectRing)


def test_a_fault_is_told_before_the_slowest_mac_has_loaded() -> None:
    lifecycle = PlanLifecycle(plan_of(3))
    lifecycle.checked(mac_id(0), FILES)
    (end,) = lifecycle.checked(mac_id(1), {**FILES, "model.safetensors": "b" * 64})
    assert isinstance(end, GiveUp)
    assert end.device_id == mac_id(1)
    assert "model.safetensors" in end.problem.what
    assert "mac1" in end.problem.what
    assert lifecycle.loaded(mac_id(2), held(2)) == []


def test_whoever_says_again_what_it_holds_changes_nothing() -> None:
    lifecycle = ready_ring(2)
    assert lifecycle.loaded(mac_id(1), held(1, start=0)) == []
    assert lifecycle.checked(mac_id(1), {}) == []
    assert lifecycle.phase == "ready"


@pytest.mark.parametrize("make", [lambda: PlanLifecycle(plan_of(2)), lambda: loaded_ring(2), lambda: ready_ring(2)])
def test_a_lost_stage_ends_the_plan_once_in_every_phase(make: Callable[[], PlanLifecycle]) -> None:
    lifecycle = make()
    assert lifecycle.lost(mac_id(7), PROBLEM) == [], "a Mac outside the plan is none of its business"
    shown, end = lifecycle.lost(mac_id(1), PROBLEM)
    assert isinstance(shown, ShowStage)
    assert shown.state.status == "lost"
    assert end == GiveUp(mac_id(1), PROBLEM)
    assert lifecycle.lost(mac_id(0), PROBLEM) == []
    assert not of_kind(lifecycle.prepared(mac_id(0), 1) + lifecycle.loaded(mac_id(0), held(0)), ConnectRing)
    assert lifecycle.linked(mac_id(0), GEN) == []


def test_a_break_before_links_were_asked_for_counts_for_nothing() -> None:
    lifecycle = PlanLifecycle(plan_of(2))
    assert lifecycle.broken(mac_id(1), GEN, PROBLEM) == []
    assert lifecycle.linked(mac_id(1), GEN) == []


def test_a_ring_that_was_proved_is_linked_anew_once_a_lost_mac_is_back() -> None:
    lifecycle = ready_ring(3)
    lifecycle.broken(mac_id(0), GEN, PROBLEM)
    lifecycle.lost(mac_id(1), PROBLEM)
    assert lifecycle.linked(mac_id(0), GEN + 1) == []
    (again,) = of_kind(lifecycle.resume(), ConnectRing)
    assert again.plan.plan_gen == GEN + 2, "frames of the old links are never taken for new ones"
    assert again.ports == tuple(7000 + n for n in range(3))
    assert lifecycle.resume() == [], "it is being linked"
    assert lifecycle.linked(mac_id(0), GEN + 1) == [], "a word about the links before"
    actions = [a for n in range(3) for a in lifecycle.linked(mac_id(n), GEN + 2)]
    assert of_kind(actions, Ready) == [Ready(lifecycle.plan, PROOF)], "layers that were kept are not proved again"
    assert not of_kind(actions, ProveRing)
    for turn in range(MAX_RELINKS):
        assert of_kind(lifecycle.broken(mac_id(1), GEN + 2 + turn, PROBLEM), ConnectRing), "breaks are counted anew"


def test_a_mac_that_let_go_of_its_layers_meanwhile_ends_the_ring_that_is_linked_anew() -> None:
    lifecycle = ready_ring(2)
    lifecycle.lost(mac_id(1), PROBLEM)
    lifecycle.resume()
    assert of_kind(lifecycle.lost(mac_id(1), PROBLEM), GiveUp) == [GiveUp(mac_id(1), PROBLEM)]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: PlanLifecycle(plan_of(2)), id="loading"),
        pytest.param(lambda: loaded_ring(2), id="linking"),
        pytest.param(lambda: ready_ring(2), id="ready"),
        pytest.param(lambda: failed(loaded_ring(2)), id="never-proved"),
    ],
)
def test_only_a_ring_that_stood_and_failed_is_resumed(make: Callable[[], PlanLifecycle]) -> None:
    lifecycle = make()
    before = lifecycle.phase
    assert lifecycle.resume() == []
    assert lifecycle.phase == before


def failed(lifecycle: PlanLifecycle) -> PlanLifecycle:
    lifecycle.lost(mac_id(1), PROBLEM)
    return lifecycle


def test_a_mac_beside_the_ring_ends_the_plan_only_where_it_must_see_no_prompt() -> None:
    ring = PlanLifecycle(replace(plan_of(2), prefill=Prefill(stage=plan_of(3).stages[2], least=1, share=0.5)))
    assert ring.lost(mac_id(2), PROBLEM) == []
    assert ring.distrusted(mac_id(3), PROBLEM) == []
    assert ring.distrusted(mac_id(2), PROBLEM) == [GiveUp("", PROBLEM)]
    assert ring.distrusted(mac_id(2), PROBLEM) == []
