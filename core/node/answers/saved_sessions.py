"""Saved sessions: conversations with their cache, in sealed files of this Mac."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from time import time

from core.engine import sessions as files
from core.errors import Busy, NotLoaded, Problem, error_from
from core.node.answers.answers import Answers
from core.node.answers.running_answer import EndedConversation
from core.node.base.context import NodeContext
from core.node.peers.worker_state import WorkerState
from core.node.ring.worker_supervisor import Supervisor
from core.requests.conversations import SavedSession, SessionName
from core.worker.messages import LoadSession, SaveSession, SessionFailed, SessionLoaded, SessionSaved, StopSession


class SavedSessions:
    """The commands about sessions; each raises a MaclusterError."""

    def __init__(self, node: NodeContext, worker: WorkerState, supervisor: Supervisor, answers: Answers) -> None:
        self._worker, self._supervisor, self._answers, self._journal = worker, supervisor, answers, node.journal
        self._folder, self._secret = node.home.sessions, node.identity.secret("session")
        self._waiting: asyncio.Future[None] | None = None

    async def all(self) -> list[SavedSession]:
        return await asyncio.to_thread(files.list_sessions, self._folder, self._secret)

    async def show(self, wanted: SessionName) -> SavedSession:
        return self._saved(wanted, await self._read(wanted))

    async def save(self, wanted: SessionName) -> SavedSession:
        """Save the conversation whose answer ended last, with the cache of every Mac; replaces a session of that name.
        Raises UsageError, NotLoaded, Busy, SessionError.
        """
        path = files.path_of(self._folder, wanted.name)
        said = self._answers.conversation
        if said is None:
            raise NotLoaded("There is no conversation to save yet.", "Ask something first, then save it.")
        order = SaveSession(
            path=str(path), secret=self._secret, tokens=said.tokens, messages=said.messages, created_at=time()
        )
        await self._send(order)
        self._journal.info(f"Session {wanted.name!r} saved.")
        return await self.show(wanted)

    async def load(self, wanted: SessionName) -> SavedSession:
        """Load a session into the caches of every Mac of the plan; returns it with its messages. Raises UsageError,
        NotLoaded, NotPaired, Busy, or SessionError if it does not fit the plan.
        """
        session = await self._read(wanted)
        self._answers.opening.check_trust()
        path = files.path_of(self._folder, wanted.name)
        await self._send(LoadSession(path=str(path), secret=self._secret))
        self._answers.conversation = EndedConversation(session.tokens, session.messages)
        self._journal.info(f"Session {wanted.name!r} loaded.")
        return self._saved(wanted, session)

    async def delete(self, wanted: SessionName) -> None:
        await asyncio.to_thread(files.delete_session, self._folder, wanted.name)

    async def give_up(self) -> None:
        if self._waiting:
            self._supervisor.send(StopSession())

    async def forget_shared(self, macs: Collection[str]) -> None:
        count = await asyncio.to_thread(files.forget_shared, self._folder, self._secret, macs)
        if count:
            self._journal.info(f"Deleted {count} saved session(s) in which that Mac took part.")

    async def forget_unfinished(self) -> None:
        await asyncio.to_thread(files.forget_unfinished, self._folder)

    def handle_report(self, report: SessionSaved | SessionLoaded | SessionFailed) -> None:
        if isinstance(report, SessionFailed):
            self.stop(report.problem)
        elif self._waiting and not self._waiting.done():
            self._waiting.set_result(None)

    def stop(self, problem: Problem) -> None:
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(error_from(problem))

    async def _send(self, order: SaveSession | LoadSession) -> None:
        if not self._worker.is_ready:
            raise NotLoaded("No model is ready.")
        if self._waiting:
            raise Busy("Another session is being saved or loaded.")
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            self._supervisor.send(order)
            await self._waiting
        finally:
            self._waiting = None

    async def _read(self, wanted: SessionName) -> files.SessionFile:
        path = files.existing(self._folder, wanted.name)
        return (await asyncio.to_thread(files.reading, path, self._secret))[0]

    def _saved(self, wanted: SessionName, session: files.SessionFile) -> SavedSession:
        return SavedSession(
            name=wanted.name,
            model=session.model,
            tokens=len(session.tokens),
            size_bytes=files.path_of(self._folder, wanted.name).stat().st_size,
            created_at=session.created_at,
            messages=session.messages,
        )
