"""Requests on the head: prompt to tokens, tokens to the log, to text, to events. They outlive their workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from core.errors import (
    Busy,
    CachesLost,
    LinkLost,
    MaclusterError,
    NoAnswer,
    NodeError,
    NotLoaded,
    NotPaired,
    Problem,
    SealError,
)
from core.events import Batch, Plan, Progress, PromptLogprobs, RequestDone, RequestStarted, TokenEvent
from core.models.text.text_messages import Decoded, Refused
from core.node.answers.answer_record import chosen, going_on, new_request_id, record_of, unfinished_of
from core.node.answers.answer_stream import Followed, Said, answer_stream
from core.node.answers.batch_view import batch_now
from core.node.answers.kv_mirror import Mirror
from core.node.answers.log_sync import LogSync
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.prompts import constraint_of, prompt_of, text_of
from core.node.answers.running_answer import EndedConversation, RunningAnswer
from core.node.answers.token_log import AnswerRecord, TokenLog, Written, forget_shared, old_logs, unfinished
from core.node.answers.tokenizer import Tokenizer
from core.node.answers.unlogged_answer import UnloggedAnswer
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.stopwatch import Stopwatch
from core.node.base.tasks import Tasks
from core.node.ring.plan_leader import PlanLeader
from core.node.ring.worker_supervisor import Supervisor
from core.requests.answers import AnswerId, ChatRequest, RequestAccepted, UnfinishedAnswer
from core.settings import QUEUE_LIMIT
from core.trust.levels import carries_prompts
from core.trust.sealed_files import forget
from core.worker.messages import (
    AnswerDone,
    Cancel,
    Departed,
    Mirrored,
    MirrorSpans,
    Prefilled,
    Restored,
    StopMirror,
    Token,
    Unmirrored,
    WantSpans,
)

LOOK_S: Final = 0.1
MAX_LOSSES: Final = 3
LOSSES: Final = frozenset(error.__name__ for error in (CachesLost, NoAnswer, LinkLost))


class Answers:
    """The answers that run at the same time. The worker queues and batches them; here they are counted, written down
    and turned into text. A worker that is lost loses none: they are handed over again, to go on behind what is written.
    `conversation`: the one whose answer ended last, or that was loaded. `active_at`: when the ring last did something
    for one of them, by the machine's clock.
    """

    def __init__(
        self,
        leader: PlanLeader,
        supervisor: Supervisor,
        bus: Bus,
        journal: Journal,
        tasks: Tasks,
        folder: Path,
        secret: bytes,
        tokenizer: ModelTokenizer[Tokenizer],
    ) -> None:
        self._leader = leader
        self._supervisor = supervisor
        self._bus = bus
        self._journal, self._tasks = journal, tasks
        self._folder = folder
        self._secret = secret
        self._tokenizer = tokenizer
        self._old_logs = asyncio.Lock()
        self._unsettled: set[str] = set()  # whose logs are being opened, or closed
        self._turn_to_open = asyncio.Lock()
        self._endings: set[asyncio.Task[None]] = set()
        self._running: dict[str, RunningAnswer] = {}
        self._shunned: set[str] = set()  # Macs that were revoked while this node ran
        self._log_sync = LogSync(self._running, tasks, self._unwritten)
        self.conversation: EndedConversation | None = None
        self.active_at = 0.0
        self._mirror = Mirror()

    @property
    def under_way(self) -> dict[str, tuple[int, int]]:
        """How many tokens the prompt has and how many are written, of each answer, in the order of asking."""
        return {name: (len(one.record.prompt), len(one.tokens)) for name, one in self._running.items()}

    async def use(self, directory: Path) -> None:
        """Read the tokenizer of the model that is being loaded, while the stages load. Raises BadModel."""
        await self._tokenizer.read(directory)

    async def close(self) -> None:
        """Until what became of all answers is told, which have ended, and no process of a tokenizer is left."""
        if self._endings:
            await asyncio.wait(self._endings)
        await self._tokenizer.close()

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Hand a request to the worker, as soon as the ring is proved and stands.

        Raises NotLoaded, NotPaired, Busy, UsageError, NodeError.
        """
        return (await self._take(new_request_id(), request)).accepted

    async def _take(self, request_id: str, request: ChatRequest, watch: Stopwatch | None = None) -> RunningAnswer:
        plan, reading = self._loaded()
        tokens = await asyncio.shield(reading)
        self._check(plan, reading)
        prompt = await prompt_of(request, tokens)
        constraint = await constraint_of(request, prompt, tokens)
        if watch:
            watch.lap("encode")
        plan = self._check(plan, reading)  # a template takes its time, and the world may have moved on
        asked = msgspec.structs.replace(request, constraint=constraint)
        record = record_of(request_id, asked, prompt, tokens.eos, plan)
        log = await self._opened(record) if record.keep else UnloggedAnswer()
        try:
            self._check(plan, reading)
        except MaclusterError:
            log.forget()
            raise
        running = RunningAnswer(record, log, tokens.stream(record.request_id), watch=watch)
        self._begin(running)
        if watch:
            watch.lap("dispatch")
        if record.keep:
            await self._make_room(running)
        return running

    async def _opened(self, record: AnswerRecord) -> TokenLog:
        """Its log, which is on disk before anybody hears of the answer, in the order of asking. Raises NodeError."""
        async with self._turn_to_open:
            self._unsettled.add(record.request_id)
            try:
                log = TokenLog(self._folder, self._secret, record)
                try:
                    await asyncio.to_thread(log.syncing())
                except BaseException:  # also where whoever asked is gone
                    log.forget()
                    raise
                return log
            except OSError as error:
                raise _unwritable(error) from error
            finally:
                self._unsettled.discard(record.request_id)

    async def count(self, request: ChatRequest) -> int:
        """How many tokens its prompt has. Raises NotLoaded, BadModel, UsageError."""
        _, reading = self._loaded()
        tokens = await asyncio.shield(reading)
        return len(await prompt_of(request, tokens))

    async def text_of(self, ids: Sequence[int]) -> str:
        """What token ids say. Raises NotLoaded, BadModel, UsageError."""
        _, reading = self._loaded()
        return await text_of(ids, await asyncio.shield(reading))

    async def follow(self, request: ChatRequest, watch: Stopwatch | None = None) -> AsyncGenerator[Said, None]:
        """Ask, and tell what comes of it to its end; `watch` times how. Who stops listening before does not want it any
        more. Raises as `ask`, BadModel, and NodeError where the node ends.
        """
        request_id = new_request_id()
        async with aclosing(self._bus.follow(request_id)) as events:
            await anext(events)
            running, is_over = await self._take(request_id, request, watch), False
            stop = partial(self.cancel, request_id)
            try:
                yield running.accepted
                saying = answer_stream(_said_of(events), running.reader(), stop, one_call=request.one_call)
                async with aclosing(saying) as parts:
                    async for said in parts:
                        is_over = isinstance(said, RequestDone)
                        yield said
                        if is_over:
                            return
            finally:
                if not is_over:
                    stop()
        raise NodeError("The node of this Mac ends.", "Ask again.")

    async def unfinished(self) -> list[UnfinishedAnswer]:
        """Answers that a crash, a problem or the person cut off, the newest first; none of those that run."""
        return [unfinished_of(written) for written in await self._unfinished()]

    async def go_on(self, wanted: AnswerId) -> RequestAccepted:
        """Continue an unfinished answer, the newest whose id begins so, behind what is written.

        Raises UsageError where there is none or no room for it, NotLoaded, NotPaired, Busy, NodeError, SealError.
        """
        async with self._old_logs:
            written = chosen(await self._unfinished(), wanted)
            plan, reading = self._loaded_for(written.record)
            tokens = await asyncio.shield(reading)
            plan = self._check(plan, reading)
            record = going_on(written, plan)
            stream = tokens.stream(record.request_id)
            with ExitStack() as undo:
                undo.callback(stream.end)
                decoded = await stream.add_all([token for token in written.tokens if token not in record.eos])
                self._check(plan, reading)
                old = (written.tokens, written.text)
                try:
                    log = await asyncio.to_thread(TokenLog.going_on, self._folder, self._secret, record, *old)
                except OSError as error:
                    raise _unwritable(error) from error
                undo.callback(log.close)
                self._check(plan, reading)
                undo.pop_all()
            running = RunningAnswer(record, log, stream, written.tokens, decoded, written.text)
            self._begin(running)
            return running.accepted

    def _begin(self, running: RunningAnswer) -> None:
        record = running.record
        self._running[record.request_id] = running
        self._bus.publish(
            RequestStarted(request_id=record.request_id, prompt_tokens=len(record.prompt), client=running.client)
        )
        if running.stopped:
            self._break_off(running, running.so_far("stop"))
        self.send()

    def send(self) -> None:
        """The ring may be ready now: hand over what waits for that."""
        plan = self._leader.plan
        if plan is None or not self._leader.ready:
            return
        macs = frozenset(part.device_id for part in plan.parts)
        for running in [one for one in self._running.values() if not (one.is_handed_over or one.end)]:
            try:
                running.join(macs)
            except OSError as error:
                self._unwritten(running, error)
                continue
            self._mirror.limit = plan.mirror_bytes
            mirrored = self._mirror.begin(running.request_id, running.known)
            self._supervisor.send(running.hand_over(mirrored))

    def suspend(self) -> None:
        """The workers are about to be replaced: nothing of what they still say counts, and `send` hands over anew."""
        for running in self._running.values():
            running.is_handed_over = False

    async def attend(self, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Until the answer ends; it is cancelled where whoever asked for it is gone before that."""
        while request_id in self._running:
            if is_gone():
                self.cancel(request_id)
                return
            await asyncio.sleep(LOOK_S)

    async def _unfinished(self) -> list[Written]:
        before = self._under_way()
        found = await asyncio.to_thread(unfinished, self._folder, self._secret)
        return [one for one in found if one.record.request_id not in before | self._under_way()]

    def _under_way(self) -> set[str]:
        """Whose logs are in use."""
        return self._unsettled | self._running.keys()

    def _loaded(self) -> tuple[Plan, asyncio.Future[Tokenizer]]:
        plan, reading = self._leader.plan, self._tokenizer.now()
        if plan and reading:
            return plan, reading
        if recovery := self._bus.now.recovery:
            raise NotLoaded(recovery.text, recovery.fix or "Ask again when that is over.")
        raise NotLoaded("No model is loaded.")

    def _loaded_for(self, record: AnswerRecord) -> tuple[Plan, asyncio.Future[Tokenizer]]:
        load = f"Load it: `macluster load {record.model}`."
        if self._leader.plan is None and self._bus.now.recovery is None:
            raise NotLoaded(f"{record.model}, which began that answer, is not loaded.", load)
        plan, reading = self._loaded()
        if plan.fingerprint != record.fingerprint:
            raise NotLoaded(f"{record.model} began that answer, and {plan.model} is loaded.", load)
        return plan, reading

    def _check(self, plan: Plan, reading: asyncio.Future[Tokenizer]) -> Plan:
        """The plan of now, which may be another one of the same model."""
        now, same = self._loaded()
        if now.fingerprint != plan.fingerprint or same is not reading:
            raise NotLoaded(f"{plan.model} was unloaded meanwhile.")
        self.check_trust()
        if len(self._running) >= now.rows + QUEUE_LIMIT:
            what = f"{len(self._running)} requests run or wait already, which is as many as {now.model} takes here."
            raise Busy(what, "Ask again when one of them is done, or cancel one.")
        return now

    def check_trust(self) -> None:
        """Raises NotPaired where no prompt may leave this Mac."""
        trust = self._bus.now.trust
        if not carries_prompts(trust.level):
            what = f"A prompt does not leave this Mac while {trust.weakest} is {trust.level}. {trust.reason}"
            raise NotPaired(what.strip(), "`macluster trust list` says how far each Mac is trusted.")

    def cancel(self, request_id: str) -> None:
        """End an answer with what it has; unknown ids are ignored, for it may just have ended."""
        if running := self._running.get(request_id):
            self._break_off(running, running.so_far("cancelled"))

    def handle_report(self, report: Token | PromptLogprobs | Departed | Prefilled | AnswerDone) -> None:
        """The head's worker says something about an answer; of one that was broken off here, or is to be handed over
        anew, nothing counts any more.
        """
        self.active_at = monotonic()
        running = self._running.get(report.request_id)
        if running is None or not running.is_handed_over:
            return
        match report:
            case Prefilled(done=done, total=total):
                task = Progress(task="prefill", request_id=report.request_id, done=done, total=total, unit="tokens")
                self._bus.publish(task)
            case Departed():
                running.left(report)
            case PromptLogprobs():
                self._bus.publish(report)
            case Token():
                if running.is_next(report):
                    self._leader.served()
                    running.read(report, self._write)
            case AnswerDone(problem=Problem(kind=kind)) if kind in LOSSES and running.losses < MAX_LOSSES:
                running.losses += 1
                running.is_handed_over = False
                self.send()
            case AnswerDone():
                running.end = report
                self._end_if_read(running)

    def handle_mirror_report(self, report: Mirrored | Unmirrored | WantSpans | Restored) -> None:
        """The head's worker brings what is to be mirrored, or wants it back."""
        running = self._running.get(report.request_id)
        if running is None or not running.is_handed_over:
            return
        match report:
            case Mirrored(request_id=request_id, span=span):
                if not self._mirror.keep(request_id, span, running.known):
                    self._supervisor.send(StopMirror(request_id=request_id))
            case WantSpans(request_id=request_id, behind=behind):
                spans = self._mirror.spans(request_id, behind)
                self._supervisor.send(MirrorSpans(request_id=request_id, behind=behind, spans=spans))
            case Unmirrored():
                self._journal.warn("No more of an answer is mirrored: its states are too large, or could not be cut.")
            case Restored(tokens=tokens):
                rest = len(running.known) - tokens
                if not self._mirror.limit:  # the plan that runs now has no memory for it
                    self._mirror.forget()
                self._journal.info(f"{tokens} tokens came back from the mirror, and {rest} are read again.")

    def counted(self, batch: Batch) -> None:
        """The head's worker says how far it is with all of them."""
        if self._leader.ready:
            self._bus.publish(batch_now(batch, self._running))

    def _end_if_read(self, running: RunningAnswer) -> None:
        if running.end and not running.unread:
            text, done = running.rest(), running.end
            reason = "stop" if running.stopped and done.finish_reason == "length" else done.finish_reason
            self._finish(running, running.figures(msgspec.structs.replace(done, finish_reason=reason)), text)

    def _write(self, running: RunningAnswer, report: Token, decoded: Decoded | Refused) -> None:
        """A token that cannot be written is not shown: it ends the answer, as a stop text does."""
        if isinstance(decoded, Refused):
            self._break_off(running, running.so_far("error", decoded.problem))
            return
        try:
            text = running.write(report.token, decoded)
        except OSError as error:
            self._unwritten(running, error)
            return
        self._log_sync.written(running)
        self._bus.publish(
            TokenEvent(
                request_id=report.request_id,
                index=report.index,
                token=report.token,
                text=text,
                logprob=report.logprob,
                top=report.top,
            )
        )
        if running.stopped:
            self._break_off(running, running.so_far("stop"))
        else:
            self._end_if_read(running)

    def _unwritten(self, running: RunningAnswer, error: OSError) -> None:
        self._break_off(running, running.so_far("error", _unwritable(error).problem))

    def _break_off(self, running: RunningAnswer, done: AnswerDone) -> None:
        """End an answer here, at once; the worker takes its row out after the step that is on its way."""
        if running.is_handed_over:
            self._supervisor.send(Cancel(request_id=done.request_id))
        self._finish(running, done, running.rest())

    def stop_all(self, problem: Problem) -> None:
        """The plan is given up: every answer ends here, with what it has, and its tokenizer is not used again."""
        self._tokenizer.forget()
        for running in list(self._running.values()):
            self._finish(running, running.so_far("error", problem), running.rest())
        self.conversation = None
        self._mirror.forget()

    async def _make_room(self, running: RunningAnswer) -> None:
        try:
            await self._forget_old()
        except SealError as error:
            self._journal.warn(str(error))
        except asyncio.CancelledError:  # whoever asked is gone, and does not know its name
            self.cancel(running.request_id)
            raise

    async def _forget_old(self) -> None:
        """Raises SealError. Whether an answer runs is asked when its log was seen already, and where its log is opened:
        so none that is begun or gone on with meanwhile is lost.
        """
        async with self._old_logs:
            for path in await asyncio.to_thread(old_logs, self._folder):
                if path.stem not in self._under_way():
                    await asyncio.to_thread(forget, path)

    async def forget_shared(self, macs: Collection[str]) -> None:
        """Forget the logs of answers in which one of `macs` took part; of those that run, when they have ended. Raises
        SealError.
        """
        self._shunned.update(macs)
        self._mirror.forget()
        if self._endings:  # what was ended just now is on its way to the disk
            await asyncio.wait(self._endings)
        async with self._old_logs:  # one that is gone on with meanwhile would come back
            count = await asyncio.to_thread(forget_shared, self._folder, self._secret, macs, self._under_way())
        if count:
            self._journal.info(f"{count} token log(s) of answers in which that Mac took part are deleted.")

    def _finish(self, running: RunningAnswer, done: AnswerDone, text: str) -> None:
        del self._running[done.request_id]
        self._mirror.end(done.request_id)
        if not done.problem:
            self.conversation = running.conversation(text)
        if not running.record.keep:
            self._publish_end(running, done, text)
            return
        self._unsettled.add(done.request_id)
        ending = self._tasks.spawn("The end of an answer", self._settle(running, done, text))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def _settle(self, running: RunningAnswer, done: AnswerDone, text: str) -> None:
        """All that was shown is written; it is on disk before its end is told."""
        reason = None if done.problem else done.finish_reason
        try:
            with suppress(OSError):  # the rest is told by the problem
                await asyncio.to_thread(running.log.close, reason)
            with suppress(OSError, SealError):
                if not (done.problem or self._shunned.isdisjoint(running.macs)):
                    await asyncio.to_thread(running.log.forget)
        finally:  # whatever it was: somebody waits for the end
            self._unsettled.discard(done.request_id)
            self._publish_end(running, done, text)

    def _publish_end(self, running: RunningAnswer, done: AnswerDone, text: str) -> None:
        is_whole = done.finish_reason == "stop" and not running.stop_text
        self._bus.publish(
            RequestDone(
                request_id=done.request_id,
                finish_reason=done.finish_reason,
                prompt_tokens=done.prompt_tokens,
                tokens=done.tokens,
                reused_tokens=done.reused,
                beside_tokens=done.beside,
                drafted_tokens=done.drafted,
                accepted_tokens=done.accepted,
                text=text,
                ttft_s=done.ttft_s,
                decode_tokens_per_s=running.rate(done),
                stop_text=running.stop_text,
                is_valid=is_whole if running.record.constraint else None,
                problem=done.problem,
            )
        )
        if done.problem:
            self._journal.error(f"An answer ended after {done.tokens} tokens: {done.problem.what}")


async def _said_of(events: AsyncIterator[object]) -> AsyncIterator[Followed]:
    async for event in events:
        if isinstance(event, Followed):
            yield event


def _unwritable(error: OSError) -> NodeError:
    what = f"The token log cannot be written: {error.strerror}."
    return NodeError(what, "Free space on this Mac's disk, then ask again.")
