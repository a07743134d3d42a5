"""A plan from its choice until it is ready, and again when links break: each transition, and every order of reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core.events import Plan, Prefill
from core.node.peers.stage_state import HeldStage
from core.node.plans import texts
from core.node.plans.orders import AskFiles, End, Link, Lost, Order, Prepare, Ready, RunProof
from core.node.plans.plan_machine import LOST, MAX_RELINKS, OVER, PREPARE_S, REPEAT_S, RUNNING, STILL_S
from core.worker.messages import Proved
from tests.support.plan_machines import Macs, links, loaded_ring, loading, of_kind, ready_ring, shown_stages
from tests.support.plans import FILES, GEN, PROBLEM, PROOF, held, mac_id, plan_of
from tests.support.search import SEARCH


def test_a_ring_names_its_macs_and_their_mlx_lm() -> None:
    macs = loading(plan_of(3))
    for number, release in enumerate(("0.32.0", "0.32.2")):
        macs.loaded(number, mlx_lm=release)
    assert macs.machine.computed_by == "Computed by mac0 (mlx-lm 0.32.0), mac1 (mlx-lm 0.32.2)."


def test_a_proof_says_what_the_ring_was_compared_with() -> None:
    proved = Proved(plan_gen=GEN, seconds=0.2, tokens=24, difference=0.0015)
    assert texts.proof(proved) == (
        "Proved against mlx_lm with 24 tokens: the same logits as on one Mac (largest difference 0.0015)."
    )
    assert texts.proof(replace(proved, difference=None, why="there was never room")) == (
        "Proved with 24 tokens in 0.2 s, but not against mlx_lm: there was never room."
    )


def test_nobody_is_asked_to_hold_a_stage_before_the_files_are_there() -> None:
    macs = Macs(plan_of(2))
    assert macs.step() == []
    assert macs.brought() == [Prepare(macs.machine.plan, 0), Prepare(macs.machine.plan, 1)]
    assert macs.step() == [], "it was ordered just now"
    macs.prepared(0)
    macs.now += REPEAT_S
    assert macs.step() == [Prepare(macs.machine.plan, 1)], "mac1 did not hear it"


@given(st.integers(1, 4), st.data())
def test_any_order_of_reports_leads_to_exactly_one_ready(count: int, data: st.DataObject) -> None:
    macs = loading(plan_of(count))
    calls: list[Callable[[], list[Order]]] = []
    for n in range(count):
        calls += [
            partial(macs.prepared, n),
            partial(macs.say, n, done_bytes=5, total_bytes=1000),
            partial(macs.loaded, n),
            partial(macs.checked, n),
        ]
    before = [order for call in data.draw(st.permutations(calls)) for order in call()]
    after: list[Order] = []
    if count > 1:
        assert [(link.index, link.port) for link in links(before)] == [
            (n, 7000 + (n + 1) % count) for n in range(count)
        ]
        gens = [GEN] * count + data.draw(st.lists(st.sampled_from([GEN - 1, 0]), max_size=3))
        said = data.draw(st.permutations([(n % count, gen) for n, gen in enumerate(gens)]))
        after = [order for n, gen in said for order in macs.link(n, "linked", gen)]
        after += [order for n in range(count) for order in macs.link(n, "linked")]
    else:
        assert not links(before), "a plan on one Mac has no links"
    assert of_kind(before + after, RunProof) == [RunProof(GEN)]
    assert not of_kind(before + after, Ready), "nobody may ask before the ring has computed"
    assert macs.proved(GEN - 1) == []
    assert macs.proved() == [Ready(PROOF)]
    assert macs.proved() == []
    assert macs.machine.phase == "running"
    last = {state.device_id: state for state in shown_stages(before + after)}
    assert {state.status for state in last.values()} == {"ready"}
    assert [last[mac_id(n)].weight_bytes for n in range(count)] == [1000 + n for n in range(count)]


def test_a_broken_link_is_made_anew_three_times_in_a_row_and_then_given_up() -> None:
    macs = loaded_ring(plan_of(3))
    for turn in range(1, MAX_RELINKS + 1):
        again = links(macs.link(turn % 3, "broken", problem=PROBLEM))
        assert [(link.index, link.plan.plan_gen) for link in again] == [(n, GEN + turn) for n in range(3)]
        assert links(macs.link(0, "broken", GEN + turn - 1, PROBLEM)) == [], "one report a generation counts"
    given = macs.link(2, "broken", problem=PROBLEM)
    assert (of_kind(given, Lost), of_kind(given, End)) == ([Lost(mac_id(2), PROBLEM, True)], [End(PROBLEM, PROBLEM)])
    assert macs.link(2, "broken", problem=PROBLEM) == macs.lose(2, PROBLEM) == []


def test_links_of_a_ready_ring_that_break_too_often_are_a_loss() -> None:
    macs = ready_ring(plan_of(3))
    for turn in range(MAX_RELINKS):
        assert links(macs.link(turn, "broken", problem=PROBLEM))
        assert macs.machine.phase == "resume"
        assert of_kind(macs.link_all(), Ready)
    assert of_kind(macs.link(1, "broken", problem=PROBLEM), Lost) == [Lost(mac_id(1), PROBLEM, True)]
    assert macs.machine.phase in LOST


def test_an_answer_that_went_through_forgives_earlier_breaks() -> None:
    macs = ready_ring(plan_of(2))
    for _ in range(3 * MAX_RELINKS):
        assert links(macs.link(1, "broken", problem=PROBLEM))
        assert of_kind(macs.link_all(), Ready) == [Ready(PROOF)], "layers are proved once, not after each break"
        macs.machine.wrote("r", macs.now)


def test_a_ring_that_breaks_while_it_is_proved_is_linked_anew_and_proved_then() -> None:
    macs = loaded_ring(plan_of(2))
    macs.link_all()
    assert macs.machine.phase == "proving"
    assert links(macs.link(1, "broken", problem=PROBLEM))
    assert macs.proved(GEN) == [], "a proof of links that are gone"
    macs.machine.disproved(GEN, PROBLEM)
    assert macs.step() == []
    assert of_kind(macs.link_all(), RunProof) == [RunProof(GEN + 1)]
    assert macs.proved() == [Ready(PROOF)]


def test_a_failed_proof_ends_the_plan_and_names_the_macs() -> None:
    macs = loaded_ring(plan_of(1))
    assert macs.machine.phase == "proving"
    macs.machine.disproved(GEN, PROBLEM)
    (end,) = of_kind(macs.step(), End)
    assert end.problem.what == f"{PROBLEM.what} Computed by mac0 (mlx-lm )."
    assert macs.proved() == []


@pytest.mark.parametrize("missing", ["prepared", "loaded", "checked"])
def test_links_wait_for_the_last_word_of_the_slowest_mac(missing: str) -> None:
    macs = loading(plan_of(2))
    words: dict[str, Callable[[int], list[Order]]] = {
        "prepared": macs.prepared,
        "loaded": macs.loaded,
        "checked": macs.checked,
    }
    said = [order for n in range(2) for word, say in words.items() if (n, word) != (1, missing) for order in say(n)]
    assert macs.machine.phase == "loading"
    assert not links(said)
    assert links(words[missing](1))


def test_a_fault_is_told_before_the_slowest_mac_has_loaded() -> None:
    macs = loading(plan_of(3))
    macs.checked(0)
    assert of_kind(macs.checked(1, "b" * 64), AskFiles) == [AskFiles(macs.machine.plan, mac_id(1))]
    macs.machine.differs(mac_id(7), FILES, {})
    assert macs.step() == [], "a Mac outside the plan"
    macs.machine.differs(mac_id(1), FILES, {**FILES, "model.safetensors": "b" * 64})
    given = macs.step()
    (lost,), (end,) = of_kind(given, Lost), of_kind(given, End)
    assert lost.device_id == mac_id(1)
    assert end.problem.what == "model.safetensors of toy on mac1 is not the same file as on mac0."
    assert macs.loaded(2) == []


def test_a_mac_with_other_layers_ends_the_plan_at_once() -> None:
    macs = loading(plan_of(3))
    (end,) = of_kind(macs.loaded(1, start=1), End)
    assert end.problem.what == "mac1 loaded layers 1 to 3; the plan gives it layers 2 to 3."


def test_whoever_says_again_what_it_holds_changes_nothing() -> None:
    macs = ready_ring(plan_of(2))
    assert not macs.machine.heard(mac_id(1), macs.stages[mac_id(1)], macs.now)
    assert not macs.machine.heard(mac_id(1), replace(macs.stages[mac_id(1)], plan=macs.new_id()), macs.now)
    assert macs.step() == []
    assert macs.machine.phase == "running"


@pytest.mark.parametrize("make", [loading, loaded_ring, ready_ring])
def test_a_lost_stage_stops_the_plan_once_in_every_phase(make: Callable[[Plan], Macs]) -> None:
    macs = make(plan_of(2))
    assert macs.lose(7, PROBLEM) == [], "a Mac outside the plan is none of its business"
    given = macs.lose(1, PROBLEM)
    (shown,) = shown_stages(given)
    assert (shown.status, shown.detail) == ("lost", PROBLEM.what)
    assert len(of_kind(given, Lost)) == 1
    assert bool(of_kind(given, End)) == (make is not ready_ring), "a plan that was ready recovers"
    given = macs.lose(0, PROBLEM) + macs.prepared(0) + macs.loaded(0) + macs.link(0, "linked")
    assert not of_kind(given, Lost)
    assert not links(given)
    assert macs.machine.led is None


@pytest.mark.parametrize("number", [0, 1])
def test_a_mac_that_does_not_begin_or_stands_still_while_it_loads_is_not_waited_for(number: int) -> None:
    macs = loading(plan_of(2))
    macs.loaded(1 - number)
    macs.now = PREPARE_S + 1
    given = macs.step()
    (end,) = of_kind(given, End)
    assert end.problem.what == f"mac{number} has not begun to load after 90 s."
    macs = loading(plan_of(2))
    macs.loaded(1 - number)
    macs.prepared(number)
    for done in range(1, 4):
        macs.now += STILL_S
        assert not of_kind(macs.say(number, phase="loading", done_bytes=done), End), "it moves"
    macs.now += STILL_S + 1
    (end,) = of_kind(macs.step(), End)
    assert end.problem.what == f"mac{number} has read nothing more for 120 s."


def test_a_break_before_links_were_asked_for_counts_for_nothing() -> None:
    macs = loading(plan_of(2))
    assert not links(macs.link(1, "broken", GEN - 1, PROBLEM) + macs.link(1, "linked", GEN - 1))
    assert macs.machine.plan.plan_gen == GEN


def test_a_ring_that_was_proved_is_linked_anew_once_a_lost_mac_is_back() -> None:
    macs = ready_ring(plan_of(3))
    macs.link(0, "broken", problem=PROBLEM)
    macs.machine.gone(mac_id(1))
    macs.lose(1, PROBLEM)
    assert not of_kind(macs.link(0, "linked", GEN + 1), Ready)
    macs.machine.linked(mac_id(1), macs.now)
    again = links(macs.step())
    assert {link.plan.plan_gen for link in again} == {GEN + 2}, "frames of the old links are never taken for new ones"
    assert [link.port for link in again] == [7001, 7002, 7000]
    assert links(macs.step()) == [], "it is being linked"
    assert not of_kind(macs.link(0, "linked", GEN + 1), Ready), "a word about the links before"
    given = macs.link_all()
    assert of_kind(given, Ready) == [Ready(PROOF)], "layers that were kept are not proved again"
    assert not of_kind(given, RunProof)
    for _ in range(MAX_RELINKS):
        assert links(macs.link(1, "broken", problem=PROBLEM)), "breaks are counted anew"


def test_a_mac_that_let_go_of_its_layers_meanwhile_stops_the_ring_that_is_linked_anew() -> None:
    macs = ready_ring(plan_of(2))
    macs.machine.gone(mac_id(1))
    macs.lose(1, PROBLEM)
    macs.machine.linked(mac_id(1), macs.now)
    assert links(macs.step())
    given = macs.say(1, phase="lost")
    assert [lost.problem.what for lost in of_kind(given, Lost)] == ["mac1: It no longer has that plan."]


def test_a_mac_beside_the_ring_ends_the_plan_only_where_it_must_see_no_prompt() -> None:
    macs = loading(replace(plan_of(2), prefill=Prefill(stage=plan_of(3).stages[2], least=1, share=0.5)))
    assert macs.lose(2, PROBLEM) == []
    macs.machine.distrusted(mac_id(3), PROBLEM)
    assert macs.step() == []
    macs.machine.distrusted(mac_id(2), PROBLEM)
    assert of_kind(macs.step(), End) == [End(PROBLEM, PROBLEM)]
    macs.machine.distrusted(mac_id(2), PROBLEM)
    assert macs.step() == []


class Members:
    """Macs that do what they are ordered, over links that lose messages; each beat says again how every stage is."""

    def __init__(self, count: int, is_lost: Callable[[], bool]) -> None:
        self.macs, self.is_lost = Macs(plan_of(count)), is_lost
        self.given = self.macs.brought()
        self.numbers: set[int] = set()

    def beat(self) -> None:
        """The orders arrive or are lost, and so do the words about them."""
        given, self.given = self.given, []
        for order in given:
            if isinstance(order, RunProof):
                self.given += self.macs.proved(order.plan_gen)
            elif isinstance(order, Prepare | Link) and not self.is_lost():
                self.obey(order)
        self.macs.now += 0.5
        for n in range(len(self.macs.machine.plan.stages)):
            if mac_id(n) in self.macs.stages and not self.is_lost():
                self.given += self.macs.say(n)
        self.given += self.macs.step()

    def obey(self, order: Prepare | Link) -> None:
        stages, device_id = self.macs.stages, order.plan.stages[order.index].device_id
        if isinstance(order, Prepare):
            loaded = held(order.index)
            stages[device_id] = HeldStage(
                plan=self.macs.machine.id, phase="loaded", port=7000 + order.index, loaded=loaded, files="a" * 64
            )
        elif stages[device_id].link_gen < order.plan.plan_gen:
            stages[device_id] = replace(stages[device_id], phase="linked", link_gen=order.plan.plan_gen)


@settings(max_examples=100 * SEARCH, deadline=None)
@given(st.integers(1, 4), st.lists(st.booleans(), max_size=40))
def test_a_message_that_is_lost_heals_with_the_beats(count: int, lost: list[bool]) -> None:
    left = iter(lost)
    members = Members(count, lambda: next(left, False))
    for _ in range(200):
        members.beat()
    assert members.macs.machine.phase == "running"
    assert members.macs.machine.plan.plan_gen == GEN, "nothing broke"


WORDS = st.sampled_from(["prepared", "loaded", "checked", "linked", "broken", "lost", "proved", "unproved", "wrote"])


@settings(max_examples=300 * SEARCH, deadline=None)
@given(st.integers(1, 4), st.lists(st.tuples(WORDS, st.integers(0, 4), st.sampled_from([0, 0, 0, 1])), max_size=60))
def test_whatever_the_macs_say_each_order_fits_what_is_so(count: int, said: list[tuple[str, int, int]]) -> None:
    macs = loading(plan_of(count))
    machine, breaks, is_over = macs.machine, 0, False
    for word, who, behind in said:
        n, gen, known = who % count, machine.plan.plan_gen, dict(macs.stages)
        ring = machine._ring
        match word:
            case "linked" | "broken":
                phase = "linked" if word == "linked" else "broken"
                given = macs.link(n, phase, gen - behind, PROBLEM)  # type: ignore[arg-type]
                breaks += phase == "broken" and not behind and not is_over and machine.plan.plan_gen > gen
            case "lost":
                given = macs.lose(who, PROBLEM)
            case "proved":
                given = macs.proved(gen - behind)
                assert bool(of_kind(given, Ready)) == (ring == "proving" and not behind and not is_over)
            case "unproved":
                machine.disproved(gen - behind, PROBLEM)
                given = macs.step()
            case "wrote":
                given, breaks = [], 0
                machine.wrote("r", macs.now)
            case _:
                given = getattr(macs, word)(n)
        assert machine.plan.plan_gen >= gen, "a generation is never used again"
        assert breaks <= MAX_RELINKS
        if is_over:
            assert not given, "an order after the end"
        is_over = machine.phase in OVER
        for link in links(given):
            assert link.plan.plan_gen == machine.plan.plan_gen
            assert machine.phase in ("linking", "resume")
            assert all(macs.stages[mac_id(k)].loaded and macs.stages[mac_id(k)].files for k in range(count))
        if any(isinstance(order, RunProof | Ready) for order in given):
            linked = {(stage.phase, stage.link_gen) for stage in macs.stages.values()}
            assert count == 1 or linked == {("linked", machine.plan.plan_gen)}
        assert machine.is_ready == (machine.phase in RUNNING), known
