"""Rings of real workers that tests share: to start a worker takes a second, to load a tiny model next to nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Unpack

import msgspec

from core.engine.steps import TRY_S
from core.events import Topology
from core.local.plans import plan_of
from core.models.files.model_folder import read_folder
from core.plan.topology import DEFAULT_TOPOLOGY
from core.settings import MAX_DRAFT
from core.worker.messages import Load, Loaded
from tests.support.wires import Reroute
from tests.support.worker_ring import LINK_S, Settings, WorkerRing, worker_ring


class Rings:
    """One ring for each number of Macs; it loads again where a test wants another ring than the one before.

    `reroute` is that of `worker_ring`.
    """

    def __init__(self, stack: ExitStack, reroute: Reroute | None) -> None:
        self._stack, self._reroute = stack, reroute
        self._rings: dict[int, WorkerRing] = {}
        self._loaded: dict[int, Any] = {}

    def ring(
        self,
        model: Path,
        cuts: Sequence[int],
        topology: Topology = DEFAULT_TOPOLOGY,
        *,
        draft: int = MAX_DRAFT,
        drafter: Path | None = None,
        fresh: bool = False,
        try_s: float = TRY_S,
        **settings: Unpack[Settings],
    ) -> WorkerRing:
        """A linked ring as `worker_ring` makes it. An earlier one of as many Macs is gone, unless it is the same.

        A `fresh` one holds no tokens of an earlier test.
        """
        macs, wanted = len(cuts) + 1, (model, cuts, topology, draft, drafter, try_s, settings)
        if macs not in self._rings:
            new = worker_ring(
                model,
                cuts,
                topology=topology,
                draft=draft,
                drafter=drafter,
                try_s=try_s,
                reroute=self._reroute,
                **settings,
            )
            self._rings[macs] = self._stack.enter_context(new)
        elif fresh or self._loaded[macs] != wanted:
            ring = self._rings[macs]
            plan = plan_of(model.name, read_folder(model).layout().layers, cuts, ring.macs, topology)
            ring.plan = msgspec.structs.replace(plan, plan_gen=ring.plan.plan_gen + 1, **settings)
            load_again(ring, model, draft, drafter, try_s)
        self._loaded[macs] = wanted
        return self._rings[macs]


@contextmanager
def shared_rings(reroute: Reroute | None = None) -> Iterator[Rings]:
    with ExitStack() as stack:
        yield Rings(stack, reroute)


def load_again(
    ring: WorkerRing, model: Path, draft: int = MAX_DRAFT, drafter: Path | None = None, try_s: float = TRY_S
) -> None:
    """Load the ring's plan on the same workers, and link them."""
    for worker in ring.workers:
        directory, drafts = str(model), str(drafter or "")
        load = Load(plan=ring.plan, index=worker.index, directory=directory, draft=draft, drafter=drafts, try_s=try_s)
        worker.send(load)
    for worker in ring.workers:
        worker.expect(Loaded, LINK_S)
    ring.link()
