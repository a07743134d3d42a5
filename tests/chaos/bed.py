"""A cluster and its network for tries of faults, repaired between the tries."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from core.events import Recovery, RecoveryState
from tests.chaos.cluster import Cluster, running
from tests.chaos.mac import Mac, Setup
from tests.chaos.network import Meddler, Net, net
from tests.chaos.trial import Fault, Point, Tried, Undisturbed, disturb
from tests.support.maker import make_model

Where = Literal["desk", "lan", "pair", "skewed", "mirrored", "two-ranks", "three-ranks"]

TEN_YEARS_S: Final = 315_360_000.0
SKEW: Final = Path(__file__).parent / "skew"
CLOCKS_S: Final = (0.0, TEN_YEARS_S, -TEN_YEARS_S)
HALF_GB: Final = 0.009  # the demo model with its context needs 0.013
TOKENIZER_GB: Final = 0.152  # on the head
AGAIN_S: Final = 120.0
SPARES_S: Final = 10.0
TRIES: Final = 3
MOST_AGAIN: Final = 64
HELD: Final[frozenset[RecoveryState]] = frozenset({"hold", "replan", "rebuild", "wait", "parked"})
NEEDS_ROOT: Final = frozenset[Where]({"lan", "pair", "skewed"})
RANKS: Final[Mapping[Where, int]] = {"two-ranks": 2, "three-ranks": 3}
# three Macs can share it, and so can two, or one alone; all give the same answer, as it computes in float32
make_shared: Final = partial(
    make_model, family="llama", layers=4, hidden=96, intermediate=192, heads=6, kv_heads=6, head_dim=16
)
SHARED_CONTEXT: Final = 2048  # its tokens are short


class Bed(NamedTuple):
    """Three Macs in one network.

    "desk": on one host. "lan": in a network that can be disturbed. "pair": two that need each other. "skewed": one
    lives ten years ahead, one ten years back, and Bonjour flaps. "mirrored": on one host, with a mirror. Ranks: two or
    three on one host that each have a part of every layer.
    """

    where: Where
    cluster: Cluster
    undisturbed: Undisturbed
    network: Net | None = None
    meddler: Meddler | None = None

    async def disturb(self, point: Point, fault: Fault) -> Tried:
        """Run one try. A mirrored row must not be read again."""
        plan = self.cluster.head.now.plan
        assert plan
        assert (plan.topology == "tensor") == (self.where in RANKS)
        tried = await disturb(self.cluster, self.undisturbed, point, fault)
        if self.where != "mirrored":
            return tried._replace(again=None)
        if tried.again is not None and tried.again > MOST_AGAIN:
            return tried._replace(wrong=(*tried.wrong, f"{tried.again} tokens were read again."))
        return tried

    def victim(self, dice: random.Random) -> Mac:
        """A Mac of the plan other than the head."""
        return self.cluster.mac(dice.choice(self.cluster.stages[1:]))

    @property
    def states(self) -> set[RecoveryState]:
        """The states of recovery since the last try began."""
        return {h.event.state for h in self.cluster.heard if isinstance(h.event, Recovery)}

    async def unmoved(self, attempt: Callable[[], Awaitable[Tried]]) -> Tried:
        """Run a try in which no Mac may be taken for lost.

        A false loss alone is tried again: a busy machine sometimes keeps a Mac silent for long enough.
        """
        for _ in range(TRIES):
            tried = await attempt()
            wrongly = sorted(self.states & HELD)
            if tried.wrong or not wrongly:
                return tried
            await self.heal(whole=True)
        return tried._replace(wrong=(f"A Mac was taken for lost: {', '.join(wrongly)}.",))

    def without(self, mac: Mac, tried: Tried) -> Tried:
        """Add a fault to the try unless the others continued without that Mac."""
        if mac.name in self.cluster.stages:
            return tried._replace(wrong=(*tried.wrong, f"It went on with {mac.name}, not without it."))
        return tried

    async def heal(self, *, whole: bool) -> None:
        """Bring every node up and the plan to ready, on all Macs if it must be `whole`. Raises MaclusterError."""
        cluster = self.cluster
        for mac in cluster.macs:
            if not mac.is_up:
                await cluster.restart(mac)
        await cluster.linked(cluster.macs[0])
        if cluster.head.now.recovery:
            await cluster.ready(AGAIN_S)
        is_ready = cluster.head.now.plan_status == "ready"
        if not is_ready or len(cluster.stages) < (len(cluster.macs) if whole else 2):
            await cluster.load()
        await cluster.with_spares(SPARES_S)


@asynccontextmanager
async def bed(where: Where, model: Path, folder: Path, undisturbed: Undisturbed, seed: int) -> AsyncIterator[Bed]:
    """A bed of that kind over state folders below `folder`; all processes end with it."""
    with ExitStack() as stack:
        setup = Setup(model, folder)
        if where in ("desk", "mirrored"):
            async with running(setup._replace(mirror=where == "mirrored")) as cluster:
                yield Bed(where, cluster, undisturbed)
            return
        if where in RANKS:
            shared = folder / "shared"
            make_shared(shared)
            places = setup.places[: RANKS[where]]
            ranks = setup._replace(model=shared, places=places, parallelism="tp", context=SHARED_CONTEXT)
            async with running(ranks) as cluster:
                yield Bed(where, cluster, undisturbed)
            return
        network = stack.enter_context(net(2 if where == "pair" else 3, seed))
        meddler = stack.enter_context(network.meddler()) if where == "lan" else None
        setup = setup._replace(places=network.places)
        if where == "pair":
            setup = setup._replace(budgets_gb=(TOKENIZER_GB + HALF_GB, HALF_GB))
        if where == "skewed":
            places = tuple(p._replace(env=_off(by_s)) for p, by_s in zip(network.places, CLOCKS_S, strict=True))
            setup = setup._replace(places=places, multicast=True)
        async with running(setup) as cluster:
            if where == "skewed":
                stack.enter_context(network.flapping(cluster.macs[-1].device_id, cluster.macs[-1].port))
            yield Bed(where, cluster, undisturbed, network, meddler)


def _off(by_s: float) -> Mapping[str, str]:
    paths = os.pathsep.join([str(SKEW), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": paths, "CHAOS_CLOCK_OFF_S": str(by_s)} if by_s else {}
