"""What follows from a roster, whoever signed it: plans with a Mac that is not trusted any more end at once, its links
are closed, everyone else is told, and what was kept of it is forgotten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from core.events import Plan
from core.node.answers.answers import Answers
from core.node.answers.sessions import SavedSessions
from core.node.base.journal import Journal
from core.node.base.tasks import Tasks
from core.node.peers.addresses import AddressBook
from core.node.peers.mesh import Mesh
from core.node.peers.peer_table import PeerTable
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.plan_member import PlanMember
from core.trust.identity import text_id
from core.trust.roster import RosterStore
from core.trust.trust_assessment import TrustAssessment, successor


class RosterEnforcement:
    """`restart` starts this node anew, with the key that its folder then holds.
    `news` is set by every roster, and waited for by whoever clears it.
    """

    def __init__(
        self,
        own_id: bytes,
        store: RosterStore,
        standing: TrustAssessment,
        *,
        book: AddressBook,
        mesh: Mesh,
        peers: PeerTable,
        cluster: PlanLeader,
        member: PlanMember,
        answers: Answers,
        sessions: SavedSessions,
        journal: Journal,
        tasks: Tasks,
        restart: Callable[[], None],
    ) -> None:
        self._own_id, self._store, self._standing = own_id, store, standing
        self._book, self._mesh, self._peers = book, mesh, peers
        self._cluster, self._member, self._answers, self._sessions = cluster, member, answers, sessions
        self._journal, self._tasks, self._restart = journal, tasks, restart
        self._epoch = store.current.epoch if store.current else 0
        self.news = asyncio.Event()

    @property
    def plan(self) -> Plan | None:
        """The plan that this Mac leads, or else serves."""
        return self._cluster.plan or self._member.plan

    def check(self, plan: Plan | None = None) -> None:
        """Raises NotPaired or RosterFork where this Mac, or one of `plan`, must see no prompt."""
        if fault := self._standing.fault(plan):
            raise fault.error

    def enforce(self) -> None:
        """Let no prompt go further than the roster allows: first the level, then the plans."""
        self._peers.refresh_trust()
        led, served = self._cluster.plan, self._member.plan
        if led and (fault := self._standing.fault(led)):
            self._tasks.spawn("The end of a plan", self._cluster.lost(fault.device_id, fault.error.problem))
        elif served and (fault := self._standing.fault(served)):
            self._tasks.spawn("Leaving a plan", self._member.distrust(fault.error.problem))

    async def follow(self) -> None:
        """A new roster is in force, or a fork is known."""
        self.enforce()
        gone = set()
        for device_id in self._newly_revoked():
            self._journal.warn(self._standing.of(text_id(device_id)).reason)
            if heir := successor(self._store.history, device_id):
                self._book.moved(text_id(device_id), text_id(heir))
            else:
                gone.add(text_id(device_id))
        await self._mesh.roster_changed()
        self._peers.refresh_all()
        if gone:
            self._tasks.spawn("Forgetting shared answers", self._answers.forget_shared(gone))
            self._tasks.spawn("Forgetting shared sessions", self._sessions.forget_shared(gone))
        self.news.set()
        if successor(self._store.history, self._own_id):
            self._restart()

    def _newly_revoked(self) -> list[bytes]:
        roster = self._store.cluster().roster
        seen, self._epoch = self._epoch, roster.epoch
        macs = {m.device_id for r in self._store.history for m in r.macs}
        return [r.device_id for r in roster.revoked if r.epoch > seen and r.device_id in macs]
