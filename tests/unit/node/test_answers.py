"""Many concurrent answers on the head's node. Only the worker's process is simulated, at its pipe."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core.engine.requests import Request
from core.errors import BadModel, Busy, CachesLost, ContextExceeded, NodeError, NotLoaded, Problem, UsageError
from core.events import (
    Batch,
    BatchRow,
    FinishReason,
    LogLine,
    Progress,
    Recovery,
    RequestStarted,
)
from core.models.text.text_messages import Refused
from core.models.text.tokenizer import Tokens
from core.node.answers.answers import MAX_DEATHS, MAX_LOSSES
from core.node.answers.token_log import ENDED, KEPT, AnswerRecord, TokenLog
from core.requests.answers import AnswerId, ChatRequest, Message
from core.sampling_options import Sampling
from core.settings import QUEUE_LIMIT
from core.worker.messages import (
    Mirrored,
    MirrorSpan,
    MirrorSpans,
    Prefilled,
    StopMirror,
    Token,
    WantSpans,
)
from tests.support.answers import LOST, ROWS, TEXT, AnswersHarness, ids_of, model, tokens
from tests.support.plans import mac_id, plan_of
from tests.support.search import SEARCH
from tests.support.tokenizers import LateTokenizer
from tests.support.waiting import until

__all__ = ["model", "tokens"]  # fixtures


@pytest.fixture
async def harness(tmp_path: Path, model: Path) -> AsyncIterator[AnswersHarness]:
    harness = await AnswersHarness(tmp_path, model).load()
    yield harness
    await harness.ends_all()


async def test_answers_run_side_by_side_and_each_is_told_logged_and_ended_for_itself(
    harness: AnswersHarness, tokens: Tokens
) -> None:
    sampling = Sampling(temperature=0.5, top_k=3, logit_bias={7: -1.5}, seed=9, logprobs=1)
    one, two = await harness.ask("tell me", sampling, min_tokens=3), await harness.ask("and me", max_tokens=9_999)
    assert harness.asked == [one, two], "both are sent at once: the worker queues and batches"
    assert (one.tokens, one.max_tokens, one.min_tokens) == (ids_of(tokens, "tell me"), 500 - len(one.tokens), 3)
    assert (one.eos, one.sampling) == (sorted(tokens.eos), sampling)
    assert (two.max_tokens, two.min_tokens, two.sampling) == (500 - len(two.tokens), 0, Sampling())
    assert harness.bus.now.running == (one.request_id, two.request_id)
    harness.says(Prefilled(request_id=two.request_id, done=3, total=4))
    first, second = ids_of(tokens, TEXT), ids_of(tokens, TEXT[::-1])
    for index, token in enumerate(first):
        top = ((token, -0.5), (1, -2.0))
        harness.says(Token(request_id=one.request_id, index=index, token=token, logprob=-0.5, top=top))
        harness.writes(two, second[index : index + 1])
        assert harness.logged(one)[1][-1] == token, "what is shown is written"
    harness.writes(two, second[len(first) :])
    harness.writes(one, [*tokens.eos])
    harness.ends(one, "stop")
    harness.ends(two, "error", LOST)
    assert ((await harness.shown(one)), (await harness.shown(two))) == (TEXT, TEXT[::-1])
    assert [(event.logprob, event.top) for event in harness.told(one)[:-1]] == [
        (-0.5, ((token, -0.5), (1, -2.0))) for token in first
    ]
    done = await harness.done(one)
    assert (done.finish_reason, done.ttft_s, done.decode_tokens_per_s, done.problem) == ("stop", 0.25, 2.0, None)
    assert ((await harness.done(two)).finish_reason, (await harness.done(two)).problem) == ("error", LOST)
    assert not harness.bus.now.running
    progress = Progress(task="prefill", request_id=two.request_id, done=3, total=4, unit="tokens")
    assert [event for event in harness.bus.events if isinstance(event, Progress)] == [progress]
    record = AnswerRecord(
        request_id=one.request_id,
        model="toy",
        fingerprint="f" * 64,
        prompt=one.tokens,
        sampling=sampling,
        macs=(mac_id(0), mac_id(1)),
        messages=(Message(role="user", content="tell me"),),
        max_tokens=one.max_tokens,
        min_tokens=3,
        eos=one.eos,
        raw=True,
    )
    assert harness.logged(one) == (record, [*first, *tokens.eos])
    assert harness.logged(two)[1] == second
    assert (harness.log_of(one).ended, harness.log_of(two).ended) == ("stop", None)
    assert harness.log_of(one).text == TEXT


async def test_the_batch_has_a_row_for_each_answer_that_is_under_way_and_for_no_other(harness: AnswersHarness) -> None:
    one, two, three = [await harness.ask(text) for text in ("one", "two", "three")]
    assert [row.request_id for row in harness.bus.now.batch.queue] == [r.request_id for r in (one, two, three)]
    harness.writes(one, [1, 2, 3])
    harness.answers.cancel(two.request_id)
    asked = [BatchRow(request_id=r.request_id, state="writing", written=9, lane=1) for r in (one, two)]
    harness.answers.counted(Batch(rows=tuple(asked), parked_tokens=7))
    batch = harness.bus.now.batch
    assert [row.request_id for row in batch.running] == [one.request_id], "a late word brings nothing back"
    assert (batch.running[0].written, batch.running[0].lane, batch.parked_tokens) == (9, 1, 7)
    assert (batch.running[0].tokens_per_s or 0) > 0
    (waiting,) = batch.queue
    assert (waiting.prompt_tokens, waiting.max_tokens) == (len(three.tokens), three.max_tokens)
    harness.answers.suspend()
    harness.answers.counted(Batch(rows=tuple(asked)))
    assert [row.request_id for row in harness.bus.now.batch.queue] == [one.request_id, three.request_id]
    assert harness.bus.now.batch.queue[0].written == 3


@given(st.data())
@settings(max_examples=15 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_stop_text_ends_the_answer_before_itself_wherever_tokens_end(
    tmp_path: Path, model: Path, tokens: Tokens, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(TEXT) - 1))
    stop = TEXT[start : start + data.draw(st.integers(1, 6))]
    before, ids = TEXT[: TEXT.index(stop)], ids_of(tokens, TEXT)

    async def answer() -> None:
        harness = await AnswersHarness(tmp_path, model).load()
        request = await harness.ask(stop=(stop, "never there"))
        harness.writes(request, [*ids, *ids])
        harness.ends(request, "cancelled")
        done = await harness.done(request)
        assert ((await harness.shown(request)), done.finish_reason, done.problem) == (before, "stop", None)
        assert harness.cancelled == [request.request_id]
        assert done.tokens == len(harness.told(request)) == len(harness.logged(request)[1]) <= len(ids) + 1
        assert done.ttft_s is not None
        assert harness.bus.now.running == ()

    asyncio.run(answer())


async def test_a_stop_text_that_was_held_back_until_the_end_counts_too(harness: AnswersHarness, tokens: Tokens) -> None:
    incomplete = ids_of(tokens, "see 日")[:-1]
    ended, cut, begun = [await harness.ask(stop=(stop,)) for stop in ("\ufffd", "\ufffd", "日!")]
    for request, reason in ((ended, "length"), (cut, "cancelled")):
        harness.writes(request, incomplete)
        harness.ends(request, reason)  # type: ignore[arg-type]
        assert (await harness.shown(request)) == "see "
    assert ((await harness.done(ended)).finish_reason, (await harness.done(cut)).finish_reason) == ("stop", "cancelled")
    harness.writes(begun, ids_of(tokens, "see 日"))
    assert "".join(event.text for event in harness.told(begun)) == "see "
    harness.ends(begun)
    assert ((await harness.shown(begun)), (await harness.done(begun)).finish_reason) == ("see 日", "length")


async def test_as_many_are_taken_as_run_and_wait_in_the_order_of_asking(harness: AnswersHarness) -> None:
    """The first prompt is by far the longest, so that the others would overtake it."""
    await harness.load(context=1_000_000)
    most = ROWS + QUEUE_LIMIT
    asks = [asyncio.create_task(harness.ask(f"number {n} " * 10 ** max(0, 4 - n))) for n in range(most + 3)]
    replies = await asyncio.gather(*asks, return_exceptions=True)
    taken = [reply for reply in replies if isinstance(reply, Request)]
    assert taken == harness.asked == replies[:most]
    assert {type(reply) for reply in replies[most:]} == {Busy}
    assert str(replies[-1]).startswith(f"{most} requests run or wait already")
    assert "or cancel one" in str(replies[-1])
    harness.ends(taken[4])
    assert await harness.ask("number n") in harness.asked
    with pytest.raises(Busy):
        await harness.ask()
    harness.answers.cancel(taken[5].request_id)
    await harness.ask()


async def test_a_cancelled_answer_ends_at_once_and_alone(harness: AnswersHarness, tokens: Tokens) -> None:
    one, two, waiting = [await harness.ask(), await harness.ask(), await harness.ask()]
    ids = ids_of(tokens, TEXT)
    harness.writes(one, ids[:4])
    for unknown in ("ab" * 16, "nonsense"):
        harness.answers.cancel(unknown)
    harness.answers.cancel(one.request_id)
    harness.answers.cancel(one.request_id)
    harness.answers.cancel(waiting.request_id)
    assert harness.cancelled == [one.request_id, waiting.request_id]
    harness.writes(one, ids)
    harness.ends(one, "cancelled")
    both = [await harness.done(request) for request in (one, waiting)]
    ends = [(done.finish_reason, done.tokens, done.ttft_s is None) for done in both]
    assert ends == [("cancelled", 4, False), ("cancelled", 0, True)]
    assert harness.logged(one)[1] == ids[:4]
    assert TEXT.startswith(await harness.shown(one))
    harness.writes(two, ids)
    harness.ends(two)
    assert (await harness.shown(two)) == TEXT


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Simulate a full disk for this process: no file grows beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_log_that_cannot_be_written_ends_its_answer_and_no_other(
    harness: AnswersHarness, tokens: Tokens
) -> None:
    ids = ids_of(tokens, TEXT)
    await harness.load(context=5000)
    long, short = await harness.ask("long " * 800), await harness.ask()
    harness.writes(long, ids[:2])
    with files_up_to((harness.node.home.tokens / f"{long.request_id}.mct").stat().st_size):
        harness.writes(long, ids[2:])
        harness.writes(short, ids)
    with files_up_to(0), pytest.raises(NodeError, match="answer can't be saved") as refused:
        await harness.ask()
    assert "Free some space" in refused.value.fix
    assert harness.asked == [long, short], "what cannot be written down is not asked for"
    assert len(list(harness.node.home.tokens.iterdir())) == 2
    harness.ends(short)
    done = await harness.done(long)
    assert (done.finish_reason, done.tokens, harness.cancelled) == ("error", 2, [long.request_id])
    assert done.problem
    assert done.problem.what.startswith("The answer can't be saved")
    assert harness.logged(long)[1] == ids[:2]
    assert ((await harness.shown(short)), harness.logged(short)[1]) == (TEXT, ids)
    assert harness.bus.now.running == ()


async def test_a_broken_link_ends_nothing_and_the_end_of_the_plan_everything(
    harness: AnswersHarness, tokens: Tokens
) -> None:
    one = await harness.ask()
    harness.writes(one, ids_of(tokens, TEXT))
    harness.worker.is_ready = False
    accepted = await harness.answers.ask(ChatRequest(messages=(Message(role="user", content="hello"),), raw=True))
    assert harness.bus.now.running == (one.request_id, accepted.request_id)
    assert harness.asked == [one], "it waits until the ring stands"
    harness.worker.is_ready = True
    harness.answers.send()
    two = harness.asked[1]
    assert (len(harness.asked), two.request_id) == (2, accepted.request_id)
    harness.answers.stop_all(LOST)
    harness.ends(one)
    assert {((await harness.done(r)).finish_reason, (await harness.done(r)).problem) for r in (one, two)} == {
        ("error", LOST)
    }
    assert (await harness.shown(one)) == TEXT
    with pytest.raises(NotLoaded):
        await harness.ask()  # the next plan has its own tokenizer, read after the tokens are sent
    await harness.load()
    await harness.ask()


async def test_a_model_that_is_loaded_again_keeps_its_tokenizer(harness: AnswersHarness) -> None:
    kept = harness.answers._tokenizer.now()
    harness.answers.stop_all(LOST, keeps_tokenizer=True)
    await harness.load()
    assert harness.answers._tokenizer.now() is kept
    harness.answers.stop_all(LOST)
    await harness.load()
    assert harness.answers._tokenizer.now() is not kept


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param({"text": "a b c d e " * 10}, "the context holds 24", id="prompt"),
        pytest.param({"min_tokens": 24}, "min_tokens is 24", id="more_than_room"),
        pytest.param(
            {"min_tokens": 5, "max_tokens": 4}, "min_tokens is 5, but the answer can have 4", id="more_than_most"
        ),
    ],
)
async def test_what_has_no_room_is_refused(harness: AnswersHarness, asked: dict[str, object], said: str) -> None:
    await harness.load(context=24)
    with pytest.raises(UsageError, match=said) as refused:
        await harness.ask(**asked)  # type: ignore[arg-type]
    assert refused.value.fix
    assert not [event for event in harness.bus.events if isinstance(event, RequestStarted)]
    assert not harness.pipe.sent


def lost(kind: str = CachesLost.__name__) -> Problem:
    return Problem(kind=kind, what="mini was restarted.")


async def test_suspended_answers_go_on_behind_what_is_written_and_hear_nothing_meanwhile(
    harness: AnswersHarness, tokens: Tokens
) -> None:
    ids = ids_of(tokens, TEXT)
    one, two = await harness.ask(sampling=Sampling(temperature=0.8)), await harness.ask("and me")
    harness.writes(one, ids[:7])
    harness.answers.suspend()
    assert harness.answers.under_way == {one.request_id: (len(one.tokens), 7), two.request_id: (len(two.tokens), 0)}
    before = len(harness.bus.events)
    for report in (
        Token(request_id=one.request_id, index=7, token=ids[7]),
        Prefilled(request_id=one.request_id, done=1, total=2),
    ):
        harness.says(report)
    for request in (one, two):
        harness.ends(request, "error", LOST)
    assert (len(harness.bus.events), harness.cancelled) == (before, [])
    harness.answers.send()
    harness.answers.send()
    assert harness.asked[2:] == [replace(one, written=ids[:7]), two]
    assert one.sampling.seed is not None
    harness.says(Token(request_id=one.request_id, index=6, token=5))
    harness.says(Token(request_id=one.request_id, index=8, token=5))
    assert harness.logged(one)[1] == ids[:7], "only the next one counts"
    harness.writes(one, ids[7:])
    harness.ends(one)
    assert [event.index for event in harness.told(one)] == list(range(len(ids)))
    assert ((await harness.shown(one)), harness.log_of(one).text, harness.logged(one)[1]) == (TEXT, TEXT, ids)
    done = await harness.done(one)
    assert done.tokens == len(ids)
    assert done.ttft_s != 0.25, "the worker knows only the last part of it"
    assert done.decode_tokens_per_s != 2.0


@pytest.mark.parametrize("kind", ["CachesLost", "NoAnswer", "LinkLost"])
@pytest.mark.parametrize("is_ready", [pytest.param(True, id="ready"), pytest.param(False, id="not_ready")])
async def test_what_a_worker_lost_it_is_handed_again_a_few_times(
    harness: AnswersHarness, kind: str, is_ready: bool
) -> None:
    request = await harness.ask()

    def loses() -> None:
        harness.worker.is_ready = is_ready
        harness.ends(request, "error", lost(kind))
        harness.worker.is_ready = True
        harness.answers.send()

    for _ in range(MAX_LOSSES):
        loses()
    harness.writes(request, [65])
    for _ in range(MAX_LOSSES):
        loses()
    assert [one.written for one in harness.asked] == [[]] * (1 + MAX_LOSSES) + [[65]] * MAX_LOSSES
    assert harness.bus.now.running == (request.request_id,)
    loses()
    done = await harness.done(request)
    assert (done.finish_reason, done.problem, done.tokens) == ("error", lost(kind), 1)
    assert harness.log_of(request).ended is None
    assert len(harness.asked) == 1 + 2 * MAX_LOSSES


async def test_an_answer_at_which_two_workers_ended_is_not_given_to_a_third(harness: AnswersHarness) -> None:
    poison, fine = await harness.ask("poison"), await harness.ask("fine")

    def worker_ends() -> None:
        harness.answers.worker_died()
        harness.answers.worker_died()  # another stage of the same plan tells it, too
        harness.answers.suspend()
        harness.answers.send()

    worker_ends()
    assert harness.asked[-1].request_id == poison.request_id, "they are tried in turn"
    worker_ends()
    done = await harness.done(poison)
    assert (done.finish_reason, done.problem and done.problem.kind) == ("error", "WorkerDied")
    assert "not tried again" in (done.problem.what if done.problem else "")
    assert harness.bus.now.running == (fine.request_id,)
    assert [one.request_id for one in harness.asked].count(poison.request_id) == MAX_DEATHS
    assert harness.asked[-1].request_id == fine.request_id
    harness.ends(fine)
    assert (await harness.done(fine)).problem is None


async def test_of_answers_at_which_a_worker_ended_the_next_is_tried_once_one_writes_or_ends(
    harness: AnswersHarness,
) -> None:
    first, second, third = [await harness.ask(text) for text in ("one", "two", "three")]
    harness.answers.worker_died()
    harness.answers.send()
    for tried, goes_on in ((first, harness.writes), (second, None), (third, harness.writes)):
        assert harness.asked[-1].request_id == tried.request_id
        if goes_on:
            goes_on(tried, [65])
            await until(lambda: bool(harness.told(tried)))  # noqa: B023 - awaited here
        else:
            harness.answers.cancel(tried.request_id)
    assert len(harness.asked) == 3 + 3


@pytest.mark.parametrize("is_suspended", [pytest.param(True, id="suspended"), pytest.param(False, id="handed_over")])
async def test_an_answer_is_cancelled_in_any_state(harness: AnswersHarness, is_suspended: bool) -> None:
    request = await harness.ask()
    harness.writes(request, [65])
    if is_suspended:
        harness.answers.suspend()
    harness.answers.cancel(request.request_id)
    harness.answers.send()
    assert ((await harness.done(request)).finish_reason, (await harness.done(request)).tokens) == ("cancelled", 1)
    assert (len(harness.asked), harness.cancelled) == (1, [] if is_suspended else [request.request_id])
    assert harness.log_of(request).ended == "cancelled"


async def test_macs_that_come_later_are_in_the_log_before_they_are_asked(harness: AnswersHarness) -> None:
    assert harness.worker.led
    one, two = await harness.ask(), await harness.ask()
    harness.answers.suspend()
    plan = replace(harness.worker.led, stages=tuple(plan_of(3).stages[i] for i in (0, 2)))
    harness.worker.led = plan
    with files_up_to((harness.node.home.tokens / f"{one.request_id}.mct").stat().st_size):
        harness.answers.send()
    assert len(harness.asked) == 2, "who cannot be written down sees nothing"
    assert {(await harness.done(r)).finish_reason for r in (one, two)} == {"error"}
    three = await harness.ask()
    harness.answers.suspend()
    harness.worker.led = replace(plan, stages=plan_of(2).stages)
    harness.answers.send()
    harness.answers.suspend()
    harness.answers.send()
    assert harness.log_of(three).macs == {mac_id(0), mac_id(1), mac_id(2)}
    await harness.answers.forget_shared({mac_id(1)})
    assert [path.stem for path in harness.node.home.tokens.iterdir()] == [three.request_id], "it runs"
    harness.answers.cancel(three.request_id)
    await harness.done(three)
    assert not list(harness.node.home.tokens.iterdir())


async def test_what_is_mirrored_of_an_answer_comes_back_to_the_next_worker(harness: AnswersHarness) -> None:
    mirrored_by(harness, 30)
    request = await harness.ask("What a long prompt this is")
    harness.writes(request, [65, 66, 67])
    known = len(request.tokens) + 2
    mirrors(harness, request, 0, 4, 10)
    mirrors(harness, request, 4, known, 10)
    mirrors(harness, request, known, known + 1, 11)  # more than fits in memory
    assert StopMirror(request_id=request.request_id) in harness.pipe.sent
    harness.answers.suspend()
    mirrors(harness, request, known, known + 1, 1)  # of a worker that is about to be replaced
    harness.answers.send()
    again = harness.handed(request.request_id)
    assert (again.written, again.mirrored) == ([65, 66, 67], known)
    harness.answers.handle_mirror_report(WantSpans(request_id=request.request_id, behind=1))
    given = (MirrorSpan(4, known, bytes(10)),)
    assert harness.pipe.sent[-1] == MirrorSpans(request_id=request.request_id, behind=1, spans=given)


@pytest.mark.parametrize("end", ["revoked", "unloaded"])
@pytest.mark.promise("P21")
async def test_nothing_is_mirrored_any_more(harness: AnswersHarness, end: str) -> None:
    mirrored_by(harness, 30)
    request = await harness.ask()
    mirrors(harness, request, 0, 4, 10)
    if end == "revoked":
        await harness.answers.forget_shared({mac_id(1)})
        harness.answers.handle_mirror_report(WantSpans(request_id=request.request_id, behind=0))
        assert harness.pipe.sent[-1] == MirrorSpans(request_id=request.request_id, behind=0, spans=())
    else:
        harness.answers.stop_all(LOST)
    assert harness.answers._mirror.nbytes == 0


def mirrored_by(harness: AnswersHarness, size: int) -> None:
    """Give the plan `size` bytes for a mirror."""
    assert harness.worker.led
    harness.worker.led = replace(harness.worker.led, mirror_bytes=size)


def mirrors(harness: AnswersHarness, request: Request, start: int, stop: int, size: int) -> None:
    """The worker sends the caches of some tokens."""
    span = MirrorSpan(start, stop, bytes(size))
    harness.answers.handle_mirror_report(Mirrored(request_id=request.request_id, span=span))


async def test_while_a_plan_is_kept_alive_its_text_refuses_new_requests(harness: AnswersHarness) -> None:
    harness.worker.led, harness.worker.is_ready = None, False
    harness.bus.publish(Recovery(state="wait", text="mini is gone.", fix="Wake it up."))
    with pytest.raises(NotLoaded, match=r"mini is gone\. Wake it up\."):
        await harness.ask()


@pytest.mark.slow
@given(st.data())
@settings(max_examples=15 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_crash_anywhere_costs_nothing_that_was_shown(
    tmp_path: Path, model: Path, tokens: Tokens, data: st.DataObject
) -> None:
    """A stop text may begin before the crash and end after it; the crash may cut the last records of the log."""
    ids = ids_of(tokens, TEXT)
    count = data.draw(st.integers(0, len(ids)))
    cut = data.draw(st.integers(0, 80))
    stop = data.draw(st.sampled_from(["never", "Flüsse,", "end of", TEXT[-1]]))

    async def answer() -> None:
        harness = await AnswersHarness(tmp_path, model).load()
        request = await harness.ask(stop=(stop,), max_tokens=len(ids))
        path = harness.node.home.tokens / f"{request.request_id}.mct"
        opened = path.stat().st_size
        for token in ids[:count]:
            if request.request_id in harness.answers.under_way:
                harness.writes(request, [token])
        has_ended = not harness.answers.under_way
        again = await harness.crashes().load()
        if (named := path.with_suffix(ENDED)).exists():
            named.rename(path)  # the crash came before it got this name
        os.truncate(path, max(opened, path.stat().st_size - cut))
        left = await again.answers.unfinished()
        if not left:
            assert has_ended
            return
        assert cut or not has_ended
        (begun,) = left
        shown = "".join(event.text for event in harness.told(request))
        assert shown.startswith(begun.text)
        assert begun.tokens <= len(harness.told(request))
        again.before[request.request_id] = begun.tokens
        accepted = await again.answers.go_on(AnswerId())
        if accepted.request_id in again.answers.under_way:
            assert again.handed(request.request_id) == replace(request, written=ids[: begun.tokens])
            for token in ids[begun.tokens :]:
                if accepted.request_id in again.answers.under_way:
                    again.writes(request, [token])
        if accepted.request_id in again.answers.under_way:
            again.ends(request)
        whole = begun.text + (await again.shown(request))
        assert whole == TEXT.partition(stop)[0]
        assert again.log_of(request).tokens == ids[: begun.tokens + len(again.told(request))]
        assert await again.answers.unfinished() == []
        await again.ends_all()

    asyncio.run(answer())


async def test_an_unfinished_answer_goes_on_as_it_was_asked_for(harness: AnswersHarness, tokens: Tokens) -> None:
    ids = ids_of(tokens, TEXT)
    sampling = Sampling(temperature=0.7, logprobs=1)
    request = await harness.ask("tell me", sampling, max_tokens=90, min_tokens=3, stop=("never",))
    harness.writes(request, ids[:5])
    assert await harness.answers.unfinished() == [], "it is being written"
    again = harness.crashes()
    (begun,) = await again.answers.unfinished()
    assert (begun.request_id, begun.model, begun.tokens, begun.max_tokens) == (request.request_id, "toy", 5, 90)
    assert begun.messages == (Message(role="user", content="tell me"),)
    assert begun.text == "".join(event.text for event in harness.told(request)) == "Zwei Fl", "without a model"
    await again.load()
    assert await again.goes_on(request.request_id[:6]) == replace(request, written=ids[:5])
    assert again.answers.under_way == {request.request_id: (len(request.tokens), 5)}
    assert RequestStarted(request_id=request.request_id, prompt_tokens=len(request.tokens)) in again.bus.events
    with pytest.raises(UsageError, match="There is no unfinished answer"):
        await again.goes_on()
    again.writes(request, ids[5:])
    assert [event.index for event in again.told(request)] == list(range(5, len(ids)))
    again.ends(request)
    done = await again.done(request)
    assert (done.tokens, done.finish_reason) == (len(ids), "length")
    assert done.decode_tokens_per_s != 2.0
    assert again.answers.conversation
    assert again.answers.conversation.messages[-1].content == begun.text + (await again.shown(request)) == TEXT
    assert again.answers.conversation.tokens == [*request.tokens, *ids]
    assert await again.answers.unfinished() == []


@pytest.mark.promise("P16")
async def test_no_log_of_a_running_answer_is_swept_whatever_dates_the_others_have(
    harness: AnswersHarness, tokens: Tokens
) -> None:
    folder = harness.node.home.tokens
    folder.mkdir(mode=0o700)
    tomorrow = time.time() + 86_400
    later = [folder / f"{number:032x}.mct" for number in range(KEPT)]
    for path in later:
        path.touch(0o600)
        os.utime(path, (tomorrow, tomorrow))
    one, two = await harness.ask("tell me"), await harness.ask("and me")
    assert all(map(Path.exists, later)), "as many are kept as ever"
    harness.writes(one, ids_of(tokens, TEXT))
    harness.ends(one)
    await harness.done(one)
    assert harness.log_of(one).text == TEXT
    three = await harness.ask("and me, too")
    assert not [*folder.glob(f"{one.request_id}*")], "it has ended, and is older than a hundred others"
    again = harness.crashes()
    assert {one.request_id for one in await again.answers.unfinished()} == {two.request_id, three.request_id}


@pytest.mark.parametrize("end", ["ends", "fails", "cancelled", "crashes"])
async def test_of_an_answer_that_is_not_to_be_kept_there_is_no_log(
    harness: AnswersHarness, tokens: Tokens, end: str
) -> None:
    kept, request = await harness.ask("tell me"), await harness.ask("tell nobody", keep=False)
    harness.writes(request, ids_of(tokens, TEXT)[:5])
    logs = harness.node.home.tokens
    assert [path.stem for path in logs.iterdir()] == [kept.request_id]
    match end:
        case "ends":
            harness.ends(request)
        case "fails":
            harness.ends(request, "error", LOST)
        case "cancelled":
            harness.answers.cancel(request.request_id)
        case "crashes":
            again = harness.crashes()
            assert [each.request_id for each in await again.answers.unfinished()] == [kept.request_id]
    assert [path.stem for path in logs.iterdir()] == [kept.request_id]


@pytest.mark.parametrize(
    ("loaded", "error", "said"),
    [
        pytest.param(None, NotLoaded, "toy, which began that answer, is not loaded", id="none"),
        pytest.param({"fingerprint": "0" * 64, "model": "other"}, NotLoaded, "but other is loaded", id="other_model"),
        pytest.param({"context": 12}, UsageError, "the context holds 12", id="no_room"),
        pytest.param({"rows": -QUEUE_LIMIT}, Busy, "the most that toy takes", id="busy"),
    ],
)
async def test_what_cannot_go_on_says_why_and_stays_unfinished(
    harness: AnswersHarness, loaded: dict[str, object] | None, error: type[Exception], said: str
) -> None:
    request = await harness.ask("hello", max_tokens=50)
    harness.writes(request, [65] * 8)
    again = harness.crashes()
    if loaded is not None:
        await again.load()
        assert again.worker.led
        again.worker.led = replace(again.worker.led, **loaded)
    before = {path: path.read_bytes() for path in harness.node.home.tokens.iterdir()}
    with pytest.raises(error, match=said) as refused:
        await again.goes_on()
    if error is NotLoaded:
        assert "macluster load toy" in str(refused.value)
    assert {path: path.read_bytes() for path in harness.node.home.tokens.iterdir()} == before
    assert len(await again.answers.unfinished()) == 1
    assert again.bus.now.running == ()


async def test_a_full_disk_keeps_what_is_unfinished_as_it_is(harness: AnswersHarness) -> None:
    request = await harness.ask()
    harness.writes(request, [65] * 8)
    again = await harness.crashes().load()
    path = harness.node.home.tokens / f"{request.request_id}.mct"
    before = path.read_bytes()
    with files_up_to(len(before) // 2), pytest.raises(NodeError, match="answer can't be saved"):
        await again.goes_on()
    assert path.read_bytes() == before
    assert (await again.goes_on()).written == [65] * 8


async def test_of_answers_that_were_cut_off_the_newest_is_meant_or_the_one_that_is_named(
    harness: AnswersHarness,
) -> None:
    asked = [await harness.ask(f"number {n}") for n in range(3)]
    harness.answers.stop_all(LOST)
    again = await harness.crashes().load()
    for seconds, request in enumerate(asked):  # their ends were forced to disk last
        os.utime(harness.node.home.tokens / f"{request.request_id}.mct", (seconds, seconds))
    assert [one.request_id for one in await again.answers.unfinished()] == [r.request_id for r in asked[::-1]]
    assert (await again.goes_on(asked[1].request_id)).request_id == asked[1].request_id
    assert (await again.goes_on()).request_id == asked[2].request_id
    with pytest.raises(UsageError, match="starts with 'zz'"):
        await again.goes_on("zz")


async def test_the_last_token_of_a_burst_is_forced_to_disk_too(
    harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.node.answers.log_sync.SYNC_S", 0.01)
    request = await harness.ask()
    forced = asyncio.Event()
    monkeypatch.setattr(os, "fsync", lambda fd: forced.set())
    for count in (3, 1):
        harness.writes(request, [65] * count)
        assert not forced.is_set()
        await asyncio.wait_for(forced.wait(), 10)
        forced.clear()


async def test_a_slow_disk_stops_no_answer_and_has_each_log_in_its_order(
    harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await harness.ask(), await harness.ask()
    forced, free, names = list[tuple[str, int]](), threading.Semaphore(0), dict[int, Request]()
    for request in (one, two):
        names[(harness.node.home.tokens / f"{request.request_id}.mct").stat().st_ino] = request

    def slow(fd: int) -> None:
        request = names[os.fstat(fd).st_ino]
        begun = len(harness.logged(request)[1])
        assert free.acquire(timeout=60)
        forced.append((request.request_id, begun))

    monkeypatch.setattr(os, "fsync", slow)
    harness.writes(one, [65] * 15)
    harness.writes(two, [65])
    assert not harness.answers._log_sync._is_due.is_set()
    harness.writes(one, [65])
    for _ in range(20):  # the first one is being forced to disk, and both continue
        await asyncio.sleep(0.001)
        harness.writes(one, [66])
        harness.writes(two, [66])
    assert (len(harness.told(one)), forced) == (36, [])
    free.release(100)
    await until(lambda: len(forced) == 3)
    assert [name for name, _ in forced] == [one.request_id, two.request_id, one.request_id]
    assert forced[0][1] < 36, "not all of it was there when the first began"
    assert dict(forced) == {one.request_id: 36, two.request_id: 21}, "all of it was when the last one did"


async def test_nobody_hears_of_an_answer_before_its_log_is_on_disk(
    harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free = threading.Semaphore(0), threading.Event()

    def slow(fd: int) -> None:
        begun.release()
        assert free.wait(60)

    monkeypatch.setattr(os, "fsync", slow)
    gone, asking = asyncio.ensure_future(harness.ask()), asyncio.ensure_future(harness.ask())
    await until(lambda: begun.acquire(blocking=False))
    assert (harness.asked, harness.bus.now.running, await harness.answers.unfinished()) == ([], (), [])
    gone.cancel()
    free.set()
    request = await asking
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert harness.asked == [request]
    assert [path.stem for path in harness.node.home.tokens.iterdir()] == [request.request_id]


@pytest.mark.parametrize(("reason", "problem"), [("stop", None), ("error", LOST)])
async def test_the_end_of_an_answer_is_told_when_it_is_on_disk(
    harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch, reason: FinishReason, problem: Problem | None
) -> None:
    request, (begun, free) = await harness.ask(), (threading.Event(), threading.Event())
    harness.writes(request, [65])

    def slow(fd: int) -> None:
        begun.set()
        assert free.wait(60)

    monkeypatch.setattr(os, "fsync", slow)
    harness.ends(request, reason, problem)
    await until(begun.is_set)
    assert (harness.bus.now.last_done, await harness.answers.unfinished()) == (None, [])
    forgetting = asyncio.create_task(harness.answers.forget_shared({mac_id(1)}))
    free.set()
    await forgetting
    assert (await harness.done(request)).finish_reason == reason
    assert not list(harness.node.home.tokens.iterdir()), "one of its Macs was revoked meanwhile"


async def test_an_answer_may_end_while_another_ones_log_is_forced(
    harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await harness.ask(), await harness.ask()
    begun, free, loop = threading.Event(), threading.Event(), threading.get_ident()

    def slow(fd: int) -> None:
        if threading.get_ident() != loop:
            begun.set()
            assert free.wait(60)

    monkeypatch.setattr(os, "fsync", slow)
    harness.writes(two, [65])
    harness.writes(one, [65] * 16)
    await until(begun.is_set)
    for request in (one, two):
        harness.ends(request)
    assert harness.answers._log_sync._work
    free.set()
    await harness.answers._log_sync._work
    assert [event.text for event in harness.bus.events if isinstance(event, LogLine) and event.level == "ERROR"] == []


async def test_a_defect_while_a_log_is_closed_hides_no_end_of_an_answer(
    harness: AnswersHarness, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    closes = TokenLog.close

    def close(log: TokenLog, *_: object) -> None:
        closes(log)
        raise KeyError("what a person typed")

    request = await harness.ask()
    harness.writes(request, ids_of(tokens, TEXT))
    monkeypatch.setattr(TokenLog, "close", close)
    harness.ends(request)
    assert (await harness.done(request)).finish_reason == "length"
    assert any("The end of an answer failed by a defect: KeyError at " in line.text for line in harness.bus.now.logs)


async def test_a_disk_that_fails_ends_the_answer(harness: AnswersHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    request = await harness.ask()
    monkeypatch.setattr(os, "fsync", fails)
    harness.writes(request, [65] * 16)
    await until(lambda: request.request_id not in harness.answers.under_way)
    assert (problem := (await harness.done(request)).problem)
    assert problem.what.startswith("The answer can't be saved")


async def test_a_seed_is_given_to_whoever_draws_and_has_none(harness: AnswersHarness) -> None:
    warm, again = [await harness.ask(sampling=Sampling(temperature=0.8)) for _ in range(2)]
    own, cold = await harness.ask(sampling=Sampling(temperature=0.8, seed=3)), await harness.ask()
    assert None not in (warm.sampling.seed, again.sampling.seed)
    assert warm.sampling.seed != again.sampling.seed
    assert (own.sampling.seed, cold.sampling.seed) == (3, None)
    assert harness.logged(warm)[0].sampling == warm.sampling


@pytest.mark.slow
@given(st.data())
@settings(max_examples=15 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_answer_is_the_same_however_late_its_text_comes(
    tmp_path: Path, model: Path, tokens: Tokens, data: st.DataObject
) -> None:
    """The worker may be replaced before all text has come, and sends tokens after a stop text."""
    ids = [*ids_of(tokens, TEXT), *tokens.eos]
    stop = data.draw(st.sampled_from(["never", "Flüsse,", "end of", TEXT[-1]]))

    async def answered(harness: AnswersHarness, late: deque[Callable[[], None]]) -> tuple[str, list[int], str, int]:
        await harness.load()
        request = await harness.ask(stop=(stop,), max_tokens=len(ids))
        index = 0
        while harness.answers.under_way:
            what = data.draw(st.sampled_from(["token", "token", "text", "worker"])) if index < len(ids) else "end"
            if what == "token":
                harness.says(Token(request_id=request.request_id, index=index, token=ids[index]))
                index += 1
            elif what == "text" and late:
                late.popleft()()
            elif what == "worker":
                harness.answers.suspend()
                harness.answers.send()
                assert harness.handed(request.request_id).written == ids[:index], "what the next worker goes on behind"
            elif what == "end":
                harness.ends(request, "stop")
                while late:
                    late.popleft()()
        written = harness.logged(request)[1]
        done = await harness.done(request)
        return await harness.shown(request), written, done.finish_reason, done.tokens

    async def both() -> None:
        slow = LateTokenizer(tokens)

        async def read(_: Path) -> LateTokenizer:
            return slow

        harness, prompt = AnswersHarness(tmp_path, model, read), AnswersHarness(tmp_path, model)
        try:
            shown, written, reason, count = await answered(harness, slow.late)
            assert (shown, written, reason) == (await answered(prompt, deque()))[:3]
        finally:
            await harness.ends_all()
            await prompt.ends_all()
        assert count in (len(written), 5), "five are what the worker of these tests counts"

    asyncio.run(both())


@pytest.mark.parametrize("more", [{"messages": 80_000}, {"prompt_tokens": (1,) * 501}])
async def test_a_prompt_that_can_never_fit_is_refused_before_it_is_read(
    tmp_path: Path, model: Path, tokens: Tokens, more: dict[str, Any]
) -> None:
    class Unread(LateTokenizer):
        async def encode(self, *_: object, **__: object) -> list[int]:
            raise AssertionError

        vocab_size = property(lambda self: 1 / 0, lambda self, _: None)

    async def read(_: Path) -> LateTokenizer:
        return Unread(tokens)

    said = (Message(role="user", content="a" * more.get("messages", 1)),)
    asked = ChatRequest(messages=said, raw=True, prompt_tokens=more.get("prompt_tokens", ()))
    harness = await AnswersHarness(tmp_path, model, read).load()
    try:
        for ask in (harness.answers.count, harness.answers.ask):
            with pytest.raises(ContextExceeded, match="the context holds 500"):
                await ask(asked)
    finally:
        await harness.ends_all()


async def test_a_call_of_a_tool_that_is_not_there_is_refused_in_words(harness: AnswersHarness) -> None:
    with pytest.raises(UsageError, match="must call 'go', which is not among its tools"):
        await harness.ask(must_call=("go",))


ENDS = ("ends", "fails", "cancelled")


@pytest.mark.promise("P29")
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(ENDS), st.integers(0, 4)), min_size=1, max_size=4))
@settings(max_examples=10 * SEARCH, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_answer_that_is_not_to_be_kept_reaches_a_disk(
    tmp_path: Path, model: Path, tokens: Tokens, asked: list[tuple[bool, str, int]]
) -> None:
    """Whatever others ask between, and however each ends: no text, no id, no log, and no conversation to save."""

    async def answers() -> None:
        with TemporaryDirectory(dir=tmp_path) as folder:
            harness = await AnswersHarness(Path(folder), model).load()
            secrets, saved = list[str](), None
            for number, (keep, end, count) in enumerate(asked):
                request = await harness.ask(f"{'mine' if keep else 'zebraquartz'} {number}", keep=keep)
                harness.writes(request, ids_of(tokens, TEXT)[:count])
                match end:
                    case "ends":
                        harness.ends(request)
                    case "fails":
                        harness.ends(request, "error", LOST)
                    case _:
                        harness.answers.cancel(request.request_id)
                        harness.ends(request, "cancelled")
                await harness.done(request)
                saved = harness.answers.conversation if keep else saved
                secrets += [] if keep else [request.request_id]
                assert harness.answers.conversation == saved
            files = [file for file in harness.folder.rglob("*") if file.is_file()]
            found = b"".join([str(file).encode() + file.read_bytes() for file in files])
            assert not [secret for secret in ("zebraquartz", *secrets) if secret.encode() in found]

    asyncio.run(answers())


@pytest.mark.promise("P29")
async def test_nothing_of_an_answer_that_is_not_kept_is_saved_with_a_conversation(harness: AnswersHarness) -> None:
    own = await harness.ask("mine")
    harness.ends(own)
    await harness.done(own)
    kept = harness.answers.conversation
    secret = await harness.ask("client secret zebraquartz", keep=False)
    harness.writes(secret, [5])
    harness.ends(secret)
    await harness.done(secret)
    assert kept
    assert harness.answers.conversation == kept
    texts = [file.read_bytes() for file in harness.folder.rglob("*") if file.is_file()]
    assert not [each for each in texts if b"zebraquartz" in each or secret.request_id.encode() in each]


async def test_a_tokenizer_that_fails_ends_its_answers_and_another_one_is_read_for_the_next(
    tmp_path: Path, model: Path, tokens: Tokens
) -> None:
    found = list[LateTokenizer]()

    async def read(_: Path) -> LateTokenizer:
        found.append(LateTokenizer(tokens))
        return found[-1]

    harness = await AnswersHarness(tmp_path, model, read).load()
    request = await harness.ask()
    harness.answers.handle_report(Token(request_id=request.request_id, index=0, token=9))
    found[0].is_over = True
    problem = BadModel("The tokenizer of toy takes too long.").problem
    (running,) = harness.answers._running.values()
    running._take(harness.answers._write, Refused(problem=problem))
    assert ((await harness.done(request)).problem, harness.cancelled) == (problem, [request.request_id])
    assert len(await harness.answers.unfinished()) == 1, "it can go on"
    again = await harness.ask("tell me")
    assert (len(found), again.tokens) == (2, ids_of(tokens, "tell me"))
    await harness.ends_all()


async def test_who_is_gone_while_the_request_is_taken_wants_no_answer(harness: AnswersHarness) -> None:
    asking = asyncio.ensure_future(harness.ask())
    while not harness.answers.under_way:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not harness.answers.under_way
    assert harness.cancelled == [request.request_id for request in harness.asked]
