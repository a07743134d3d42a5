"""What a node is made of, and the one place where its parts are made and joined: each gets those that it works with, so
that lower rooms come first. Who is told by signals subscribes as it is made.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

import msgspec

from core.address import Place
from core.events import Peer
from core.link.rekey_limits import KEY_LIMITS, KeyUse
from core.mac.chip import chip_name
from core.mac.memory import physical_bytes
from core.mac.prevent_sleep import SleepPreventer, WhenAwake
from core.node.answers.answers import Answers
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.saved_sessions import SavedSessions
from core.node.answers.tokenizer import Tokenizer
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.last_words import say_waiting
from core.node.base.own_worker import OwnWorker
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.disks.byte_links import ByteLinks
from core.node.disks.conversations import Conversations
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.local_models import LocalModels
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfers import Transfers
from core.node.local_api import LocalApi
from core.node.message_router import MessageRouter
from core.node.pairing.pairing_flow import PairingFlow
from core.node.peers.addresses import AddressBook, read_proven, write_proven
from core.node.peers.check import NodeCheck
from core.node.peers.discovery import Discovery
from core.node.peers.mesh import Mesh
from core.node.peers.networks import Networks
from core.node.peers.own_mac import OwnMac
from core.node.peers.paths import Paths
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.peer_table import PeerTable
from core.node.peers.search import Search
from core.node.peers.sightings import Sightings
from core.node.peers.speed_test import SpeedTests
from core.node.public_api.api_answers import ApiAnswers
from core.node.public_api.api_clients import Clients
from core.node.public_api.api_control import ApiControl
from core.node.public_api.api_options import ApiOptions
from core.node.public_api.load_on_request import LoadOnRequest
from core.node.public_api.public_api import PublicApi
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import Relay
from core.node.ring.disk_trimming import Trimming
from core.node.ring.hub_model_previews import HubModelPreviews
from core.node.ring.layers_held_last import LayersHeldLast
from core.node.ring.plan_advisor import PlanAdvisor
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planning
from core.node.ring.ring_trace import Tracing
from core.node.ring.split_profiles import SplitProfiles
from core.node.ring.stage_files import StageFiles
from core.node.ring.throughput_history import ThroughputHistory
from core.node.ring.worker_supervisor import Supervisor
from core.node.trust.roster_enforcement import RosterEnforcement
from core.node.trust.trust_commands import TrustCommands
from core.settings import KEY_PLACE, Home, KeyPlace, hub_cache
from core.trust.api_keys import ApiKeys
from core.trust.identity import Identity, parse_text_id
from core.trust.known_faults import KnownFaults
from core.trust.pairing_attempts import PairingAttempts
from core.trust.private_files import private_folder
from core.trust.roster import RosterStore
from core.trust.roster.key_rotation import settle_rotation
from core.trust.seen_macs import SeenMacs
from core.trust.trust_assessment import TrustAssessment


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a node is started. `host` is the address it listens on; `budget_bytes` what its worker may use; `peers` are
    places of other Macs, whichever they are; `key_limits` is what a key of a link may carry. Where
    `has_spare`, a second worker stands ready while a model is loaded; where `wires`, what is loaded stays wired.
    `awake`: when this Mac does not fall asleep. `api`: how other programs are served; where `serves`, from the start.
    `relays`: what programs ask a Mac that does not lead is answered by the one that does; this Mac takes part in that.
    `key`: where the key of this Mac is kept if it is made now.
    """

    home: Home
    name: str
    host: str
    port: int
    budget_bytes: int
    memory_bytes: int = 0
    chip: str = ""
    model_roots: tuple[Path, ...] = ()
    multicast: bool = True
    group: str = ""
    peers: tuple[Place, ...] = ()
    key_limits: KeyUse = KEY_LIMITS
    has_spare: bool = True
    wires: bool = True
    awake: WhenAwake = "loaded"
    api: ApiOptions = ApiOptions()
    serves: bool = False
    relays: bool = True
    key: KeyPlace = KEY_PLACE


class NodeParts:
    """Nothing runs yet, and nothing is missing. `stopping` is set where a part fails that the node cannot do without.
    Raises TrustError where this Mac's folder is damaged.
    """

    def __init__(self, config: NodeConfig, stopping: asyncio.Event) -> None:
        home, host = config.home, config.host
        private_folder(home.root)

        self.store = store = RosterStore(home.rosters)
        self.identity = identity = settle_rotation(
            home.identity,
            store.lists,
            use_keychain=config.key == "keychain",
            on_wait=lambda is_waiting: say_waiting(home, is_waiting=is_waiting),
        )
        self.seen = seen = SeenMacs(home.seen)
        own_id, faults = identity.text_id, KnownFaults()
        assessment = TrustAssessment(store, seen, faults, own_id, home.root)
        name = assessment.listed_name(own_id) or config.name

        # base
        self.bus = bus = Bus()
        self.signals = signals = Signals()
        self.journal = journal = Journal(home.log, name, bus)
        self.tasks = tasks = Tasks(journal, stopping)
        self.worker = worker = OwnWorker()
        self.awake = SleepPreventer(os.getpid())

        # peers
        def is_member(device_id: str) -> bool:
            return store.lists(parse_text_id(device_id))

        self.sightings = sightings = Sightings(is_member)
        remember = partial(write_proven, home.addresses)
        self.networks = networks = Networks(host, signals)
        book = AddressBook(sightings, config.peers, read_proven(home.addresses), remember, networks.is_barred)
        own = OwnMac(_own_peer(config, identity), assessment, worker, networks, relays=config.relays)
        self.mesh = mesh = Mesh(identity, store, book, faults, own, signals, journal, tasks, config.key_limits)
        self.peers = peers = PeerTable(own, worker, store, assessment, seen, sightings, book, mesh, bus)
        self.logs = logs = PeerLogs(mesh, journal, bus, tasks)
        paths = Paths(identity, store, mesh, networks, book)
        self.speed = speed = SpeedTests(own_id, mesh, paths, bus, tasks)
        self.discovery = discovery = Discovery(own_id, name, host, signals, tasks, is_member, config.group)
        self.search = search = Search(discovery, book, mesh, peers, signals, journal, tasks, multicast=config.multicast)
        check = NodeCheck(
            home, host, config.budget_bytes, worker, identity.storage, bus, discovery, tasks, multicast=config.multicast
        )

        # trust and pairing
        self.enforcement = enforcement = RosterEnforcement(
            identity.device_id, store, assessment, book, mesh, peers, worker, signals, journal
        )
        trust = TrustCommands(identity, home, store, assessment, enforcement, mesh, worker, bus, journal)
        self.pairing = pairing = PairingFlow(
            identity,
            name,
            host,
            store,
            PairingAttempts(home.pairing_attempts),
            discovery,
            book,
            enforcement,
            bus,
            journal,
            tasks,
        )

        # disks
        models = LocalModels([home.models, *config.model_roots], home.hashes)
        self.inventory = inventory = ModelInventory(own_id, models, mesh, bus)
        copies = ModelCopies(models, mesh, ByteLinks(identity, store.cluster, paths.ways, host), home.models, tasks)
        hub = hub_cache() if hub_cache() in config.model_roots else home.models
        self.transfers = transfers = Transfers(
            own_id, inventory, copies, mesh, hub, home.paused, bus=bus, journal=journal, tasks=tasks
        )
        comparison = HubComparison(models, inventory, copies, mesh, transfers.own, journal)
        conversations = Conversations(home.conversations, identity.secret("conversation"))

        # ring
        self.supervisor = supervisor = Supervisor(
            identity, host, worker, signals, journal, tasks, has_spare=config.has_spare, wires=config.wires
        )
        self.member = member = PlanMember(
            own_id,
            mesh,
            paths,
            supervisor,
            worker,
            models,
            comparison,
            store,
            assessment,
            signals,
            journal,
            tasks,
            config.key_limits,
        )
        stages = LayersHeldLast(home.stages, signals, tasks)
        profiles = SplitProfiles(home.split_profiles)
        files = StageFiles(inventory, profiles, transfers, comparison)
        leader = PlanLeader(own_id, mesh, member, files, worker, faults, signals, bus, journal, tasks)
        tracing = Tracing(own_id, mesh, supervisor, worker, leader, signals, tasks)
        trimming = Trimming(home.models, models, inventory, copies.serving, transfers.own, profiles, stages, leader)
        throughput = ThroughputHistory(home.throughput)
        simulated = bool(config.chip)
        planning = Planning(
            models, profiles, inventory, files, peers, leader, throughput, assessment, simulated=simulated
        )
        known = HubModelPreviews(inventory, peers, throughput, simulated=simulated)

        # answers and their recovery
        self.answers = answers = Answers(
            leader,
            supervisor,
            bus,
            journal,
            tasks,
            home.tokens,
            identity.secret("token log"),
            ModelTokenizer(Tokenizer.start),
        )
        self.sessions = sessions = SavedSessions(
            leader, supervisor, answers, journal, home.sessions, identity.secret("session")
        )
        self.recovery = recovery = RecoveryDriver(
            planning, assessment, peers, leader, answers, sessions, signals, bus, journal, tasks
        )
        self.advisor = PlanAdvisor(bus, throughput, planning, leader, recovery.rebalance)

        # what comes in: from other programs, from a person, from other Macs and from the worker
        keys = ApiKeys(home.api_keys)
        clients, options = Clients(keys, bus), config.api
        certificate = home.api_certificate, identity.secret("api certificate")
        self.relay = relay = Relay(mesh, worker, bus, tasks, answers.check_trust, is_on=config.relays)
        by_request = LoadOnRequest(lambda: [model.name for model in inventory.own], recovery.load, bus)
        loading = by_request if options.allow_load else None
        self.answering = answering = ApiAnswers(answers, lambda: bus.now, relay.model, tasks, options.queue, loading)
        relay_server = RelayServer(answering, mesh, tasks, relay.name_of, answers.check_trust, is_on=config.relays)
        make_api = partial(PublicApi, options, answering, keys, clients, bus, tasks, *certificate)
        self.api = api = ApiControl(make_api, keys, clients, bus, journal)
        self.local_api = LocalApi(
            planning=planning,
            known=known,
            recovery=recovery,
            answers=answers,
            sessions=sessions,
            conversations=conversations,
            transfers=transfers,
            trimming=trimming,
            speed=speed,
            tracing=tracing,
            logs=logs,
            search=search,
            check=check,
            pairing=pairing,
            trust=trust,
            api=api,
            bus=bus,
            tasks=tasks,
        )
        MessageRouter(
            signals,
            store=store,
            peers=peers,
            speed=speed,
            trust=trust,
            inventory=inventory,
            transfers=transfers,
            comparison=comparison,
            member=member,
            leader=leader,
            answers=answers,
            sessions=sessions,
            recovery=recovery,
            relay=relay,
            relay_server=relay_server,
            tracing=tracing,
            logs=logs,
            bus=bus,
            journal=journal,
            tasks=tasks,
        )


def _own_peer(config: NodeConfig, identity: Identity) -> Peer:
    return Peer(
        device_id=identity.text_id,
        name=config.name,
        chip=config.chip or chip_name(),
        memory_bytes=config.memory_bytes or physical_bytes(),
        budget_bytes=config.budget_bytes,
        state="connected",
        trust="paired",
        is_self=True,
        found_by="self",
    )
