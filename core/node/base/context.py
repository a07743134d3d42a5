"""Shared context from which every room of a node is built."""

from __future__ import annotations

from dataclasses import dataclass

from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.message_table import MessageTable
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.config import NodeConfig
from core.settings import Home
from core.trust.identity import Identity
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs
from core.trust.trust_assessment import KnownFaults, TrustAssessment


@dataclass(frozen=True, kw_only=True)
class NodeContext:
    """This node's identity, its trust store, and everything else that its rooms share."""

    config: NodeConfig
    name: str  # of this Mac, in the roster or set by its owner
    identity: Identity
    store: RosterStore
    seen: SeenMacs
    faults: KnownFaults
    assessment: TrustAssessment
    bus: Bus
    signals: Signals
    journal: Journal
    tasks: Tasks
    messages: MessageTable

    @property
    def own_id(self) -> str:
        return self.identity.text_id

    @property
    def home(self) -> Home:
        return self.config.home
