"""The room of answers: prompts, token logs and sessions of the plan that this Mac leads."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from core.events import Batch, PromptLogprobs
from core.node.answers.answers import Answers
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.saved_sessions import SavedSessions
from core.node.answers.tokenizer import Tokenizer
from core.node.base.context import NodeContext
from core.node.base.local_server import route
from core.node.base.room import Room
from core.node.peers.room import PeersRoom
from core.node.ring.room import RingRoom
from core.node.ring.worker_supervisor import WorkerReported
from core.node.trust.roster_enforcement import MacsRevoked
from core.requests.conversations import SessionName
from core.worker import messages


class AnswersRoom(Room):
    """Answers and saved sessions."""

    def __init__(self, node: NodeContext, peers: PeersRoom, ring: RingRoom) -> None:
        super().__init__(node)
        self.answers = Answers(node, peers.worker, ring.supervisor, ModelTokenizer(Tokenizer.start))
        self.sessions = SavedSessions(node, peers.worker, ring.supervisor, self.answers)

    def routes(self) -> Iterable[web.RouteDef]:
        sessions = self.sessions
        return (
            route("GET", "/v1/answers", self.answers.unfinished),
            route("GET", "/v1/sessions", sessions.all),
            route("GET", "/v1/sessions/{name:[^/]+}", sessions.show, SessionName),
            route("PUT", "/v1/sessions/{name:[^/]+}", sessions.save, SessionName),
            route("DELETE", "/v1/sessions/{name:[^/]+}", sessions.delete, SessionName),
            route("POST", "/v1/sessions/{name:[^/]+}/load", sessions.load, SessionName),
            route("POST", "/v1/sessions/stop", sessions.give_up),
        )

    def subscribe(self) -> None:
        self.node.signals.on(WorkerReported, self._worker_reported)
        self.node.signals.on(MacsRevoked, self._revoked)

    def _worker_reported(self, said: WorkerReported) -> None:
        match report := said.report:
            case (
                PromptLogprobs() | messages.Departed() | messages.Token() | messages.Prefilled() | messages.AnswerDone()
            ):
                self.answers.handle_report(report)
            case messages.Mirrored() | messages.Unmirrored() | messages.WantSpans() | messages.Restored():
                self.answers.handle_mirror_report(report)
            case Batch():
                self.answers.counted(report)
            case messages.SessionSaved() | messages.SessionLoaded() | messages.SessionFailed():
                self.sessions.handle_report(report)
            case messages.Listening():
                self.node.tasks.spawn("Forgetting unfinished sessions", self.sessions.forget_unfinished())

    def _revoked(self, revoked: MacsRevoked) -> None:
        tasks, macs = self.node.tasks, revoked.device_ids
        tasks.spawn_essential("Forgetting shared answers", self.answers.forget_shared(macs))
        tasks.spawn_essential("Forgetting shared sessions", self.sessions.forget_shared(macs))
