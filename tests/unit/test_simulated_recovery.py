"""Clusters that lose Macs, links, power and trust, 125 of them and nightly 250, in simulated time.

No answer changes, is lost or answered twice, and every schedule ends; `make search` takes ten times as many. `python -m
tests.simulator SEED` shows the events of one.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from core.node.plans import plan_machine
from core.worker.messages import Proving
from tests.simulator.kind import kind_of
from tests.simulator.mutants import MUTANTS, mutated
from tests.simulator.person import Person
from tests.simulator.schedule import Schedule
from tests.simulator.watching import Watching
from tests.simulator.worker import Worker
from tests.simulator.world import World, simulated
from tests.support.search import seeds

# seeds that failed once, and the mistake that each showed
REGRESSIONS = {
    201: "a Mac loaded layers that its head had let go of while its old worker was still ending",
    438: "the same, after a rescue",
    308: "the last word of an unload hid the plan that was loaded meanwhile",
}
EACH = 125
STILL_S = plan_machine.STILL_S
# seeds; at least one must show the mistake
CAUGHT = {
    "late_answers_to_a_seek": (362, 502, 962),
    "a_wrong_token_index": (609, 669, 839),
    "no_back_off": (581, 790, 992),
    "beats_that_say_nothing": (245, 803, 983),
    "orders_that_are_given_once": (245, 803, 893),
    "a_plan_that_is_taken_in_silence": (119, 315, 567),
    "a_span_in_the_wrong_place": (147, 839, 975),
    "spans_of_another_conversation": (163, 339, 875),
    "states_that_are_not_whole": (319, 847, 975),
}


def run(seeds: Iterable[int]) -> Counter[str]:
    """Run the schedules; returns the counts of all events."""
    kinds: Counter[str] = Counter()
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"python -m tests.simulator {seed}") from error
        kinds += schedule.kinds
    return kinds


def test_a_seed_says_everything() -> None:
    first, second = list[str](), list[str]()
    Schedule(3, first.append).run()
    Schedule(3, second.append).run()
    assert first == second


@pytest.mark.parametrize("seed", [pytest.param(seed, id=str(seed)) for seed in REGRESSIONS])
def test_what_failed_once(seed: int) -> None:
    run([seed])


@pytest.mark.parametrize("number", [0, 1])
def test_a_worker_that_stands_still_while_it_loads_is_not_waited_for(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(kind_of(3), lambda *_: None, lambda _: None)
    head, frozen = world.macs[0], world.macs[number]
    with simulated(world):
        monkeypatch.setattr(plan_machine, "STILL_S", STILL_S)
        world.loop.run_for(1.2)
        person = Person(world, Watching(world, head))
        person.load()
        until(world, lambda: head.node.worker.is_loading, 5.0)
        assert frozen.worker
        worker, begun = frozen.worker.process, world.loop.now
        worker.stop()
        until(world, lambda: not head.node.worker.is_loading, STILL_S + 10.0)
        assert world.loop.now - begun > STILL_S
        assert head.node.bus.now.plan_problem is not None
        assert f"{frozen.name} has read nothing more for" in head.node.bus.now.plan_problem.what
        until(world, lambda: worker.is_dead, 10.0)
        person.load()
        until(world, lambda: head.node.worker.is_ready, 30.0)


@pytest.mark.parametrize("parts", [pytest.param(9, id="slow"), pytest.param(None, id="stuck")])
def test_a_proof_is_waited_for_as_long_as_it_goes_on(parts: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Worker._proved

    def prove(worker: Worker, plan_gen: int, left: int | None = parts) -> None:
        if left:
            worker._report(Proving())
            worker.process.soon(prove, worker, plan_gen, left - 1, after=0.9 * plan_machine.PROVE_S)
        elif left == 0:
            end(worker, plan_gen)

    monkeypatch.setattr(Worker, "_proved", prove)
    world = World(kind_of(3), lambda *_: None, lambda _: None)
    head = world.macs[0]
    with simulated(world):
        world.loop.run_for(1.2)
        Person(world, Watching(world, head)).load()
        until(world, lambda: head.node.worker.is_ready or head.node.bus.now.plan_problem is not None, 900.0)
        if parts:
            assert head.node.worker.is_ready
        else:
            assert head.node.bus.now.plan_problem is not None
            assert "The proof made no progress for " in head.node.bus.now.plan_problem.what


def until(world: World, condition: Callable[[], bool], seconds: float) -> None:
    """Let time pass in the world."""
    deadline = world.loop.now + seconds
    while not condition():
        assert world.loop.now < deadline
        world.loop.run_for(0.05)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # tasks still running when it was seen
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_seen(name: str) -> None:
    """If none of its seeds shows it any more, look for others: `python -m tests.simulator SEED --mistake NAME`."""
    with mutated(name), pytest.raises(AssertionError, match=r"tests\.simulator"):
        run(CAUGHT[name])
    gc.collect()


@pytest.mark.slow
@pytest.mark.search
@pytest.mark.parametrize("those", seeds(250, EACH))
@pytest.mark.promise("P16")
def test_every_answer_is_what_it_would_be_alone_or_a_beginning_of_it(those: range) -> None:
    kinds = run(those)
    states = {"suspect", "hold", "resume", "rebuild", "wait", "running"}
    ends = {"stop", "length", "cancelled", "error", "two heads", "again", "forward", "reverse", "mirrored"}
    visits = {"save a session", "load a session"}
    assert min(kinds[kind] for kind in visits) >= EACH // 100, kinds
    assert min(kinds[kind] for kind in states | ends) >= EACH // 50, kinds
