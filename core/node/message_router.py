"""Who hears what: messages of other Macs, links that end, reports of the worker."""

from __future__ import annotations

from collections.abc import Callable

from core.errors import LinkLost, Problem, WorkerDied
from core.node.answers.answers import Answers
from core.node.answers.sessions import SavedSessions
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.messages import (
    AnyMessage,
    Bye,
    Checked,
    CopyAsk,
    CopyProgress,
    FilesAsk,
    FilesSent,
    Holds,
    HoldsAsk,
    KeyChange,
    KeyRefused,
    LinkProbe,
    LinkUp,
    PartAsk,
    PartSent,
    Prepared,
    PrepareStage,
    Probed,
    Release,
    Reported,
    SpeedAsk,
    SpeedMoved,
    SpeedResultSent,
    SpeedStop,
    StageLost,
)
from core.node.base.tasks import Tasks
from core.node.disks.transfers import Transfers
from core.node.peers.peer_table import PeerTable
from core.node.peers.speed_test import SpeedTests
from core.node.recovery.recovery_driver import RecoveryDriver
from core.node.ring.hop_samples import hop_samples
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.plan_member import PlanMember
from core.node.trust.trust_commands import TrustCommands
from core.worker.messages import (
    AnswerDone,
    Batching,
    Failed,
    LinkBroken,
    Linked,
    Listening,
    Loaded,
    Loading,
    Prefilled,
    Proved,
    Report,
    Samples,
    SessionFailed,
    SessionLoaded,
    SessionSaved,
    Token,
    Traced,
    Unproved,
)


class MessageRouter:
    """Passes each to the part of the node that it is for. While the roster is forked nobody gets files or tests, for
    what it says of anyone may be false.
    """

    def __init__(
        self,
        *,
        cluster: PlanLeader,
        member: PlanMember,
        answers: Answers,
        sessions: SavedSessions,
        rescue: RecoveryDriver,
        trusting: TrustCommands,
        speed: SpeedTests,
        transfers: Transfers,
        peers: PeerTable,
        bus: Bus,
        journal: Journal,
        tasks: Tasks,
        is_forked: Callable[[], bool],
    ) -> None:
        self._cluster, self._member, self._answers, self._trusting = cluster, member, answers, trusting
        self._rescue = rescue
        self._sessions, self._speed, self._transfers = sessions, speed, transfers
        self._peers, self._bus, self._journal, self._tasks = peers, bus, journal, tasks
        self._is_forked = is_forked

    async def message(self, device_id: str, message: AnyMessage) -> None:
        """Another Mac says something."""
        match message:
            case PrepareStage():
                self._tasks.spawn("Preparing a stage", self._member.prepare(device_id, message))
            case LinkUp():
                await self._member.link(device_id, message)
            case Release():
                self._tasks.spawn(
                    "Releasing a plan", self._member.release_for(device_id, message)
                )  # ending a worker takes up to 2 s
            case Prepared() | Checked() | Reported() | StageLost():
                await self._cluster.handle_message(device_id, message)
            case Bye():
                self._tasks.spawn("Releasing a plan", self._member.head_left(device_id))
            case KeyChange() | KeyRefused():
                self._tasks.spawn("A message about a key", self._trusting.handle_message(device_id, message))
            case Holds() | HoldsAsk():
                await self._transfers.handle_message(device_id, message)
            case LinkProbe() | Probed() | SpeedAsk() | SpeedMoved() | SpeedResultSent() | SpeedStop() if (
                not self._is_forked()
            ):
                await self._speed.handle_message(device_id, message)
            case FilesAsk() | FilesSent() | PartAsk() | PartSent() | CopyAsk() | CopyProgress() if (
                not self._is_forked()
            ):
                await self._transfers.handle_message(device_id, message)
            case _:
                return

    async def down(self, device_id: str, error: LinkLost) -> None:
        """The control link of another Mac ended."""
        peer = self._peers.find(device_id)
        name = peer.name if peer else device_id[:8]
        self._journal.warn(f"{name} is gone: {error.what}")
        self._peers.went(device_id, error.what)
        problem = Problem(kind="LinkLost", what=f"{name} is gone: {error.what}", fix="Load the model again without it.")
        self._rescue.gone(device_id)
        self._speed.gone(device_id)
        self._transfers.gone(device_id)
        await self._cluster.lost(device_id, problem)
        self._member.head_lost(device_id, error.what)

    def report(self, report: Report) -> None:
        """This Mac's worker says something."""
        match report:
            case Token() | Prefilled() | AnswerDone():
                self._answers.handle_report(report)
                self._rescue.handle_report(report)
            case Batching(batch=batch):
                self._answers.counted(batch)
            case SessionSaved() | SessionLoaded() | SessionFailed():
                self._sessions.handle_report(report)
            case Samples(stages=stages) if self._cluster.plan and len(stages) == len(self._cluster.plan.stages):
                for hop in hop_samples(self._cluster.plan, stages, self._peers.rtt):
                    self._bus.publish(hop)
            case Loading() | Loaded() | Failed() | Linked() | LinkBroken():
                self._tasks.spawn("A report of the worker", self._member.reported(report))
            case Proved() | Unproved():
                self._tasks.spawn("The proof of the ring", self._cluster.proved(report))
            case Listening():
                self._tasks.spawn("Forgetting unfinished sessions", self._sessions.forget_unfinished())
            case Samples() | Traced():
                return

    def died(self, error: WorkerDied) -> None:
        """This Mac's worker ended unexpectedly."""
        self._journal.error(error.what)
        self._tasks.spawn("The end of the worker", self._member.worker_died(error.problem))
