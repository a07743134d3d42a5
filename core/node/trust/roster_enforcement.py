"""Enforces a new roster: ends plans and links with distrusted Macs, deletes shared data, and tells other Macs."""

from __future__ import annotations

import asyncio

from core.errors import Problem
from core.events import Plan
from core.node.base.context import NodeContext
from core.node.base.signals import Signal
from core.node.peers.addresses import AddressBook
from core.node.peers.mesh import Mesh, RosterArrived
from core.node.peers.peer_table import PeerTable
from core.node.peers.worker_state import WorkerState
from core.trust.identity import text_id
from core.trust.trust_assessment import successor


class PlanDistrusted(Signal, frozen=True):
    """This Mac or another one of the plan that it leads or serves must not see prompts any more."""

    plan: Plan
    device_id: str
    problem: Problem


class MacsRevoked(Signal, frozen=True):
    """These Macs left the cluster, and not by changing their key."""

    device_ids: frozenset[str]


class KeyReplaced(Signal, frozen=True):
    """The roster has a new key of this Mac: the node restarts with it."""


class RosterEnforcement:
    """Applies each new roster."""

    def __init__(self, node: NodeContext, book: AddressBook, mesh: Mesh, peers: PeerTable, worker: WorkerState) -> None:
        self._own_id, self._store, self._assessment = node.identity.device_id, node.store, node.assessment
        self._book, self._mesh, self._peers, self._worker = book, mesh, peers, worker
        self._signals, self._journal = node.signals, node.journal
        current = node.store.current
        self._revoked = {r.device_id for r in current.revoked} if current else set[bytes]()
        self.news = asyncio.Event()  # set by every roster; cleared by its waiters
        node.signals.on_awaited(RosterArrived, lambda _: self.follow())

    def enforce(self) -> None:
        """Stop prompts that the roster no longer allows: first the level, then the plan."""
        self._peers.refresh_trust()
        plan = self._worker.led or self._worker.plan
        if plan and (fault := self._assessment.fault(plan)):
            self._signals.emit(PlanDistrusted(plan, fault.device_id, fault.error.problem))

    async def follow(self) -> None:
        self.enforce()
        gone = set[str]()
        for device_id in self._newly_revoked():
            self._journal.warn(self._assessment.of(text_id(device_id)).reason)
            if heir := successor(self._store.history, device_id):
                self._book.moved(text_id(device_id), text_id(heir))
            else:
                gone.add(text_id(device_id))
        await self._mesh.roster_changed()
        self._peers.refresh_all()
        if gone:
            self._signals.emit(MacsRevoked(frozenset(gone)))
        self.news.set()
        if successor(self._store.history, self._own_id):
            self._signals.emit(KeyReplaced())

    def _newly_revoked(self) -> list[bytes]:
        """Compares members, not epochs: after a fork the chosen history may have revoked them in an older epoch."""
        gone = [r.device_id for r in self._store.cluster().roster.revoked]
        before, self._revoked = self._revoked, set(gone)
        macs = {m.device_id for r in self._store.history for m in r.macs}
        return [device_id for device_id in gone if device_id not in before and device_id in macs]
