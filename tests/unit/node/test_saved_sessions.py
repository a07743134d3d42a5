"""A node's saved conversations, with a simulated worker: one at a time, and every end is noticed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.engine.sessions import SessionFile, path_of, prefix_hash, writing
from core.errors import Busy, LinkLost, NotLoaded, NotPaired, SessionError, StageFailed, UsageError
from core.events import TrustChanged
from core.node.answers.saved_sessions import SavedSessions
from core.requests.answers import Message
from core.requests.conversations import SavedSession, SessionName
from core.worker.messages import Command, SaveSession, SessionFailed, SessionLoaded, SessionSaved, StopSession
from tests.support.answers import AnswersHarness, Pipe, model

__all__ = ["model"]  # fixtures

TRIP = SessionName(name="trip")
SAID = (Message(role="user", content="hello"), Message(role="assistant", content="good day"))


class SessionPipe(Pipe):
    """Keeps the worker's commands about sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.rings = asyncio.Event()

    def send(self, command: Command) -> None:
        super().send(command)
        self.rings.set()


class Keeper:
    """The sessions of a node."""

    def __init__(self, harness: AnswersHarness) -> None:
        self.harness, self.folder, self.line = harness, harness.node.home.sessions, SessionPipe()
        self.secret = harness.node.identity.secret("session")
        self.sessions = SavedSessions(harness.node, harness.worker, self.line, harness.answers)  # type: ignore[arg-type]

    async def saving(self) -> asyncio.Task[SavedSession]:
        return await self._begun(asyncio.create_task(self.sessions.save(TRIP)))

    async def loading(self) -> asyncio.Task[SavedSession]:
        return await self._begun(asyncio.create_task(self.sessions.load(TRIP)))

    async def _begun(self, command: asyncio.Task[SavedSession]) -> asyncio.Task[SavedSession]:
        """Wait until the worker has the command."""
        await asyncio.wait_for(self.line.rings.wait(), 5)
        self.line.rings.clear()
        return command

    def write(self) -> None:
        """Write a session file as a worker does, without layers."""
        session = SessionFile(
            model="tiny",
            fingerprint="f",
            mlx_lm="1",
            kv_bits=None,
            tokens=[1, 2, 3],
            prefix_hash=prefix_hash([1, 2, 3]),
            caches=0,
            messages=SAID,
            created_at=5.0,
        )
        with writing(path_of(self.folder, "trip"), self.secret, session):
            pass


@pytest.fixture
async def keeper(tmp_path: Path, model: Path) -> Keeper:
    return Keeper(await AnswersHarness(tmp_path, model).load())


async def test_the_worker_is_told_what_was_said_last(keeper: Keeper) -> None:
    harness = keeper.harness
    with pytest.raises(NotLoaded, match="There is no conversation to save yet"):
        await keeper.sessions.save(TRIP)
    request = await harness.ask("hello")
    harness.writes(request, [65, 66])
    harness.ends(request)
    save = await keeper.saving()
    (order,) = keeper.line.sent
    assert isinstance(order, SaveSession)
    assert order.tokens == [*request.tokens, 65, 66]
    assert order.messages[0] == Message(role="user", content="hello")
    assert order.messages[1].role == "assistant"
    assert order.messages[1].content
    assert (order.path, order.secret) == (str(keeper.folder / "trip.mcs"), keeper.secret)
    keeper.write()
    keeper.sessions.handle_report(SessionSaved())
    assert (await save).tokens == 3


async def test_what_is_loaded_can_be_saved_again(keeper: Keeper) -> None:
    keeper.write()
    load = await keeper.loading()
    keeper.sessions.handle_report(SessionLoaded())
    assert (await load).messages == SAID
    said = keeper.harness.answers.conversation
    assert said
    assert (said.tokens, said.messages) == ([1, 2, 3], SAID)


async def test_one_at_a_time_and_every_end_is_told(keeper: Keeper) -> None:
    keeper.write()
    load = await keeper.loading()
    with pytest.raises(Busy):
        await keeper.sessions.load(TRIP)
    keeper.sessions.handle_report(SessionFailed(problem=StageFailed("It broke.").problem))
    with pytest.raises(StageFailed, match="It broke"):
        await load
    load = await keeper.loading()
    keeper.sessions.stop(LinkLost("The plan is gone.").problem)
    keeper.sessions.handle_report(SessionLoaded())
    with pytest.raises(LinkLost, match="The plan is gone"):
        await load
    assert keeper.harness.answers.conversation is None


async def test_only_what_is_under_way_is_stopped(keeper: Keeper) -> None:
    await keeper.sessions.give_up()
    assert not keeper.line.sent
    keeper.write()
    load = await keeper.loading()
    await keeper.sessions.give_up()
    assert keeper.line.sent[-1] == StopSession()
    keeper.sessions.handle_report(SessionFailed(problem=SessionError("It was stopped.").problem))
    with pytest.raises(SessionError, match="It was stopped"):
        await load


async def test_nothing_goes_to_macs_that_are_not_trusted_or_not_ready(keeper: Keeper) -> None:
    keeper.write()
    keeper.harness.bus.publish(TrustChanged(level="seen", weakest="mini"))
    with pytest.raises(NotPaired, match="mini is seen"):
        await keeper.sessions.load(TRIP)
    keeper.harness.bus.publish(TrustChanged(level="paired"))
    keeper.harness.worker.led, keeper.harness.worker.is_ready = None, False
    with pytest.raises(NotLoaded):
        await keeper.sessions.load(TRIP)
    assert not keeper.line.sent


async def test_what_is_not_there_or_not_readable_is_refused_before_the_worker_hears_of_it(keeper: Keeper) -> None:
    for name in ("trip", "../trip"):
        with pytest.raises(UsageError):
            await keeper.sessions.load(SessionName(name=name))
    keeper.write()
    path = keeper.folder / "trip.mcs"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SessionError):
        await keeper.sessions.load(TRIP)
    assert not keeper.line.sent


async def test_what_a_worker_left_is_removed_when_another_is_up(keeper: Keeper) -> None:
    keeper.write()
    (keeper.folder / "trip.mcs.tmp").write_bytes(b"half of it")
    await keeper.sessions.forget_unfinished()
    assert [path.name for path in keeper.folder.iterdir()] == ["trip.mcs"]
