"""One seeded run: a person asks, and faults come at any time; in the end each answer is complete, waits, or is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from core.events import AnyEvent, Recovery
from core.node.plans.plan_machine import SEEK_EVERY_S
from core.node.ring.plan_member import GRACE_S
from tests.simulator.faults import Faults
from tests.simulator.kind import kind_of
from tests.simulator.mac import Mac, Node
from tests.simulator.person import Person
from tests.simulator.watching import Watching
from tests.simulator.world import World, simulated

FAULTS_S = 8.0
SETTLE_S = 400.0


class Schedule:
    """One seeded run; `trace` gets each event as text, and `kinds` counts them."""

    def __init__(self, seed: int, trace: Callable[[str], None] = lambda _: None) -> None:
        self._kind = kind_of(seed)
        self._watching: dict[Mac, Watching] = {}
        self._world = world = World(self._kind, self._heard, trace)
        self.kinds, self._heads = world.kinds, world.heads
        self._watching |= {head: Watching(world, head) for head in world.heads}
        self._people = [Person(world, watching) for watching in self._watching.values()]
        self._faults = Faults(world, self._watching)
        self.kinds["two heads"] += len(world.heads) > 1

    def run(self) -> None:
        """Run from the first load to the last check. Raises AssertionError."""
        with simulated(self._world):
            self._begin()
            begun = self._world.loop.now
            todo = self._todo()
            todo += [each for person in self._people[1:] for each in self._others(person)]
            todo += self._visits() if self._kind.saves else []
            for at, act in sorted(todo, key=lambda each: each[0]):
                self._world.until(begun + at)
                act()
            self._world.until(begun + FAULTS_S)
            self._world.heal_all()
            self._settle()
            self._end()

    def _heard(self, node: Node, event: AnyEvent) -> None:
        if watching := self._watching.get(node.home):
            try:
                watching.heard(node, event)
            except AssertionError as error:
                self._world.loop.failures.append(error)  # the node would take it for its own defect
            if self._kind.is_fickle and isinstance(event, Recovery) and event.state == "hold":
                person = self._people[self._heads.index(node.home)]
                for number, choice in enumerate(("wait", "replan") * 2):
                    node.process.soon(person.choose, choice, after=0.02 * (1 + number))

            if self._kind.mirrors and isinstance(event, Recovery) and "not mirrored" in event.text:
                self._faults.strike_soon()

    def _begin(self) -> None:
        world, random = self._world, self._world.random
        if len(world.macs) > 1 and random.random() < 0.15:
            world.tell("one Mac is switched on later")
            world.macs[-1].power_cut()
            world.later(random.uniform(2.0, 15.0), partial(world.boot, world.macs[-1]))
        world.loop.run_for(1.2)
        self._people[0].load()
        world.loop.run_for(random.choice((0.5, 3.0, 5.0)))

    def _todo(self) -> list[tuple[float, Callable[[], None]]]:
        """Random actions and faults with their times; most faults come soon after a request."""
        random, person = self._world.random, self._people[0]
        asks = [random.random() * FAULTS_S / 2 for _ in range(random.randint(1, 4))]
        faults = [random.choice((0.0, *asks, *asks)) + 2 * random.random() for _ in range(random.randint(1, 4))]
        faults += [at + 0.5 * random.random() for at in faults if random.random() < 0.3]
        todo = [(at, person.ask) for at in asks] + [(at, self._faults.strike) for at in faults]
        for act in [person.cancel] * random.choice((0, 0, 2)) + [person.choose] * random.choice((0, 0, 2)):
            todo.append((random.choice(faults) + 4 * random.random(), act))
        acts = [person.go_on] * 2
        acts += [person.load_small] * (random.random() < 0.1) + [person.unload] * (random.random() < 0.1)
        todo += [(random.random() * FAULTS_S, act) for act in acts]
        return todo

    def _others(self, person: Person) -> list[tuple[float, Callable[[], None]]]:
        """Actions of a second person, who also loads a model, asks, and continues ended answers."""
        whims = self._kind.whims
        acts = [person.load, person.load_small] * (1 + (whims.random() < 0.3))
        acts += [person.ask] * whims.randint(1, 3) + [person.go_on] * 2 + [person.unload] * (whims.random() < 0.3)
        return [(whims.random() * FAULTS_S, act) for act in acts]

    def _visits(self) -> list[tuple[float, Callable[[], None]]]:
        """Actions of the first person, who saves conversations and returns to them."""
        person, whims = self._people[0], self._kind.whims
        times = sorted(2.0 + (FAULTS_S - 2.0) * whims.random() for _ in range(6))
        return list(zip(times, (person.save, person.bring, person.follow) * 2, strict=True))

    def _settle(self) -> None:
        """Let time pass until every answer has ended or waits; all faults are healed or final by now."""
        loop, calm_s = self._world.loop, 0.0
        until = loop.now + SETTLE_S
        while calm_s < 2 * SEEK_EVERY_S + 1:
            loop.run_for(0.5)
            is_calm = all(map(_is_calm, self._heads)) and not any(each.is_moving for each in self._watching.values())
            if is_calm and not any(head.state == "wait" for head in self._heads):
                break
            calm_s = calm_s + 0.5 if is_calm else 0.0
            assert loop.now < until, "it does not end"
        for watching in self._watching.values():
            watching.check_calm()

    def _end(self) -> None:
        """Check that one more question is answered everywhere, then check the answers, costs and memory."""
        for head, person in zip(self._heads, self._people, strict=True):
            self._once_more(head, person)
        for watching in self._watching.values():
            watching.check_answers()
            watching.check_cost()
        self._watching[self._heads[0]].check_memory(GRACE_S if self._world.random.random() < 0.03 else 0.0)

    def _once_more(self, head: Mac, person: Person) -> None:
        loop = self._world.loop
        if not head.is_up:
            self._world.boot(head)
            loop.run_for(3.0)
        if head.is_over and self._world.random.random() < 0.7:
            person.load()
            loop.run_for(12.0)
            person.go_on_with_all()
            loop.run_for(1.0)
            self._settle()
        if head.node.worker.is_ready and head.state == "running":
            person.ask()
            self._settle()
            for act in (person.save, person.bring, person.follow) if self._kind.saves else ():
                act()
                self._settle()


def _is_calm(head: Mac) -> bool:
    if not head.is_up or head.state in ("wait", "parked"):
        return True
    is_shown = (head.node.bus.now.plan_status == "ready") == head.node.worker.is_ready
    is_idle = not head.node.answers.under_way and not head.node.worker.is_loading
    return head.state == "running" and is_shown and is_idle
