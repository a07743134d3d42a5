"""Who gets what: messages of other Macs, links that change or end, reports of the worker, and what a roster ends."""

from __future__ import annotations

from core.errors import Problem
from core.events import PromptLogprobs
from core.node.answers.answers import Answers
from core.node.answers.saved_sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.base.file_messages import (
    BytesAsk,
    BytesReady,
    CopyAsk,
    CopyChange,
    CopyProgress,
    FalseFile,
    FilesAsk,
    FilesSent,
    HashesAsk,
    HashesSent,
    Holds,
    HoldsAsk,
)
from core.node.base.journal import Journal
from core.node.base.messages import (
    Bye,
    Checked,
    ClockAsk,
    ClockReply,
    KeyChange,
    KeyRefused,
    LinkProbe,
    LinkUp,
    LogAsk,
    LogReply,
    Prepared,
    PrepareStage,
    Probed,
    RelayAsk,
    RelayReply,
    RelayStop,
    Release,
    Reported,
    SpeedAsk,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
    StageLost,
    TraceAsk,
    TraceReply,
)
from core.node.base.signals import Signals
from core.node.base.tasks import Tasks
from core.node.disks.hub_comparison import HubComparison
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfers import Transfers
from core.node.peers.contact import ContactChanged
from core.node.peers.mesh import LinkEnded, PeerMessage
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.peer_table import PeerTable
from core.node.peers.speed_test import SpeedTests
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import Relay
from core.node.ring.hop_figures import hop_samples
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.plan_member import PlanMember
from core.node.ring.ring_trace import Tracing
from core.node.ring.worker_supervisor import WorkerEnded, WorkerReported
from core.node.trust.roster_enforcement import MacsRevoked, PlanDistrusted
from core.node.trust.trust_commands import TrustCommands
from core.trust.roster import RosterStore
from core.worker.messages import (
    AnswerDone,
    Batching,
    Departed,
    Failed,
    LinkBroken,
    Linked,
    Listening,
    Loaded,
    Loading,
    Mirrored,
    PrefillBroken,
    Prefilled,
    PrefillLinked,
    Proved,
    ReadBeside,
    Restored,
    Samples,
    SessionFailed,
    SessionLoaded,
    SessionSaved,
    Token,
    Traced,
    Unmirrored,
    Unproved,
    WantSpans,
)


class MessageRouter:
    """Passes each to the part of the node that it is for. While the roster is forked nobody gets files, tests or logs,
    for what it says of anyone may be false.
    """

    def __init__(
        self,
        signals: Signals,
        *,
        store: RosterStore,
        peers: PeerTable,
        speed: SpeedTests,
        trust: TrustCommands,
        inventory: ModelInventory,
        transfers: Transfers,
        comparison: HubComparison,
        member: PlanMember,
        leader: PlanLeader,
        answers: Answers,
        sessions: SavedSessions,
        recovery: RecoveryDriver,
        relay: Relay,
        relay_server: RelayServer,
        tracing: Tracing,
        logs: PeerLogs,
        bus: Bus,
        journal: Journal,
        tasks: Tasks,
    ) -> None:
        self._store, self._peers, self._speed, self._trust = store, peers, speed, trust
        self._inventory, self._transfers, self._comparison = inventory, transfers, comparison
        self._member, self._leader = member, leader
        self._answers, self._sessions, self._recovery = answers, sessions, recovery
        self._relay, self._relay_server = relay, relay_server
        self._tracing, self._logs = tracing, logs
        self._bus, self._journal, self._tasks = bus, journal, tasks
        signals.on_awaited(PeerMessage, self._message)
        signals.on(ContactChanged, self._contact_changed)
        signals.on_awaited(LinkEnded, self._link_ended)
        signals.on(WorkerReported, self._worker_reported)
        signals.on(WorkerEnded, self._worker_ended)
        signals.on(PlanDistrusted, self._distrusted)
        signals.on(MacsRevoked, self._revoked)

    async def _message(self, said: PeerMessage) -> None:
        device_id, message = said.device_id, said.message
        match message:
            case PrepareStage():
                self._prepare_stage(device_id, message)
            case LinkUp():
                await self._member.link(device_id, message)
            case Release():
                # beside the rest: ending a worker takes up to 2 s
                self._tasks.spawn("Releasing a plan", self._member.release_for(device_id, message))
            case Prepared() | Checked() | Reported() | StageLost():
                await self._leader.handle_message(device_id, message)
            case Bye():
                self._tasks.spawn("Releasing a plan", self._member.head_left(device_id))
            case KeyChange() | KeyRefused():
                self._tasks.spawn("A message about a key", self._trust.handle_message(device_id, message))
            case Holds() | HoldsAsk():
                await self._transfers.handle_message(device_id, message)
            case LinkProbe() | Probed() | SpeedAsk() | SpeedMoved() | SpeedResultSent() | SpeedStop() if (
                not self._store.forked
            ):
                await self._speed.handle_message(device_id, message)
            case (
                FilesAsk()
                | FilesSent()
                | HashesAsk()
                | HashesSent()
                | BytesAsk()
                | BytesReady()
                | CopyAsk()
                | CopyChange()
                | CopyProgress()
            ) if not self._store.forked:
                await self._transfers.handle_message(device_id, message)
            case FalseFile() if not self._store.forked:
                self._tasks.spawn("A file that is not the hub's", self._comparison.drop(message))
            case RelayAsk() | RelayStop():
                await self._relay_server.handle_message(device_id, message)
            case ClockAsk() | ClockReply() | TraceAsk() | TraceReply():
                await self._tracing.handle_message(device_id, message)
            case LogAsk() | LogReply() if not self._store.forked:
                await self._logs.handle_message(device_id, message)
            case RelayReply():
                self._relay.handle_message(device_id, message)
            case _:
                return

    def _prepare_stage(self, head: str, order: PrepareStage) -> None:
        """What another Mac sends must not be able to stop this node: it is refused where it shows a defect."""

        def refuse() -> None:
            self._tasks.spawn("Refusing a stage", self._member.refuse(head, order.plan.plan_gen))

        self._tasks.spawn("Preparing a stage", self._member.prepare(head, order), on_defect=refuse)

    def _contact_changed(self, contact: ContactChanged) -> None:
        self._peers.refresh(contact.device_id)
        self._recovery.changed(contact.device_id)
        self._tasks.spawn("Reporting what this Mac holds", self._inventory.announce(contact.device_id))

    async def _link_ended(self, ended: LinkEnded) -> None:
        device_id, why = ended.device_id, ended.error.what
        peer = self._peers.find(device_id)
        name = peer.name if peer else device_id[:8]
        self._journal.warn(f"{name} is gone: {why}")
        self._peers.went(device_id, why)
        problem = Problem(kind="LinkLost", what=f"{name} is gone: {why}", fix="Load the model again without it.")
        self._recovery.gone(device_id)
        self._speed.gone(device_id)
        self._logs.gone(device_id)
        self._transfers.gone(device_id)
        self._relay.gone(device_id)
        self._relay_server.gone(device_id)
        await self._leader.lost(device_id, problem)
        self._member.head_lost(device_id, why)

    def _worker_reported(self, said: WorkerReported) -> None:
        match report := said.report:
            case PromptLogprobs() | Departed():
                self._answers.handle_report(report)
            case Token() | Prefilled() | AnswerDone():
                self._answers.handle_report(report)
                self._recovery.handle_report(report)
            case Mirrored() | Unmirrored() | WantSpans() | Restored():
                self._answers.handle_mirror_report(report)
            case Batching(batch=batch):
                self._answers.counted(batch)
            case SessionSaved() | SessionLoaded() | SessionFailed():
                self._sessions.handle_report(report)
            case Samples(stages=stages) if self._leader.plan and len(stages) == len(self._leader.plan.stages):
                for hop in hop_samples(self._leader.plan, stages, self._peers.rtt, self._leader.path_from):
                    self._bus.publish(hop)
            case Loading() | Loaded() | Failed() | Linked() | LinkBroken():
                self._tasks.spawn_essential("A report of the worker", self._member.reported(report))
            case PrefillLinked() | PrefillBroken():
                self._leader.prefill_reported(report)
            case ReadBeside(request_id=name, tokens=0):
                self._journal.warn(f"The ring reads the prompt of {name[:8]}: the Mac beside it could not.")
            case Proved() | Unproved():
                self._tasks.spawn_essential("The proof of the ring", self._leader.proved(report))
            case Listening():
                self._tasks.spawn("Forgetting unfinished sessions", self._sessions.forget_unfinished())
            case Samples() | Traced() | ReadBeside():
                return

    def _worker_ended(self, ended: WorkerEnded) -> None:
        self._journal.error(ended.error.what)
        self._tasks.spawn_essential("The end of the worker", self._member.worker_died(ended.error.problem))

    def _distrusted(self, plan: PlanDistrusted) -> None:
        """Whoever does not have that plan does nothing."""
        self._tasks.spawn_essential("The end of a plan", self._leader.distrusted(plan.device_id, plan.problem))
        self._tasks.spawn_essential("Leaving a plan", self._member.distrust(plan.problem))

    def _revoked(self, revoked: MacsRevoked) -> None:
        self._tasks.spawn_essential("Forgetting shared answers", self._answers.forget_shared(revoked.device_ids))
        self._tasks.spawn_essential("Forgetting shared sessions", self._sessions.forget_shared(revoked.device_ids))
