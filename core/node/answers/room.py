"""The room of answers: prompts, token logs and sessions of the plan that this Mac leads."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import msgspec
from aiohttp import web

from core.events import Batch, PromptLogprobs
from core.node.answers.answers import Answers
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.saved_sessions import SavedSessions
from core.node.answers.tokenizer import Tokenizer
from core.node.base.context import NodeContext
from core.node.base.local_server import BEGUN, body_of, route
from core.node.base.room import Room
from core.node.ring.room import RingRoom
from core.node.ring.worker_supervisor import WorkerReported
from core.node.trust.roster_enforcement import MacsRevoked
from core.requests.answers import AnswerId, ChatRequest, RequestAccepted
from core.requests.conversations import SessionName
from core.worker import messages


@dataclass(frozen=True, kw_only=True)
class AnswersRoom(Room):
    """Answers and saved sessions."""

    answers: Answers
    sessions: SavedSessions

    @classmethod
    def build(cls, node: NodeContext, ring: RingRoom) -> Self:
        answers = Answers(node, ring.leader, ring.supervisor, ModelTokenizer(Tokenizer.start))
        return cls(node=node, answers=answers, sessions=SavedSessions(node, ring.leader, ring.supervisor, answers))

    def routes(self) -> Iterable[web.RouteDef]:
        answers, sessions = self.answers, self.sessions
        return (
            route("POST", "/v1/chat", answers.ask, ChatRequest, BEGUN),
            web.post("/v1/chat/attended", self._chat_attended),
            route("POST", "/v1/chat/{request_id}/stop", lambda which: answers.cancel(which.request_id), AnswerId),
            route("GET", "/v1/answers", answers.unfinished),
            route("POST", "/v1/answers/continue", answers.go_on, AnswerId, BEGUN),
            web.post("/v1/answers/continue/attended", self._go_on_attended),
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

    async def _chat_attended(self, request: web.Request) -> web.StreamResponse:
        return await self._attend(request, await self.answers.ask(await body_of(request, ChatRequest)))

    async def _go_on_attended(self, request: web.Request) -> web.StreamResponse:
        return await self._attend(request, await self.answers.go_on(await body_of(request, AnswerId)))

    async def _attend(self, request: web.Request, accepted: RequestAccepted) -> web.StreamResponse:
        """A reply that lasts as long as the answer, which is cancelled if the client is gone before."""
        reply = web.StreamResponse(status=BEGUN, headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):
            await reply.prepare(request)
            await reply.write(b"data: " + msgspec.json.encode(accepted) + b"\n\n")
        await self.answers.attend(
            accepted.request_id, lambda: request.transport is None or request.transport.is_closing()
        )
        return reply

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
