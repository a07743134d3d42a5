"""One seeded run: a person asks, everything fails at any time, and in the end all is well, or waits, or is kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from core.node.recovery.recovery_states import SEEK_EVERY_S
from core.node.ring.plan_member import GRACE_S
from tests.simulator.faults import Faults
from tests.simulator.person import Person
from tests.simulator.watching import Watching
from tests.simulator.world import World, simulated

FAULTS_S = 8.0
SETTLE_S = 400.0


class Schedule:
    """`trace` hears what happens, and `kinds` counts it."""

    def __init__(self, seed: int, trace: Callable[[str], None] = lambda _: None) -> None:
        self._watching = Watching()
        self._world = self._watching.world = World(seed, self._watching.heard, trace)
        self.kinds, self._head = self._world.kinds, self._world.head
        self._person, self._faults = Person(self._world, self._watching), Faults(self._world, self._watching)

    def run(self) -> None:
        """From the first load to the last check. Raises AssertionError."""
        with simulated(self._world):
            self._begin()
            begun = self._world.loop.now
            for at, act in self._todo():
                self._world.until(begun + at)
                act()
            self._world.until(begun + FAULTS_S)
            self._world.heal_all()
            self._settle()
            self._end()

    def _begin(self) -> None:
        world, random = self._world, self._world.random
        if len(world.macs) > 1 and random.random() < 0.15:
            world.tell("one Mac is switched on later")
            world.macs[-1].power_cut()
            world.later(random.uniform(2.0, 15.0), partial(world.boot, world.macs[-1]))
        world.loop.run_for(1.2)
        self._person.load()
        world.loop.run_for(random.choice((0.5, 3.0, 5.0)))

    def _todo(self) -> list[tuple[float, Callable[[], None]]]:
        """Who does what, and when: most of what fails, fails soon after somebody asked."""
        random, person = self._world.random, self._person
        asks = [random.random() * FAULTS_S / 2 for _ in range(random.randint(1, 4))]
        faults = [random.choice((0.0, *asks, *asks)) + 2 * random.random() for _ in range(random.randint(1, 4))]
        faults += [at + 0.5 * random.random() for at in faults if random.random() < 0.3]
        todo = [(at, person.ask) for at in asks] + [(at, self._faults.strike) for at in faults]
        for act in [person.cancel] * random.choice((0, 0, 2)) + [person.choose] * random.choice((0, 0, 2)):
            todo.append((random.choice(faults) + 4 * random.random(), act))
        acts = [person.go_on] * 2
        acts += [person.load_small] * (random.random() < 0.1) + [person.unload] * (random.random() < 0.1)
        todo += [(random.random() * FAULTS_S, act) for act in acts]
        return sorted(todo, key=lambda act: act[0])

    def _settle(self) -> None:
        """All is healed, or final: everything ends, or waits."""
        loop, calm_s = self._world.loop, 0.0
        until = loop.now + SETTLE_S
        while calm_s < 2 * SEEK_EVERY_S + 1:
            loop.run_for(0.5)
            is_calm = self._is_calm()
            if is_calm and self._head.state != "wait":
                break
            calm_s = calm_s + 0.5 if is_calm else 0.0
            assert loop.now < until, "it does not end"
        self._watching.check_calm()

    def _end(self) -> None:
        """Whoever asks once more is answered; and what is left is looked at."""
        random, person, loop = self._world.random, self._person, self._world.loop
        if not self._head.is_up:
            self._world.boot(self._head)
            loop.run_for(3.0)
        if self._head.is_over and random.random() < 0.7:
            person.load()
            loop.run_for(12.0)
            person.go_on_with_all()
            loop.run_for(1.0)
            self._settle()
        if self._head.node.leader.ready and self._head.state == "running":
            person.ask()
            self._settle()
        self._watching.check_answers()
        self._watching.check_cost()
        self._watching.check_memory(GRACE_S if random.random() < 0.03 else 0.0)

    def _is_calm(self) -> bool:
        head = self._head
        if not head.is_up or head.state in ("wait", "parked"):
            return True
        is_shown = (head.node.bus.now.plan_status == "ready") == head.node.leader.ready
        is_idle = not head.node.answers.under_way and not head.node.leader.is_loading
        return head.state == "running" and is_shown and is_idle
