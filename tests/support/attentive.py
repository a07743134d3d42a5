"""Nodes in this process whose links get new keys often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from core.address import Place
from core.link.rekey_limits import KeyUse
from core.local.bare_worker import HOST
from core.node.config import NodeConfig
from core.node.ring.worker_supervisor import WorkerReported
from core.node.service import Node
from core.requests.plans import LoadRequest
from core.settings import GB, Home
from core.worker.messages import Samples
from tests.support.macs import bundle, chain, mac
from tests.support.nodes import own_port, paired_home
from tui.cli.watch import Watch

TOKENS: Final = 48
LIMITS: Final = KeyUse(frames=5, bytes=1 << 52, age_s=1e9)
START_S: Final = 120.0


class Attentive(Node):
    """A node that keeps the messages of its worker."""

    def __init__(self, config: NodeConfig) -> None:
        self.samples: list[Samples] = []
        super().__init__(config)
        self.parts.node.signals.on(WorkerReported, self._remember_samples)

    def _remember_samples(self, said: WorkerReported) -> None:
        if isinstance(said.report, Samples):
            self.samples.append(said.report)

    async def learn(self, epochs: int) -> None:
        """Adopt a roster of `epochs` epochs, signed elsewhere, and pass it on to the other nodes."""
        self.parts.node.store.adopt(bundle(chain(epochs), *(mac(n).certificate_der for n in range(epochs))))
        await self.parts.peers.mesh.roster_changed()

    @property
    def epoch(self) -> int:
        return self.parts.node.store.cluster().roster.epoch


@asynccontextmanager
async def paired_nodes(folder: Path, model: Path, count: int) -> AsyncIterator[tuple[list[Attentive], Watch]]:
    """Nodes in this process with workers in their own, and the model loaded; the first node leads."""
    async with AsyncExitStack() as stack:
        nodes: list[Attentive] = []
        watches: list[Watch] = []
        places: tuple[Place, ...] = ()
        for number in range(count):
            home = paired_home(folder, number, count)
            nodes.append(Attentive(config_of(home, model, places)))
            stack.push_async_callback(asyncio.wait_for, asyncio.create_task(nodes[-1].run()), 15)
            stack.callback(nodes[-1].stop)
            watches.append(await stack.enter_async_context(Watch(home)))
            await watches[-1].attached(START_S, lambda: True)
            places += (Place(HOST, own_port(watches[-1])),)
        await asyncio.gather(*(w.until(knows(count), START_S, "Linking the nodes") for w in watches))
        await watches[0].client.load(LoadRequest(model=str(model)))
        await watches[0].until(lambda w: w.now.plan_status in ("ready", "broken"), START_S, "Loading")
        assert watches[0].now.plan_problem is None
        yield nodes, watches[0]


def config_of(home: Home, model: Path, places: tuple[Place, ...]) -> NodeConfig:
    return NodeConfig(
        home=home,
        name=f"mac-{home.root.name}",
        host=HOST,
        port=0,
        budget_bytes=8 * GB,
        model_roots=(model,),
        multicast=False,
        peers=places,
        key_limits=LIMITS,
    )


def knows(count: int) -> Callable[[Watch], bool]:
    """Whether `count` Macs are linked and have sent their state."""
    return lambda watch: sum(p.state == "connected" and p.budget_bytes > 0 for p in watch.now.peers) == count
