"""The Macs that this node knows, as values for readers: sightings, links and roster in one table."""

from __future__ import annotations

import msgspec

from core.events import Level, Peer, PeerChanged, PeerGone, PeerSeen, PeerState, TrustChanged
from core.mac.memory import rss_bytes, used_bytes
from core.node.bus import Bus
from core.node.discovery import Sighting
from core.node.mesh import Mesh
from core.node.messages import Status
from core.node.supervisor import Supervisor
from core.trust.identity import Identity, parse_text_id
from core.trust.levels import weakest
from core.trust.roster import RosterStore


class Peers:
    """Publishes PeerSeen, PeerChanged, PeerGone and TrustChanged, each only when something changed."""

    def __init__(self, identity: Identity, store: RosterStore, bus: Bus, own: Peer) -> None:
        self._identity = identity
        self._store = store
        self._bus = bus
        self._own = own
        self._sightings: dict[str, Sighting] = {}
        self._by_address: set[str] = set()
        self._lost: set[str] = set()
        self._mesh: Mesh | None = None
        self._supervisor: Supervisor | None = None
        bus.publish(PeerSeen(peer=own))

    def attach(self, mesh: Mesh, supervisor: Supervisor, address: str) -> None:
        """Where links and the worker are to be asked about; this Mac's own address."""
        self._mesh, self._supervisor = mesh, supervisor
        self._own = _with(self._own, address=address)
        self.refresh_own()

    def status(self) -> Status:
        """How this Mac is, for the others."""
        own = self._own_now()
        contacts = self._mesh.contacts if self._mesh else {}
        return Status(
            name=own.name,
            chip=own.chip,
            memory_bytes=own.memory_bytes,
            budget_bytes=own.budget_bytes,
            used_bytes=own.used_bytes,
            worker_pid=own.worker_pid,
            worker_rss_bytes=own.worker_rss_bytes,
            rtts={d: c.rtt_s for d, c in contacts.items() if c.rtt_s is not None},
        )

    def is_own(self, device_id: str) -> bool:
        """Whether this is this Mac's own id."""
        return device_id == self._identity.text_id

    def sighted(self, sighting: Sighting, by_address: bool = False) -> None:
        """A Mac was advertised, or its address was given by hand."""
        self._sightings[sighting.device_id] = sighting
        if by_address:
            self._by_address.add(sighting.device_id)
        self._lost.discard(sighting.device_id)
        self.refresh(sighting.device_id)

    def went(self, device_id: str, reason: str) -> None:
        """The control link of a Mac ended."""
        known = self._find(device_id)
        if known:
            self._lost.add(device_id)
            self._bus.publish(PeerGone(device_id=device_id, reason=reason))
            self._bus.publish(PeerSeen(peer=_with(known, state="lost", rtt_s=None, worker_pid=None)))

    def refresh(self, device_id: str) -> None:
        """Publish a Mac anew if anything about it changed."""
        peer = self._peer(device_id)
        known = self._find(device_id)
        if peer and peer != known:
            self._bus.publish(PeerChanged(peer=peer) if known else PeerSeen(peer=peer))
            self.refresh_trust()

    def refresh_own(self) -> None:
        """Publish this Mac anew if anything about it changed."""
        own = self._own_now()
        if own != self._find(own.device_id):
            self._bus.publish(PeerChanged(peer=own))

    def refresh_trust(self) -> None:
        """The cluster's level is that of the weakest Mac in the plan, or of the linked ones without a plan."""
        now = self._bus.now
        members = (
            {s.device_id for s in now.plan.stages}
            if now.plan
            else {p.device_id for p in now.peers if p.state in ("connected", "suspect")}
        )
        peers = [p for p in now.peers if p.device_id in members]
        level = weakest(p.trust for p in peers)
        name = next((p.name for p in reversed(peers) if p.trust == level), "")
        changed = TrustChanged(level=level, weakest=name)
        if changed != now.trust:
            self._bus.publish(changed)

    def linked(self) -> list[Peer]:
        """Paired Macs with a live link and known budgets, this one first, then by budget."""
        others = [p for p in self._bus.now.peers if not p.is_self and p.state == "connected" and p.budget_bytes > 0]
        return [self._own_now(), *sorted(others, key=lambda p: (-p.budget_bytes, p.name, p.device_id))]

    def rtt(self, source: str, target: str) -> float | None:
        """Round trip between two Macs in seconds, measured by either of them."""
        contacts = self._mesh.contacts if self._mesh else {}
        if source == self._identity.text_id or target == self._identity.text_id:
            contact = contacts.get(target if source == self._identity.text_id else source)
            return contact.rtt_s if contact else None
        contact = contacts.get(source)
        return contact.status.rtts.get(target) if contact and contact.status else None

    def _own_now(self) -> Peer:
        pid = self._supervisor.pid if self._supervisor else None
        rss = rss_bytes(pid) if pid else 0
        return _with(
            self._own, used_bytes=min(used_bytes(), self._own.memory_bytes), worker_pid=pid, worker_rss_bytes=rss
        )

    def _find(self, device_id: str) -> Peer | None:
        return next((p for p in self._bus.now.peers if p.device_id == device_id), None)

    def _peer(self, device_id: str) -> Peer | None:
        contact = self._mesh.contacts.get(device_id) if self._mesh else None
        sighting = self._sightings.get(device_id)
        member = self._store.current.member(parse_text_id(device_id)) if self._store.current else None
        status = contact.status if contact else None
        if sighting is None and status is None:
            return None
        state: PeerState = "seen"
        if contact:
            state = "suspect" if contact.suspect else "connected"
        elif device_id in self._lost:
            state = "lost"
        trust: Level = member.level if member else "unpaired"
        name = member.name if member else (sighting.name if sighting else status.name if status else device_id[:8])
        return Peer(
            device_id=device_id,
            name=name,
            chip=status.chip if status else "",
            memory_bytes=status.memory_bytes if status else 0,
            budget_bytes=status.budget_bytes if status else 0,
            used_bytes=status.used_bytes if status else 0,
            state=state,
            trust=trust,
            address=f"{sighting.host}:{sighting.port}" if sighting else "",
            found_by="address" if device_id in self._by_address else "bonjour",
            rtt_s=contact.rtt_s if contact else None,
            worker_pid=status.worker_pid if status else None,
            worker_rss_bytes=status.worker_rss_bytes if status else 0,
        )


def _with(peer: Peer, **changes: object) -> Peer:
    return msgspec.structs.replace(peer, **changes)
