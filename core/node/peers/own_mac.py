"""State of this Mac, for readers here and for the other Macs, which get it when it changes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from core.events import Peer
from core.mac.memory import footprint_bytes, usable_bytes, used_bytes
from core.node.base.context import NodeContext
from core.node.base.node_message import MAX_MODEL_NAME
from core.node.peers.messages import Leads, Status
from core.node.peers.networks import Networks
from core.node.peers.stage_state import HeldStage
from core.node.peers.worker_state import WorkerState


class _MemoryUse(NamedTuple):
    """Bytes in use on this Mac, in all and by its worker and its spare worker."""

    total: int = 0
    worker: int = 0
    spare: int = 0


class OwnMac:
    """State of this Mac. `known` doesn't change while the node runs."""

    def __init__(self, node: NodeContext, known: Peer, worker: WorkerState, networks: Networks) -> None:
        self._known, self._assessment, self._bus, self._config = known, node.assessment, node.bus, node.config
        self._worker, self._networks, self._use = worker, networks, _MemoryUse()
        self.device_id = known.device_id

    def look(self) -> None:
        """Ask the system how much memory is in use. Everything else here asks it nothing."""
        pid, spare = self._worker.pid, self._worker.spare_pid
        total = min(used_bytes(), self._known.memory_bytes)
        self._use = _MemoryUse(total, footprint_bytes(pid) if pid else 0, footprint_bytes(spare) if spare else 0)

    def now(self, address: str = "") -> Peer:
        worker = self._worker
        limit = 0 if self._config.chip else worker.working_set_bytes or 0  # a simulated Mac has no GPU of its own
        return msgspec.structs.replace(
            self._known,
            name=self._assessment.listed_name(self.device_id) or self._known.name,
            trust=self._assessment.of(self.device_id).level,
            address=address,
            budget_bytes=usable_bytes(self._known.budget_bytes, limit, worker.memory_faults),
            used_bytes=self._use.total,
            worker_pid=worker.pid,
            worker_rss_bytes=self._use.worker if worker.pid else 0,
            spare_rss_bytes=self._use.spare if worker.spare_pid else 0,
        )

    def status(self) -> Status:
        """The status sent to other Macs. This Mac has no memory for plans until its worker has reported the GPU's
        limit.
        """
        own, is_ready = self.now(), self._worker.working_set_bytes is not None
        figures = own.figures | {"budget_bytes": own.budget_bytes if is_ready else 0}
        return Status(
            **figures,
            name=own.name,
            has_model=self._worker.has_model,
            step=self._worker.step,
            leads=self._leads(),
            reach=self._networks.reach,
        )

    def stage_of(self, head: str) -> HeldStage | None:
        return self._worker.stages.get(head)

    def _leads(self) -> Leads | None:
        now = self._bus.now
        if (plan := self._worker.led or (now.plan if now.recovery else None)) is None:
            return None
        return Leads(
            model=plan.name[:MAX_MODEL_NAME],
            rows=plan.rows,
            context=plan.context,
            takes_relayed=self._config.relays,
            fingerprint=plan.fingerprint,
            status=now.plan_status,
            answers=len(now.running),
        )
