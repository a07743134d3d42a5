"""Macs and a network in one process, their time, and faults that heal by themselves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from core.events import AnyEvent
from core.models.files.cache_size import CacheSize
from core.node.answers import answer_archive, answer_record, kv_mirror, running_answer, saved_sessions
from core.node.peers import own_mac, peer_table
from core.node.plans import driver, plan_machine
from core.node.ring import worker_process
from core.node.trust import roster_enforcement
from core.plan import mirror as plan_mirror
from core.trust import identity, trust_assessment
from core.trust.roster import store as roster_files
from core.worker import mirroring
from tests.simulator import disk, stand_ins
from tests.simulator.keys import NAMES
from tests.simulator.kind import Kind
from tests.simulator.loop import PROCESS, Loop
from tests.simulator.mac import Mac, Node
from tests.simulator.network import Network
from tests.simulator.program import Program
from tests.simulator.sessions import FILES
from tests.simulator.stand_ins import LAYERS
from tests.support import simulated as simulated_ring
from tests.support.plan_machines import CheckedMachine


class World:
    """Macs of one schedule; a person asks at each of the first ones, the `heads`.

    `kinds` counts events, `trace` gets them as text, and `watch` gets every event of every node.
    """

    def __init__(self, kind: Kind, watch: Callable[[Node, AnyEvent], None], trace: Callable[[str], None]) -> None:
        self.kind, seed = kind, kind.seed
        self.random = random = Random(seed)
        self._trace = trace
        self.kinds: Counter[str] = Counter()
        self.loop = Loop()  # type: ignore[abstract]  # the rest is unused
        self.loop.thread_s = random.choice((0.001, 0.001, 0.1, 0.5))
        self.network = Network(self.loop, random)
        self.network.forgets = Random(-3 - seed) if kind.forgets else None
        self.macs: list[Mac] = []
        self._heals: list[tuple[float, Callable[[], None]]] = []
        size = random.choice((1, 2, 2, 3, 3, 3, 4))
        with simulated(self):
            for number in range(size):
                budget = random.choice((3, 4, 6) if number == 0 else (2, 3, 5))
                note = self._noting(NAMES[number])
                self.macs.append(
                    Mac(number, size, self.network, kind, random, budget_gb=budget, note=note, watch=watch)
                )
        self.heads = self.macs[: kind.heads]

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal a fault after `seconds`."""
        self._heals.append((self.loop.now + seconds, heal))

    def boot(self, home: Mac) -> None:
        """Switch a Mac on."""
        self.tell(f"{home.name} boots")
        home.boot()

    def until(self, when: float) -> None:
        """Let time pass until `when`, and heal due faults."""
        for at, heal in sorted(self._heals, key=lambda heal: heal[0]):
            if at <= when:
                self._heals.remove((at, heal))
                self.loop.run_for(max(0.0, at - self.loop.now))
                heal()
        self.loop.run_for(max(0.0, when - self.loop.now))

    def heal_all(self) -> None:
        """Let time pass until every fault that can heal is healed."""
        self.until(max([self.loop.now, *(at for at, _ in self._heals)]))
        for way in list(self.network.cuts):
            self.network.heal(way)

    def tell(self, text: str) -> None:
        """Write a line of the trace."""
        self._trace(f"{self.loop.now:8.3f}  {text}")

    def _noting(self, name: str) -> Callable[[str], None]:
        def note(text: str) -> None:
            self.tell(f"  {name}: {text}")
            self.kinds["mirrored"] += "came back from the mirror" in text

        return note


@cache
def remembered(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function with a cache."""
    return cache(function)


@contextmanager
def simulated(world: World) -> Iterator[None]:
    """Give the node's modules this clock, these disks and these processes for a while."""

    async def run_worker(*_: Any, **__: Any) -> Program:
        home = next(home for home in world.macs if home.node.process is PROCESS.get())
        return home.run_worker()

    dice = SimpleNamespace(
        token_hex=lambda count: f"{world.random.getrandbits(8 * count):0{2 * count}x}",
        randbits=world.random.getrandbits,
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (driver, running_answer, peer_table):
            patch.setattr(module, "monotonic", world.loop.time)
        patch.setattr(driver, "TICK_S", 0.5)
        patch.setattr(driver, "PlanMachine", CheckedMachine)
        for limit in ("PREPARE_S", "STILL_S"):
            patch.setattr(plan_machine, limit, 3600.0)  # a wait without end must show
        patch.setattr(saved_sessions, "files", FILES)
        patch.setattr(plan_mirror, "EVERY", 6)
        patch.setattr(mirroring, "WORTH", 4)
        patch.setattr(mirroring, "SPAN_BYTES", 256)  # about four tokens
        patch.setattr(kv_mirror, "GIVEN_BYTES", 200)
        patch.setattr(simulated_ring, "STATES", frozenset({1, 3} if world.kind.states else ()))
        patch.setattr(stand_ins, "CACHES", (CacheSize(bytes_per_token=8 * world.kind.mirrors),) * LAYERS)
        patch.setattr(own_mac, "used_bytes", lambda: 0)
        patch.setattr(own_mac, "footprint_bytes", lambda pid: 0)
        patch.setattr(answer_archive, "TokenLog", disk.Log)
        patch.setattr(answer_archive, "unfinished", disk.unfinished)
        patch.setattr(answer_archive, "old_logs", disk.old_logs)
        patch.setattr(answer_archive, "forget_shared", disk.forget_shared)
        patch.setattr(answer_record, "secrets", dice)
        for module in (
            identity,
            trust_assessment,
            peer_table,
            roster_enforcement,
        ):  # base32 would take a third of the time
            for name in ("text_id", "parse_text_id"):
                if hasattr(module, name):
                    patch.setattr(module, name, remembered(getattr(identity, name)))
        patch.setattr(roster_files, "write_private", lambda *_: None)
        patch.setattr(asyncio, "create_subprocess_exec", run_worker)
        patch.setattr(worker_process, "kill", Program.kill)
        yield
