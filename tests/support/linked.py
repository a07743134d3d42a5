"""Rings over real links in this process, relinked as often as a test wants."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import msgspec

from core.events import Plan, Topology
from core.link.data_plane import listen
from core.link.network_paths import NetworkPath
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.local.plans import digest_of
from core.trust.roster.bundle import Cluster
from core.worker.messages import Connect
from core.worker.neighbours import Neighbours
from core.worker.ring import Ring
from core.worker.telemetry import StageMeter
from tests.support.macs import cluster, mac
from tests.support.plans import as_ranks, plan_of

HOST: Final = "127.0.0.1"
WAIT_S: Final = 60.0
ROW_BYTES: Final = 1 << 20


class Linked:
    """Listening stages. `link` links them again, under the next plan generation."""

    def __init__(
        self,
        stack: ExitStack,
        size: int,
        *,
        topology: Topology = "private",
        limits: KeyUse = KEY_LIMITS,
        row_bytes: Sequence[int] = (),
        meters: Sequence[StageMeter] = (),
    ) -> None:
        self.pool = stack.enter_context(ThreadPoolExecutor(2 * size))
        self.plan = plan_between(size, topology)
        self.rings: list[Ring] = []
        self._listeners = [stack.enter_context(listen(HOST)) for _ in range(size)]
        self._limits = limits
        self._row_bytes = row_bytes or [ROW_BYTES] * size
        self.meters = meters or [StageMeter(number) for number in range(size)]
        self._cluster = cluster(size)
        stack.callback(self.close)

    @property
    def head(self) -> Ring:
        """The first stage's ring."""
        return self.rings[0]

    def close(self) -> None:
        """Break every link."""
        for ring in self.rings:
            ring.close()

    def link(self) -> list[Ring]:
        """Close the old links and make new ones; returns the rings in order."""
        self.close()
        self.plan = msgspec.structs.replace(self.plan, plan_gen=self.plan.plan_gen + 1)
        making = [
            self.pool.submit(Ring, self._neighbours(number), meter, self._limits)
            for number, meter in enumerate(self.meters)
        ]
        self.rings = [made.result(WAIT_S) for made in making]
        return self.rings

    def _neighbours(self, number: int) -> Neighbours:
        after = self._listeners[(number + 1) % len(self._listeners)]
        told = Connect(
            plan=self.plan,
            digest=digest_of(self.plan),
            cluster=self._cluster.encode(),
            ways=(NetworkPath(HOST),),
            next_port=port_of(after),
        )
        return Neighbours(told, number, self._listeners[number], mac(number), row_bytes=self._row_bytes[number])

    def know(self, number: int, known: Cluster) -> None:
        """Give stage `number` another roster."""
        self.rings[number].neighbours._cluster = known


def port_of(listener: socket.socket) -> int:
    """The port where stage `number` listens."""
    return int(listener.getsockname()[1])


def plan_between(size: int, topology: Topology = "private") -> Plan:
    """A plan over `mac(0)` to `mac(size - 1)`, in ring order."""
    plan = plan_of(size) if topology != "tensor" else as_ranks(plan_of(size))
    owners = [(stage.start, stage.stop) for stage in plan.stages]
    if topology == "reverse":
        owners = [owners[-1], *owners[:-1]]
    stages = tuple(
        msgspec.structs.replace(stage, device_id=mac(n).text_id, start=start, stop=stop)
        for n, (stage, (start, stop)) in enumerate(zip(plan.stages, owners, strict=True))
    )
    output = stages[-1 if topology == "forward" else 0].device_id
    return msgspec.structs.replace(plan, stages=stages, output=output, topology=topology)
