"""The Macs that this node knows, from sightings, links and roster, as values for readers."""

from __future__ import annotations

import time
from time import monotonic

import msgspec

from core.events import Peer, PeerChanged, PeerGone, PeerSeen, PeerState, Plan
from core.node.base.context import NodeContext
from core.node.peers.addresses import AddressBook
from core.node.peers.advertised_macs import AdvertisedMacs
from core.node.peers.discovery import Sighting
from core.node.peers.linked_mac import LinkedMac
from core.node.peers.mesh import Mesh
from core.node.peers.messages import Greeting
from core.node.peers.own_mac import OwnMac
from core.node.peers.worker_state import PlanChosen, WorkerState
from core.trust.identity import parse_text_id
from core.trust.levels import carries_prompts, weakest


class PeerTable:
    """Publishes PeerSeen, PeerChanged, PeerGone and TrustChanged, only on changes."""

    def __init__(
        self,
        node: NodeContext,
        own: OwnMac,
        worker: WorkerState,
        sightings: AdvertisedMacs,
        book: AddressBook,
        mesh: Mesh,
    ) -> None:
        self._store, self._assessment, self._seen, self._bus = node.store, node.assessment, node.seen, node.bus
        self._own, self._worker, self._sightings, self._book, self._mesh = own, worker, sightings, book, mesh
        self._linked_once: set[str] = set()
        node.signals.on(PlanChosen, lambda _: self.refresh_trust())
        self._bus.publish(PeerSeen(peer=self._own_now()))

    def steps(self, plan: Plan) -> list[int] | None:
        """Last step that each stage of `plan` reported, in ring order; None if a Mac is not linked or silent."""
        reported = {
            device_id: contact.status.step for device_id, contact in self._mesh.contacts.items() if contact.status
        }
        reported[self._own.device_id] = self._worker.step
        macs = [stage.device_id for stage in plan.stages]
        return [reported[mac] for mac in macs] if reported.keys() >= set(macs) else None

    def is_own(self, device_id: str) -> bool:
        return device_id == self._own.device_id

    def sighted(self, sighting: Sighting) -> bool:
        """Note an advertised Mac; returns whether it contests another advertisement, the first time."""
        self._met(sighting.device_id)
        said = sighting.name, sighting.places, sighting.windows, sighting.version
        change = self._sightings.saw(sighting.device_id, *said)
        for device_id in change.evicted:
            self._forget(device_id, "Too many Macs are advertised.")
        self.refresh(sighting.device_id)
        return change.contests

    def vanished(self, device_id: str) -> None:
        self._sightings.vanished(device_id, monotonic())

    def sweep(self) -> None:
        for device_id in self._sightings.gone(monotonic()):
            self._forget(device_id, "It is no longer advertised.")

    def went(self, device_id: str, reason: str) -> None:
        known = self.find(device_id)
        if known:
            self._bus.publish(PeerGone(device_id=device_id, reason=reason))
            lost = msgspec.structs.replace(known, state="lost", rtt_s=None, worker_pid=None)
            self._bus.publish(PeerSeen(peer=lost))

    def refresh(self, device_id: str) -> None:
        if device_id in self._mesh.contacts:
            self._linked_once.add(device_id)
            self._met(device_id)
        peer = self._peer(device_id)
        known = self.find(device_id)
        if peer and peer != known:
            self._bus.publish(PeerChanged(peer=peer) if known else PeerSeen(peer=peer))
            self.refresh_trust()

    def look(self) -> None:
        """Ask this Mac's system how much memory is in use."""
        self._own.look()
        self.refresh_own()

    def refresh_own(self) -> None:
        own = self._own_now()
        if own != self.find(own.device_id):
            self._bus.publish(PeerChanged(peer=own))

    def refresh_all(self) -> None:
        self.refresh_own()
        for peer in self._bus.now.peers:
            if not peer.is_self:
                self.refresh(peer.device_id)
        self.refresh_trust()

    def refresh_trust(self) -> None:
        """Set the cluster's level: the weakest Mac of the plan, or of the linked Macs. A plan that just failed counts
        until the user loads or unloads, so that the level shows the reason.
        """
        now = self._bus.now
        led = now.plan if now.plan_status in ("loading", "ready") else None
        plan = led or self._worker.plan or now.plan
        linked = [self._own.device_id, *self._mesh.contacts]
        names = {p.device_id: p.name for p in now.peers}
        macs = {part.device_id: part.peer for part in plan.parts} if plan else dict.fromkeys(linked, "")
        changed = self._assessment.of_all((i, names.get(i) or name or i[:8]) for i, name in macs.items())
        if changed != now.trust:
            self._bus.publish(changed)

    def linked(self) -> list[Peer]:
        linked = [p for p in self._bus.now.peers if not p.is_self and p.state == "connected" and p.budget_bytes > 0]
        others = [p for p in linked if carries_prompts(p.trust)]
        return [self._own_now(), *sorted(others, key=lambda p: (-p.budget_bytes, p.name, p.device_id))]

    def rtt(self, source: str, target: str) -> float | None:
        """Round trip between two Macs in seconds, measured by either of them."""
        contacts = self._mesh.contacts
        if self.is_own(source) or self.is_own(target):
            contact = contacts.get(target if self.is_own(source) else source)
            return contact.rtt_s if contact else None
        return contacts[source].rtts.get(target) if source in contacts else None

    def apart(self) -> list[str]:
        """Why each linked Mac that can't hold layers can't."""
        return [peer.problem for peer in self._bus.now.peers if peer.state == "needs an update"]

    def _own_now(self) -> Peer:
        said = self._mesh.greeting
        return msgspec.structs.replace(self._own.now(self._mesh.address), version=said.version, runs_on=said.runs_on)

    def _met(self, device_id: str) -> None:
        members = [m.device_id for m in self._store.current.macs] if self._store.current else []
        self._seen.note(parse_text_id(device_id), time.time(), members)

    def find(self, device_id: str) -> Peer | None:
        return next((p for p in self._bus.now.peers if p.device_id == device_id), None)

    def _forget(self, device_id: str, reason: str) -> None:
        if self.find(device_id) and self._peer(device_id) is None:
            self._bus.publish(PeerGone(device_id=device_id, reason=reason))

    def _peer(self, device_id: str) -> Peer | None:
        contact = self._mesh.contacts.get(device_id)
        member = self._store.current.member(parse_text_id(device_id)) if self._store.current else None
        status = contact.status if contact else None
        greeting = (contact.greeting if contact else None) or Greeting()
        places = self._places(device_id, contact)
        trust = self._assessment.of(device_id).level
        if contact is None:  # a sighting of the id proves nothing
            trust = weakest([trust, "seen"])
        if not places and status is None and trust != "blocked":
            return None
        apart, dialling = self._mesh.why_apart(device_id), self._mesh.dialling
        problem = f"{apart.what} {apart.fix}" if apart else "" if contact else dialling.problem(device_id)
        state: PeerState = "seen"
        if apart or (member and dialling.is_apart(device_id)):
            state = "needs an update"
        elif contact:
            state = "suspect" if self._mesh.is_suspect(device_id) else "connected"
        elif member and (device_id in self._linked_once or problem):
            state = "lost"  # whatever Bonjour claims: only a link shows that it runs
        listed = self._assessment.listed_name(device_id)
        record = self._sightings.record(device_id)
        claimed = record.name or (status.name if status else "") or device_id[:8]
        return Peer(
            device_id=device_id,
            name=listed or claimed,
            state=state,
            trust=trust,
            address=places[0] if places else "",
            also_at=tuple(places[1:]),
            found_by="address" if self._book.is_by_hand(device_id) else "bonjour",
            problem=problem,
            rtt_s=contact.rtt_s if contact else None,
            version=greeting.version if contact else record.version,
            runs_on=greeting.runs_on,
            **(status.figures if status else {}),
        )

    def _places(self, device_id: str, contact: LinkedMac | None) -> list[str]:
        """Places to try; of a linked Mac first the link's address, whatever Bonjour claims."""
        places = self._book.of(device_id)
        if contact is None:
            return [str(place) for place in places]
        host = contact.link.remote_host
        here = [str(place) for place in places if place.host == host] or [host]
        return [*here, *(str(place) for place in places if place.host != host)]
