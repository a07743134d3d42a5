"""The rooms of a node, built in floor order: each gets the context and the rooms below it."""

from __future__ import annotations

import asyncio
import os

from core.mac.prevent_sleep import SleepPreventer
from core.node.answers.room import AnswersRoom
from core.node.base.bus import Bus
from core.node.base.context import NodeContext
from core.node.base.journal import Journal
from core.node.base.last_run import record_waiting
from core.node.base.local_server import LocalServer
from core.node.base.message_table import MessageTable
from core.node.base.room import join
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.config import NodeConfig
from core.node.disks.room import DisksRoom
from core.node.pairing.room import PairingRoom
from core.node.peers.room import PeersRoom
from core.node.plans.room import PlansRoom
from core.node.public_api.room import PublicApiRoom
from core.node.relay.relayed_answers import Relay
from core.node.relay.room import RelayRoom
from core.node.restarting import Restarting
from core.node.ring.room import RingRoom
from core.node.trust.room import TrustRoom
from core.trust.file_formats import newer_files
from core.trust.private_files import private_folder
from core.trust.roster.key_rotation import settle_rotation
from core.trust.roster.store import RosterStore
from core.trust.seen_macs import SeenMacs
from core.trust.trust_assessment import KnownFaults, TrustAssessment


class NodeParts:
    """Every part of the node, built and wired, not started. Raises TrustError if this Mac's folder is damaged."""

    def __init__(self, config: NodeConfig, stopping: asyncio.Event) -> None:
        self.node = node = _context(config, stopping)
        self.awake = SleepPreventer(os.getpid())
        self.peers = peers = PeersRoom(node)
        self.trust = trust = TrustRoom(node, peers)
        self.pairing = PairingRoom(node, peers, trust)
        self.disks = disks = DisksRoom(node, peers)
        self.ring = ring = RingRoom(node, peers, disks)
        self.answers = answers = AnswersRoom(node, peers, ring)
        self.plans = plans = PlansRoom(node, peers, ring, answers)
        check_trust = answers.answers.opening.check_trust
        relay = Relay(peers.mesh, peers.elsewhere, node.tasks, lambda mac: node.bus.now.name_of(mac), check_trust)
        self.api = api = PublicApiRoom(node, answers, relay.model, disks.inventory.names, plans.load)
        self.relay = RelayRoom(node, peers.mesh, answers.answers, relay, api.answering)
        rooms = (peers, trust, self.pairing, disks, ring, answers, plans, api, self.relay)
        join(node, rooms)
        self.restarting = Restarting(node, peers.worker, stopping)
        routes = [row for part in (*rooms, self.restarting) for row in part.routes()]
        self.local_server = LocalServer(routes, node.bus, node.tasks)


def _context(config: NodeConfig, stopping: asyncio.Event) -> NodeContext:
    """`stopping` is set when a part fails that the node can't run without."""
    home = config.home
    private_folder(home.root)
    store = RosterStore(home.rosters)
    identity = settle_rotation(
        home.identity,
        store.lists,
        use_keychain=config.key == "keychain",
        on_wait=lambda is_waiting: record_waiting(home, is_waiting=is_waiting),
    )
    seen, faults, bus = SeenMacs(home.seen), KnownFaults(), Bus()
    assessment = TrustAssessment(store, seen, faults, identity.text_id, home.root)
    name = assessment.listed_name(identity.text_id) or config.name
    journal = Journal(home.log, name, bus)
    if seen.problem:
        journal.warn(f"{seen.problem} Until then this node remembers no strangers.")
    if newer := newer_files(home):
        said = "this node doesn't use them and leaves them as they are. Use that macluster."
        journal.warn(f"A newer macluster wrote {', '.join(newer)}: {said}")
    return NodeContext(
        config=config,
        name=name,
        identity=identity,
        store=store,
        seen=seen,
        faults=faults,
        assessment=assessment,
        bus=bus,
        signals=Signals(),
        journal=journal,
        tasks=Tasks(journal, stopping),
        messages=MessageTable(lambda: store.forked is not None),
    )
