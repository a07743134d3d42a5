"""Requests that one Mac relays to another for a program: same replies, bounded, and ended when the client is gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from core.answer_parts import TextPart, ToolCall
from core.errors import Busy, LinkLost, MaclusterError, NotLoaded, NotPaired, ProtocolError, UsageError
from core.events import AnyEvent, PlanLoaded, PlanProposed, PlanUnloaded, TokenEvent, TrustChanged
from core.node.answers.answer_stream import Said
from core.node.base import large_bodies
from core.node.base.bus import Bus
from core.node.base.node_message import NodeMessage, to_frame
from core.node.peers.messages import Leads
from core.node.peers.other_plans import OtherPlans
from core.node.peers.worker_state import WorkerState
from core.node.public_api.api_answers import ApiAnswers
from core.node.relay import relay_server, relayed_answers, relayed_values
from core.node.relay.local_chat import LocalChat
from core.node.relay.messages import RelayReply, RelayRequest, RelayStop
from core.node.relay.relay_server import RelayServer
from core.node.relay.relayed_answers import LeaderAnswers, Relay
from core.node.relay.relayed_values import AnswerWanted, NotAnswered, Wanted, encoded, relayed_from, wanted_from
from core.requests.answers import ChatRequest, Message, RequestAccepted
from core.requests.plans import LoadRequest
from tests.support.answers import LOST, ROWS, AnswersHarness, model
from tests.support.contexts import context_of
from tests.support.node_messages import from_frame
from tests.support.plans import plan_of
from tests.support.tasks import tasks_of
from tests.support.waiting import until

__all__ = ["model"]  # a fixture

HEAD, MEMBER = "head", "member"


class Wire:
    """A link in this process; messages arrive at once."""

    def __init__(self) -> None:
        self.is_up = True
        self.led = {HEAD: Leads(model="tiny", rows=ROWS, takes_relayed=True)}
        self.sent: list[NodeMessage] = []
        self.other: Any = None

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        if not self.is_up:
            return False
        self.sent.append(message)
        arrived: Any = from_frame(*to_frame(message))
        if isinstance(arrived, RelayReply):
            self.other.handle_message(HEAD, arrived)
        else:
            await self.other.handle_message(MEMBER, arrived)
        return True

    def leaders(self) -> dict[str, Leads]:
        return self.led if self.is_up else {}


class HeadAndMember:
    """A head with a simulated worker, and a member with programs that use its API."""

    def __init__(self, harness: AnswersHarness) -> None:
        self.harness, self.tasks = harness, tasks_of()
        self.there, self.back = Wire(), Wire()
        self.relay = self.relays(is_on=True)
        self.answering = ApiAnswers(harness.answers, lambda: harness.bus.now, self.nowhere, self.tasks, 9)
        self.server = self.there.other = self.serves(is_on=True)
        self.back.other = self.relay

    def nowhere(self) -> Any:
        raise NotLoaded("Nobody leads.")

    def relays(self, *, is_on: bool) -> Relay:
        elsewhere = OtherPlans(MEMBER, Bus(), self.there, WorkerState(), relays=is_on)  # type: ignore[arg-type]
        return Relay(self.there, elsewhere, self.tasks, str, lambda: None)  # type: ignore[arg-type]

    def serves(self, *, is_on: bool) -> RelayServer:
        check = self.harness.answers.opening.check_trust
        relay: Any = SimpleNamespace(name_of=lambda _: "mbp", check_trust=check)
        return RelayServer(self.answering, relay, self.back, self.tasks, is_on=is_on)  # type: ignore[arg-type]

    @property
    def leader(self) -> LeaderAnswers:
        found = self.relay.model().answers
        assert isinstance(found, LeaderAnswers)
        return found

    async def all_of(self, request: ChatRequest) -> list[Said]:
        return [said async for said in self.leader.follow(request)]

    async def refused(self) -> MaclusterError:
        with pytest.raises(MaclusterError) as error:
            await self.all_of(asking())
        return error.value


@pytest_asyncio.fixture
async def two(tmp_path: Path, model: Path) -> AsyncIterator[HeadAndMember]:
    harness = await AnswersHarness(tmp_path, model).load(context=200_000)
    plan = harness.worker.led
    assert plan
    harness.bus.publish(PlanProposed(plan=plan))
    harness.bus.publish(PlanLoaded(plan_gen=plan.plan_gen, seconds=1.0))
    two = HeadAndMember(harness)
    yield two
    await harness.ends_all()
    await two.tasks.stop()


def asking(text: str = "hello") -> ChatRequest:
    return ChatRequest(messages=(Message(role="user", content=text),), raw=True)


async def test_a_large_request_is_decoded_in_a_thread(two: HeadAndMember, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noting(body: bytes) -> Wanted:
        threads.append(threading.current_thread().name[:5])
        return wanted_from(body)

    monkeypatch.setattr(relayed_values, "wanted_from", noting)
    monkeypatch.setattr(large_bodies, "LARGE_BODY", 1000)
    for size in (10, 2000):
        await two.leader.count(asking("a" * size))
    assert threads == ["MainT", "large"]


@pytest.mark.promise("P29")
async def test_what_is_asked_and_what_comes_travels_as_it_was_said_and_nothing_of_it_is_kept(
    two: HeadAndMember,
) -> None:
    long = "\x1b[2J höp\u2028" * 6000
    following = asyncio.create_task(two.all_of(asking(long)))
    await until(lambda: bool(two.harness.asked))
    assert len([message for message in two.there.sent if isinstance(message, RelayRequest)]) > 1
    (asked,) = two.harness.asked
    (running,) = two.harness.answers._running.values()
    assert (running.record.messages[0].content, running.record.keep, running.client) == (long, False, "mbp")
    two.harness.writes(asked, [5, 6])
    two.harness.ends(asked)
    accepted, *said, done = await following
    assert accepted == RequestAccepted(request_id="", prompt_tokens=len(asked.tokens))
    assert [each for each in said if isinstance(each, TokenEvent)] == two.harness.told(asked)
    text = "".join(each.text for each in said if isinstance(each, TextPart))
    assert (text, done) == (await two.harness.shown(asked), await two.harness.done(asked))
    assert await two.leader.count(asking()) == await two.harness.answers.count(asking())
    assert await two.leader.text_of([5, 6]) == await two.harness.answers.text_of([5, 6])
    assert not two.relay._asked
    assert not [message for message in two.there.sent if isinstance(message, RelayStop)], "nothing was to be ended"


@pytest.mark.parametrize("end", ["client", "link", "line"])
async def test_a_row_ends_where_nobody_waits_for_it_any_more(two: HeadAndMember, end: str) -> None:
    following = [asyncio.create_task(two.all_of(asking())) for _ in range(ROWS + 1)]
    await until(lambda: len(two.harness.asked) == ROWS and len(two.answering.queue) == 1)
    if end == "link":
        two.server.gone(MEMBER)
    else:
        following[0 if end == "client" else ROWS].cancel()
    await until(lambda: len(two.answering.queue) == 0)
    ended = {"client": 1, "link": ROWS, "line": 0}[end]
    await until(lambda: len(two.harness.cancelled) == ended)
    assert len(two.harness.asked) == ROWS + (end == "client"), "who waited has his turn"
    for task in following:
        task.cancel()
    await until(lambda: not two.harness.answers.under_way)


async def test_a_link_that_is_lost_and_an_answer_that_fails_are_told_as_what_they_are(two: HeadAndMember) -> None:
    async with aclosing(two.leader.follow(asking())) as lost:
        await anext(lost)
        two.there.is_up = False
        two.relay.gone(HEAD)
        with pytest.raises(LinkLost, match="which leads the model, is gone"):
            await anext(lost)
    assert isinstance(await two.refused(), NotLoaded)
    two.there.is_up = True
    failing = asyncio.create_task(two.refused())
    await until(lambda: len(two.harness.asked) == 2)
    two.harness.ends(two.harness.asked[1], "error", LOST)
    assert (await failing).problem == LOST
    evil = encoded(NotAnswered(problem=LOST)).replace(b"on fire", b"\x1b[2J...")
    assert "\x1b" not in str(relayed_from(evil))


@pytest.mark.promise("P29")
async def test_a_mac_has_no_more_under_way_than_its_bounds(two: HeadAndMember, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_server, "MOST_OF_A_MAC", 1)
    first = asyncio.create_task(two.all_of(asking()))
    await until(lambda: bool(two.harness.asked))
    assert isinstance(await two.refused(), Busy)
    monkeypatch.setattr(relay_server, "MOST_OF_A_MAC", 9)
    monkeypatch.setattr(relayed_values, "MOST_ASKED", 2 * len(encoded(AnswerWanted(request=asking()))) - 1)
    assert isinstance(await two.refused(), Busy)
    monkeypatch.setattr(relayed_values, "MOST_ASKED", 1 << 20)
    ask = next(message for message in two.there.sent if isinstance(message, RelayRequest))
    told = len(two.back.sent)
    await two.server.handle_message(MEMBER, ask)
    assert len(two.back.sent) == told + 1, "a number that is in use is refused"
    two.server._askers[MEMBER].arriving._most = 9
    await two.server.handle_message(MEMBER, replace(ask, number=99, data=b"12345", is_last=False))
    await two.server.handle_message(MEMBER, replace(ask, number=100, data=b"12345", is_last=False))
    with pytest.raises(ProtocolError):
        await two.server.handle_message(MEMBER, replace(ask, number=100, data=b"12345", is_last=False))
    first.cancel()
    await until(lambda: not two.server._askers[MEMBER].under_way)


@pytest.mark.promise("P29")
async def test_more_than_an_answer_has_is_not_kept(two: HeadAndMember, monkeypatch: pytest.MonkeyPatch) -> None:
    following = asyncio.create_task(two.refused())
    await until(lambda: bool(two.harness.asked) and not any(a._replies.qsize() for a in two.relay._asked.values()))
    monkeypatch.setattr(relayed_answers, "MAX_ANSWER_BYTES", 4 * relayed_answers.PIECE_COST)
    (asked,) = two.relay._asked.values()
    (number,) = (number for _, number in two.relay._asked)
    piece = RelayReply(number=number, data=b"\x80", is_last=False)
    for _ in range(9):
        two.relay.handle_message(HEAD, piece)
    assert asked._replies.qsize() == 1
    assert isinstance(await following, ProtocolError)
    await until(lambda: len(two.harness.cancelled) == 1)
    two.relay.handle_message(HEAD, piece)
    monkeypatch.setattr(relayed_values, "MOST_ASKED", 9)
    assert isinstance(await two.refused(), UsageError)


async def test_a_call_whose_arguments_are_no_object_reaches_no_client(two: HeadAndMember) -> None:
    following = asyncio.create_task(two.refused())
    await until(lambda: bool(two.harness.asked))
    (number,) = (number for _, number in two.relay._asked)
    call = ToolCall(id="a", name="go", arguments="{{{")
    two.relay.handle_message(HEAD, RelayReply(number=number, data=encoded(call), is_last=True))
    assert isinstance(await following, ProtocolError)


@pytest.mark.promise("P29")
async def test_who_is_switched_off_does_not_lead_or_is_not_trusted_answers_nothing(two: HeadAndMember) -> None:
    for leads, is_on in ((replace(two.there.led[HEAD], takes_relayed=False), True), (two.there.led[HEAD], False)):
        two.there.led[HEAD] = leads
        with pytest.raises(NotLoaded, match=r"head leads tiny and answers only there\. Ask on head"):
            two.relays(is_on=is_on).model()
        two.there.led[HEAD] = replace(leads, takes_relayed=True)
    two.there.other = two.serves(is_on=False)
    assert "takes no relayed requests" in str(await two.refused())
    two.there.other = two.server
    two.harness.bus.publish(TrustChanged(level="seen", weakest="mini"))
    assert isinstance(await two.refused(), NotPaired)
    with pytest.raises(NotPaired):
        await two.leader.count(asking())
    two.harness.bus.publish(TrustChanged(level="paired"))
    assert two.harness.worker.led
    two.harness.bus.publish(PlanUnloaded(plan_gen=two.harness.worker.led.plan_gen))
    assert "does not lead any more" in str(await two.refused())
    two.relay.check_trust = two.harness.answers.opening.check_trust
    two.harness.bus.publish(TrustChanged(level="seen", weakest="mini"))
    sent = len(two.there.sent)
    assert isinstance(await two.refused(), NotPaired)
    assert len(two.there.sent) == sent, "not a word has left this Mac"
    assert not two.harness.asked


def test_the_mac_whose_layers_this_one_has_is_asked_first_and_loses_none_of_them_by_accident() -> None:
    wire, worker, bus = Wire(), WorkerState(), Bus()
    elsewhere = OtherPlans(MEMBER, bus, wire, worker, relays=True)  # type: ignore[arg-type]
    relay = Relay(wire, elsewhere, tasks_of(), str, lambda: None)  # type: ignore[arg-type]
    plan = plan_of(2)
    served = replace(wire.led[HEAD], answers=2)
    wire.led = {"a": Leads(model="\x1bother", rows=1, takes_relayed=True), plan.head.device_id: served}
    elsewhere.look()
    assert (bus.now.chat_model, bus.now.chat_status, bus.now.served) == ("other", "ready", None)
    elsewhere.check_free(LoadRequest(model="toy"))
    worker.plan = plan
    elsewhere.look()
    assert (bus.now.chat_model, bus.now.used_plan, relay.model().rows) == ("tiny", plan, ROWS)
    with pytest.raises(Busy, match=r"leads tiny over this Mac and 2 of its answers run\. .*--take-over"):
        elsewhere.check_free(LoadRequest(model="toy"))
    elsewhere.check_free(LoadRequest(model="toy", take_over=True))
    wire.led = {}
    with pytest.raises(NotLoaded, match="leads toy and answers only there"):
        relay.model()
    elsewhere.look()
    assert (bus.now.chat_status, bus.now.is_answering) == ("none", False)
    elsewhere.check_free(LoadRequest(model="toy"))
    worker.plan = None
    elsewhere.look()
    assert bus.now.elsewhere == ()


async def test_the_chat_of_a_member_is_answered_by_the_head_and_ends_where_its_person_stops_it(
    two: HeadAndMember,
) -> None:
    member = context_of(bus=Bus(), tasks=two.tasks)
    none: Any = object()
    chat = LocalChat(member, none, ApiAnswers(none, lambda: member.bus.now, two.relay.model, two.tasks, 9))
    said = list[AnyEvent]()

    async def follow() -> None:
        async for event in member.bus.follow():
            said.append(event)

    following = asyncio.create_task(follow())
    begun = await chat.ask(asking())
    assert member.bus.now.running == (begun.request_id,)
    await until(lambda: bool(two.harness.asked))
    (asked,) = two.harness.asked
    two.harness.writes(asked, [5, 6])
    two.harness.ends(asked)
    await chat.attend(begun.request_id, lambda: False)
    done = member.bus.now.last_done
    assert done
    assert done == replace(await two.harness.done(asked), request_id=begun.request_id)
    stopped = await chat.ask(asking())
    await until(lambda: len(two.harness.asked) == 2)
    chat.cancel(stopped.request_id)
    await chat.attend(stopped.request_id, lambda: False)
    assert (ended := member.bus.now.last_done)
    assert ended.finish_reason == "cancelled"
    await until(lambda: len(two.harness.cancelled) == 1)
    two.there.is_up = False
    with pytest.raises(NotLoaded):
        await chat.ask(asking())
    two.there.is_up = True
    broken = await chat.ask(asking())
    await until(lambda: len(two.harness.asked) == 3)
    two.relay.gone(HEAD)
    await chat.attend(broken.request_id, lambda: False)
    assert (lost := member.bus.now.last_done)
    assert lost.problem
    assert lost.problem.kind == "LinkLost"
    member.bus.close()
    await following
    texts = [event.text for event in said if isinstance(event, TokenEvent) and event.request_id == begun.request_id]
    assert "".join(texts) + done.text == await two.harness.shown(asked)
