"""Paired Macs with a model loaded, and all events of the head with their times."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import monotonic
from typing import NamedTuple

import msgspec

from core.errors import MaclusterError
from core.events import AnyEvent
from core.requests.plans import LoadRequest
from core.settings import Home
from core.trust.identity import Identity
from core.trust.roster.bundle import encode_bundle
from core.trust.roster.changes import add, found
from core.trust.roster.format import encode
from core.trust.roster.store import RosterStore
from tests.chaos.mac import NAMES, START_S, Mac, Setup, ours, workers_of
from tests.support.macs import CLUSTER_ID, member_of
from tui.cli.watch import Watch

READY_S = 120.0
LOOK_S = 0.1


class Heard(NamedTuple):
    """An event, and when it came (`monotonic`)."""

    at: float
    event: AnyEvent


class Cluster:
    """Paired Macs. `heard_of` has all events of each, by the Mac's name."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.macs = [Mac(setup, number) for number in range(len(setup.places))]
        self.heard_of: dict[str, list[Heard]] = {mac.name: [] for mac in self.macs}
        self._stack = AsyncExitStack()
        _pair([mac.identity for mac in self.macs], [mac.home for mac in self.macs])

    @property
    def head(self) -> Watch:
        """The events of the Mac that leads the plan."""
        watch = self.macs[0].watch
        assert watch
        return watch

    @property
    def heard(self) -> list[Heard]:
        """All events of the head."""
        return self.heard_of[self.macs[0].name]

    def mac(self, name: str) -> Mac:
        """The Mac of that name."""
        return self.macs[NAMES.index(name)]

    async def start(self) -> None:
        """Start all nodes and wait until they are linked with each other."""
        for mac in self.macs:
            mac.start()
        for mac in self.macs:
            await self._attach(mac)
        for mac in self.macs:
            await self._introduce(mac)
        await asyncio.gather(*(self.linked(mac) for mac in self.macs))

    async def restart(self, mac: Mac) -> None:
        """Start the node of a Mac again, over the same folder."""
        mac.start()
        await self._attach(mac)
        await self._introduce(mac)

    async def linked(self, mac: Mac, within_s: float = START_S) -> None:
        """Wait until a Mac sees all others that are up."""
        assert mac.watch
        others = {other.device_id for other in self.macs if other.is_up} - {mac.device_id}

        def sees_all(watch: Watch) -> bool:
            return others <= {p.device_id for p in watch.now.peers if p.state == "connected" and p.budget_bytes}

        await mac.watch.until(sees_all, within_s, f"Linking {mac.name}")

    async def with_spares(self, within_s: float) -> None:
        """Wait until every Mac of the plan has a spare worker, at most `within_s`: real faults are minutes apart."""
        macs = [self.mac(name) for name in self.stages]
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while any(len(workers_of(mac.node)) < 2 for mac in macs):  # noqa: ASYNC110 - no event tells it
                    await asyncio.sleep(0.1)

    def order(self, without: Sequence[Mac] = ()) -> LoadRequest:
        """The request to load over all Macs but those."""
        return LoadRequest(
            model=str(self.setup.model),
            context=self.setup.context,
            mirror=self.setup.mirror,
            parallelism=self.setup.parallelism,
            without=tuple(mac.device_id for mac in without),
        )

    async def load(self, head: Mac | None = None, without: Sequence[Mac] = ()) -> None:
        """Load the model over all Macs that are up but those, with retries.

        The first Mac leads, or `head`. Raises MaclusterError.
        """
        head = head or self.macs[0]
        await self.linked(head)
        assert head.watch
        deadline = monotonic() + READY_S
        while True:
            try:
                await head.watch.client.load(self.order(without))
                await ready(head.watch)
                return
            except MaclusterError:
                if monotonic() > deadline:
                    raise
                await asyncio.sleep(0.3)

    async def ready(self, within_s: float = READY_S) -> None:
        """Wait until the head's plan runs. Raises LinkTimeout."""
        await ready(self.head, within_s)

    def forget(self) -> None:
        """Forget all events so far."""
        for mac in self.macs:
            self.heard_of[mac.name].clear()
            if mac.watch:
                mac.watch.seen.clear()

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the Macs in the plan, in ring order."""
        plan = self.head.now.plan
        return tuple(stage.peer for stage in plan.stages) if plan else ()

    async def settled(self, within_s: float = 60.0) -> str:
        """Wait until every node that is up has one worker, and no other worker of ours runs.

        Returns the fault that remains after `within_s`, or "".
        """
        deadline = monotonic() + within_s
        while wrong := self._wrong_processes():
            if monotonic() > deadline:
                return wrong
            await asyncio.sleep(LOOK_S)
        return ""

    async def stop(self) -> None:
        """End everything; processes that hang are killed."""
        await self._stack.aclose()
        for mac in self.macs:
            await asyncio.to_thread(mac.end)
        for pid in ours(self.setup.folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def _attach(self, mac: Mac) -> None:
        def on_event(event: AnyEvent) -> None:
            self.heard_of[mac.name].append(Heard(monotonic(), event))

        await mac.attach(self._stack, on_event)

    async def _introduce(self, mac: Mac) -> None:
        """Give a Mac the addresses of the others, and the others its own, as Bonjour would."""
        for other in self.macs:
            if other is not mac and other.is_up and other.watch and mac.watch:
                await mac.watch.client.know(other.address)
                await other.watch.client.know(mac.address)

    def _wrong_processes(self) -> str:
        expected = {mac.node for mac in self.macs if mac.is_up}
        found = ours(self.setup.folder)
        if strange := found - expected - {w for node in expected for w in workers_of(node)}:
            return f"process {min(strange)} should have ended"
        missing = [mac.name for mac in self.macs if mac.is_up and not 1 <= len(workers_of(mac.node)) <= 2]
        return f"{missing[0]} has not one worker" if missing else ""


async def ready(head: Watch, within_s: float = READY_S) -> None:
    """Wait until the plan that this Mac leads runs. Raises LinkTimeout."""
    await head.until(lambda w: w.now.plan_status == "ready" and w.now.recovery is None, within_s, "Being ready")


@asynccontextmanager
async def running(setup: Setup) -> AsyncIterator[Cluster]:
    """A cluster with the model loaded; only its folder remains."""
    cluster = Cluster(setup)
    try:
        await cluster.start()
        await cluster.load()
        yield cluster
    finally:
        await cluster.stop()


def _pair(macs: Sequence[Identity], homes: Sequence[Home]) -> None:
    """Put all Macs in one roster, as if people had paired them."""
    rosters = [found(macs[0], NAMES[0], CLUSTER_ID)]
    for number, mac in enumerate(macs[1:], 1):
        member = msgspec.structs.replace(member_of(mac, number + 1), raw_name=NAMES[number].encode())
        rosters.append(add(rosters[-1], macs[0], member))
    proof = encode_bundle(rosters[-1].stand, [encode(r) for r in rosters], [mac.certificate_der for mac in macs])
    for home in homes:
        RosterStore(home.rosters).adopt(proof)
