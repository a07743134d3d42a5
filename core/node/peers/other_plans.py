"""Plans that other Macs lead: what their heartbeats told, and the one that this Mac's worker serves."""

from __future__ import annotations

import msgspec

from core import events
from core.errors import Busy
from core.node.base.bus import Bus
from core.node.peers.mesh import Mesh
from core.node.peers.messages import Leads
from core.node.peers.worker_state import WorkerState
from core.requests.plans import LoadRequest
from core.text import clean_text


class OtherPlans:
    """The plans of other Macs. `relays`: this Mac relays requests to them."""

    def __init__(self, own_id: str, bus: Bus, mesh: Mesh, worker: WorkerState, *, relays: bool) -> None:
        self._own_id, self._bus, self._mesh, self._worker, self._relays = own_id, bus, mesh, worker, relays

    def plans(self) -> tuple[events.LedPlan, ...]:
        """The plan that this Mac serves first."""
        leaders, served = self._mesh.leaders(), self._worker.plan
        if served and served.head.device_id != self._own_id and served.head.device_id not in leaders:
            untold = Leads(model=served.name, rows=served.rows, takes_relayed=False, status="broken")
            leaders = {**leaders, served.head.device_id: untold}
        plans = [self._plan(head, leads) for head, leads in leaders.items()]
        return tuple(sorted(plans, key=lambda each: (each.plan is None, each.head)))

    def look(self) -> None:
        if (plans := self.plans()) != self._bus.now.elsewhere:
            self._bus.publish(events.Elsewhere(plans=plans))

    def check_free(self, request: LoadRequest) -> None:
        """Check that a load ends nothing of another Mac by accident; a Mac that is gone loses nothing. Raises Busy."""
        leaders = self._mesh.leaders()
        served = next((each for each in self.plans() if each.plan and each.head in leaders), None)
        if served is None or request.take_over:
            return
        of = {0: "", 1: " and 1 of its answers runs"}.get(served.answers, f" and {served.answers} of its answers run")
        what = f"{served.led_by} leads {served.model} over this Mac{of}."
        way = f"Unload it on {served.led_by}, or take this Mac away from it: `macluster load MODEL --take-over`."
        raise Busy(what, way)

    def _plan(self, head: str, leads: Leads) -> events.LedPlan:
        serves = self._worker.plan is not None and self._worker.plan.head.device_id == head
        served = self._worker.plan if serves else None
        told = msgspec.structs.asdict(leads) | {
            "model": clean_text(leads.model),
            "takes_relayed": self._relays and leads.takes_relayed,
        }
        led_by = clean_text(served.head.peer) if served else self._bus.now.name_of(head)
        return events.LedPlan(**told, head=head, led_by=led_by, plan=served)
