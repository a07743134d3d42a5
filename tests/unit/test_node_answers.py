"""Many answers at the same time on the head's node. Only the worker's process is played here, at its pipe."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core.engine.requests import Request
from core.errors import Busy, NodeError, NotLoaded, Problem, StageFailed, UsageError
from core.events import AnyEvent, FinishReason, Progress, RequestDone, RequestStarted, TokenEvent, TrustChanged
from core.models.maker import make_model
from core.models.tokens import Tokens
from core.node.answers import Answers
from core.node.bus import Bus
from core.node.cluster import Cluster
from core.node.formation import Formation
from core.node.journal import Journal
from core.node.token_log import Opening, read_token_log
from core.requests import ChatRequest, Message, Sampling
from core.settings import QUEUE_LIMIT
from core.worker.messages import (
    LENGTH,
    Cancel,
    Command,
    Done,
    Generate,
    Prefilled,
    Report,
    Token,
    pack,
    unpack_command,
    unpack_report,
)
from tests.unit.test_node_formation import mac_id, plan_of

SECRET = b"s" * 32
ROWS = 2
TEXT = "Zwei Flüsse, 日本, and a 🐢 end of it."
LOST = StageFailed("mini is on fire.", "Put it out.").problem


class Heard(Bus):
    """Remembers all that was published."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[AnyEvent] = []

    def publish(self, event: AnyEvent) -> None:
        super().publish(event)
        self.events.append(event)


class Pipe:
    """What the node writes to its worker, read as the worker reads it."""

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(unpack_command(pack(command)[LENGTH.size :]))


class Desk:
    """A node's answers, with a plan of two Macs that is ready, and a person who asks."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        self.bus, self.pipe = Heard(), Pipe()
        journal = Journal(folder / "log", "me", self.bus)
        self.cluster = Cluster(mac_id(0), None, None, self.bus, journal)  # type: ignore[arg-type]
        self.answers = Answers(self.cluster, self.pipe, self.bus, journal, folder / "tokens", SECRET)  # type: ignore[arg-type]
        self.bus.publish(TrustChanged(level="paired"))

    async def load(self, context: int = 500) -> Desk:
        formation = self.cluster._formation = Formation(replace(plan_of(2), context=context, rows=ROWS))
        formation.phase = "ready"
        await self.answers.use(self.model)
        return self

    async def ask(self, text: str = "hello", sampling: Sampling | None = None, **more: object) -> Request:
        """What the worker was asked for."""
        message = Message(role="user", content=text)
        request = ChatRequest(messages=(message,), raw=True, sampling=sampling or Sampling(), **more)  # type: ignore[arg-type]
        accepted = await self.answers.ask(request)
        (asked,) = [one for one in self.asked if one.request_id == accepted.request_id]
        assert accepted.prompt_tokens == len(asked.tokens)
        return asked

    @property
    def asked(self) -> list[Request]:
        return [command.request for command in self.pipe.sent if isinstance(command, Generate)]

    @property
    def cancelled(self) -> list[str]:
        return [command.request_id for command in self.pipe.sent if isinstance(command, Cancel)]

    def says(self, report: Report) -> None:
        told = unpack_report(pack(report)[LENGTH.size :])
        assert isinstance(told, Token | Prefilled | Done)
        self.answers.heard(told)

    def writes(self, request: Request, tokens: Sequence[int]) -> None:
        for index, token in enumerate(tokens):
            self.says(Token(request_id=request.request_id, index=index, token=token))

    def ends(self, request: Request, reason: FinishReason = "length", problem: Problem | None = None) -> None:
        self.says(
            Done(
                request_id=request.request_id,
                finish_reason=reason,
                prompt_tokens=len(request.tokens),
                tokens=5,
                ttft_s=0.25,
                decode_s=2.0,
                problem=problem,
            )
        )

    def told(self, request: Request) -> list[TokenEvent]:
        events = [e for e in self.bus.events if isinstance(e, TokenEvent)]
        return [e for e in events if e.request_id == request.request_id]

    def done(self, request: Request) -> RequestDone:
        (done,) = [e for e in self.bus.events if isinstance(e, RequestDone) and e.request_id == request.request_id]
        return done

    def shown(self, request: Request) -> str:
        return "".join(event.text for event in self.told(request)) + self.done(request).text

    def logged(self, request: Request) -> tuple[Opening, list[int]]:
        return read_token_log(self.folder / "tokens" / f"{request.request_id}.mct", SECRET)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    make_model(made, "llama", layers=1)
    return made


@pytest.fixture(scope="module")
def tokens(model: Path) -> Tokens:
    return Tokens.load(model)


@pytest.fixture
async def desk(tmp_path: Path, model: Path) -> AsyncIterator[Desk]:
    desk = await Desk(tmp_path, model).load()
    yield desk
    desk.answers.stop_all(LOST)


def ids_of(tokens: Tokens, text: str) -> list[int]:
    return tokens.encode([Message(role="user", content=text)], raw=True)


async def test_answers_run_side_by_side_and_each_is_told_logged_and_ended_for_itself(
    desk: Desk, tokens: Tokens
) -> None:
    sampling = Sampling(temperature=0.5, top_k=3, logit_bias={7: -1.5}, seed=9, logprobs=1)
    one, two = await desk.ask("tell me", sampling, min_tokens=3), await desk.ask("and me", max_tokens=9_999)
    assert desk.asked == [one, two], "both are sent at once: the worker queues and batches"
    assert (one.tokens, one.max_tokens, one.min_tokens) == (ids_of(tokens, "tell me"), 500 - len(one.tokens), 3)
    assert (one.eos, one.sampling) == (sorted(tokens.eos), sampling)
    assert (two.max_tokens, two.min_tokens, two.sampling) == (500 - len(two.tokens), 0, Sampling())
    assert desk.bus.now.running == (one.request_id, two.request_id)
    desk.says(Prefilled(request_id=two.request_id, done=3, total=4))
    first, second = ids_of(tokens, TEXT), ids_of(tokens, TEXT[::-1])
    for index, token in enumerate(first):
        top = ((token, -0.5), (1, -2.0))
        desk.says(Token(request_id=one.request_id, index=index, token=token, logprob=-0.5, top=top))
        desk.writes(two, second[index : index + 1])
        assert desk.logged(one)[1][-1] == token, "what is shown is written"
    desk.writes(two, second[len(first) :])
    desk.writes(one, [*tokens.eos])
    desk.ends(one, "stop")
    desk.ends(two, "error", LOST)
    assert (desk.shown(one), desk.shown(two)) == (TEXT, TEXT[::-1])
    assert [(event.logprob, event.top) for event in desk.told(one)[:-1]] == [
        (-0.5, ((token, -0.5), (1, -2.0))) for token in first
    ]
    done = desk.done(one)
    assert (done.finish_reason, done.ttft_s, done.decode_tokens_per_s, done.problem) == ("stop", 0.25, 2.0, None)
    assert (desk.done(two).finish_reason, desk.done(two).problem) == ("error", LOST)
    assert not desk.bus.now.running
    progress = Progress(task="prefill", request_id=two.request_id, done=3, total=4, unit="tokens")
    assert [event for event in desk.bus.events if isinstance(event, Progress)] == [progress]
    opening = Opening(
        request_id=one.request_id,
        model="toy",
        fingerprint="f" * 64,
        prompt=one.tokens,
        sampling=sampling,
        macs=(mac_id(0), mac_id(1)),
    )
    assert desk.logged(one) == (opening, [*first, *tokens.eos])
    assert desk.logged(two)[1] == second


@given(st.data())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stop_text_ends_the_answer_before_itself_wherever_tokens_end(
    tmp_path: Path, model: Path, tokens: Tokens, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(TEXT) - 1))
    stop = TEXT[start : start + data.draw(st.integers(1, 6))]
    before, ids = TEXT[: TEXT.index(stop)], ids_of(tokens, TEXT)

    async def answer() -> None:
        desk = await Desk(tmp_path, model).load()
        request = await desk.ask(stop=(stop, "never there"))
        desk.writes(request, [*ids, *ids])
        desk.ends(request, "cancelled")
        done = desk.done(request)
        assert (desk.shown(request), done.finish_reason, done.problem) == (before, "stop", None)
        assert desk.cancelled == [request.request_id]
        assert done.tokens == len(desk.told(request)) == len(desk.logged(request)[1]) <= len(ids) + 1
        assert done.ttft_s is not None
        assert desk.bus.now.running == ()

    asyncio.run(answer())


async def test_a_stop_text_that_was_held_back_until_the_end_counts_too(desk: Desk, tokens: Tokens) -> None:
    incomplete = ids_of(tokens, "see 日")[:-1]
    ended, cut, begun = [await desk.ask(stop=(stop,)) for stop in ("\ufffd", "\ufffd", "日!")]
    for request, reason in ((ended, "length"), (cut, "cancelled")):
        desk.writes(request, incomplete)
        desk.ends(request, reason)  # type: ignore[arg-type]
        assert desk.shown(request) == "see "
    assert (desk.done(ended).finish_reason, desk.done(cut).finish_reason) == ("stop", "cancelled")
    desk.writes(begun, ids_of(tokens, "see 日"))
    assert "".join(event.text for event in desk.told(begun)) == "see "
    desk.ends(begun)
    assert (desk.shown(begun), desk.done(begun).finish_reason) == ("see 日", "length")


async def test_as_many_are_taken_as_run_and_wait_in_the_order_of_asking(desk: Desk) -> None:
    """The first prompt is by far the longest, so that the others would overtake it."""
    await desk.load(context=1_000_000)
    most = ROWS + QUEUE_LIMIT
    asks = [asyncio.create_task(desk.ask(f"number {n} " * 10 ** max(0, 4 - n))) for n in range(most + 3)]
    replies = await asyncio.gather(*asks, return_exceptions=True)
    taken = [reply for reply in replies if isinstance(reply, Request)]
    assert taken == desk.asked == replies[:most]
    assert {type(reply) for reply in replies[most:]} == {Busy}
    assert str(replies[-1]).startswith(f"{most} requests run or wait already")
    assert "or cancel one" in str(replies[-1])
    desk.ends(taken[4])
    assert await desk.ask("number n") in desk.asked
    with pytest.raises(Busy):
        await desk.ask()
    desk.answers.cancel(taken[5].request_id)
    await desk.ask()


async def test_a_cancelled_answer_ends_at_once_and_alone(desk: Desk, tokens: Tokens) -> None:
    one, two, waiting = [await desk.ask(), await desk.ask(), await desk.ask()]
    ids = ids_of(tokens, TEXT)
    desk.writes(one, ids[:4])
    for unknown in ("ab" * 16, "nonsense"):
        desk.answers.cancel(unknown)
    desk.answers.cancel(one.request_id)
    desk.answers.cancel(one.request_id)
    desk.answers.cancel(waiting.request_id)
    assert desk.cancelled == [one.request_id, waiting.request_id]
    desk.writes(one, ids)
    desk.ends(one, "cancelled")
    ends = [(done.finish_reason, done.tokens, done.ttft_s is None) for done in map(desk.done, (one, waiting))]
    assert ends == [("cancelled", 4, False), ("cancelled", 0, True)]
    assert desk.logged(one)[1] == ids[:4]
    assert TEXT.startswith(desk.shown(one))
    desk.writes(two, ids)
    desk.ends(two)
    assert desk.shown(two) == TEXT


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """A full disk, to this process: no file grows beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_log_that_cannot_be_written_ends_its_answer_and_no_other(desk: Desk, tokens: Tokens) -> None:
    ids = ids_of(tokens, TEXT)
    await desk.load(context=5000)
    long, short = await desk.ask("long " * 800), await desk.ask()
    desk.writes(long, ids[:2])
    with files_up_to((desk.folder / "tokens" / f"{long.request_id}.mct").stat().st_size):
        desk.writes(long, ids[2:])
        desk.writes(short, ids)
    with files_up_to(0), pytest.raises(NodeError, match="token log cannot be written") as refused:
        await desk.ask()
    assert "Free space" in refused.value.fix
    assert desk.asked == [long, short], "what cannot be written down is not asked for"
    assert len(list((desk.folder / "tokens").iterdir())) == 2
    desk.ends(short)
    done = desk.done(long)
    assert (done.finish_reason, done.tokens, desk.cancelled) == ("error", 2, [long.request_id])
    assert done.problem
    assert done.problem.what.startswith("The token log cannot be written")
    assert desk.logged(long)[1] == ids[:2]
    assert (desk.shown(short), desk.logged(short)[1]) == (TEXT, ids)
    assert desk.bus.now.running == ()


async def test_a_broken_link_ends_nothing_and_the_end_of_the_plan_everything(desk: Desk, tokens: Tokens) -> None:
    formation = desk.cluster._formation
    assert formation
    for number in range(2):
        formation.prepared(mac_id(number), 4000 + number)
    formation.phase = "ready"
    one = await desk.ask()
    desk.writes(one, ids_of(tokens, TEXT))
    formation.broken(mac_id(1), formation.plan.plan_gen, LOST)
    assert not desk.cluster.ready
    accepted = await desk.answers.ask(ChatRequest(messages=(Message(role="user", content="hello"),), raw=True))
    assert desk.bus.now.running == (one.request_id, accepted.request_id)
    assert desk.asked == [one], "it waits until the ring stands"
    formation.phase = "ready"
    desk.answers.send()
    two = desk.asked[1]
    assert (len(desk.asked), two.request_id) == (2, accepted.request_id)
    desk.answers.stop_all(LOST)
    desk.ends(one)
    assert {(desk.done(r).finish_reason, desk.done(r).problem) for r in (one, two)} == {("error", LOST)}
    assert desk.shown(one) == TEXT
    with pytest.raises(NotLoaded):
        await desk.ask()  # the next plan has a tokenizer of its own, which is read after it is handed out
    await desk.load()
    await desk.ask()


async def test_only_what_went_through_the_ring_forgives_broken_links(desk: Desk) -> None:
    formation = desk.cluster._formation
    assert formation
    formation._relinks = 2
    one, two, three = [await desk.ask(), await desk.ask(), await desk.ask()]
    desk.answers.cancel(one.request_id)
    desk.ends(two, "error", LOST)
    assert formation._relinks == 2
    desk.writes(three, [5])
    assert formation._relinks == 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param({"text": "a b c d e " * 10}, "leaves no room in a context of 24", id="prompt"),
        pytest.param({"min_tokens": 24}, "at least 24 tokens cannot end after", id="more_than_room"),
        pytest.param({"min_tokens": 5, "max_tokens": 4}, "at least 5 tokens cannot end after 4", id="more_than_most"),
    ],
)
async def test_what_has_no_room_is_refused(desk: Desk, asked: dict[str, object], said: str) -> None:
    await desk.load(context=24)
    with pytest.raises(UsageError, match=said) as refused:
        await desk.ask(**asked)  # type: ignore[arg-type]
    assert refused.value.fix
    assert not [event for event in desk.bus.events if isinstance(event, RequestStarted)]
    assert not desk.pipe.sent
