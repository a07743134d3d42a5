"""The answers in progress on the head. They outlive the workers that write them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from core import errors
from core.events import Batch, Progress, PromptLogprobs, RequestDone, RequestStarted, TokenEvent
from core.models.text.text_messages import Decoded, Refused
from core.node.answers.answer_archive import AnswerArchive, unwritable
from core.node.answers.answer_opening import AnswerOpening
from core.node.answers.answer_record import new_request_id, unfinished_of
from core.node.answers.answer_stream import Followed, Said, answer_stream
from core.node.answers.kv_mirror import Mirror
from core.node.answers.log_sync import LogSync
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.running_answer import EndedConversation, RunningAnswer, batch_now
from core.node.answers.tokenizer import Tokenizer
from core.node.base.context import NodeContext
from core.node.base.stopwatch import Stopwatch
from core.node.peers.worker_state import WorkerState
from core.node.ring.worker_supervisor import Supervisor
from core.requests.answers import AnswerId, ChatRequest, RequestAccepted, UnfinishedAnswer
from core.worker import messages

MAX_LOSSES: Final = 3
MAX_DEATHS: Final = 2
LOSSES: Final = frozenset(error.__name__ for error in (errors.CachesLost, errors.NoAnswer, errors.LinkLost))


class Answers:
    """Runs answers: hands them to the worker, writes and publishes their tokens, and ends them. The worker queues and
    batches them. If it is lost, they are handed to the next one, which continues them.
    """

    def __init__(
        self, node: NodeContext, worker: WorkerState, supervisor: Supervisor, tokenizer: ModelTokenizer[Tokenizer]
    ) -> None:
        self._worker, self._supervisor, self._tokenizer = worker, supervisor, tokenizer
        self._bus, self._journal = node.bus, node.journal
        self._running: dict[str, RunningAnswer] = {}
        self.archive = AnswerArchive(node, self._running)
        self.opening = AnswerOpening(worker, node.bus, tokenizer, self.archive, self._running)
        self._log_sync = LogSync(self._running, node.tasks, self._unwritten)
        self.conversation: EndedConversation | None = None  # of the kept answer that ended last, or loaded
        self.active_at = 0.0  # when an answer last made progress, monotonic seconds
        self._mirror = Mirror()

    @property
    def under_way(self) -> dict[str, tuple[int, int]]:
        """Tokens of the prompt and tokens written, by request id, in the order of requests."""
        return {name: (len(one.record.prompt), len(one.tokens)) for name, one in self._running.items()}

    async def use(self, directory: Path) -> None:
        await self._tokenizer.read(directory)

    async def close(self) -> None:
        """Wait until every ended answer is on disk and published, and no tokenizer process is left."""
        await self.archive.closed()
        await self._tokenizer.close()

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        return (await self._take(new_request_id(), request)).accepted

    async def _take(self, request_id: str, request: ChatRequest, watch: Stopwatch | None = None) -> RunningAnswer:
        running = await self.opening.new(request_id, request, watch)
        self._begin(running)
        if watch:
            watch.lap("dispatch")
        if running.record.keep:
            try:
                await self.archive.forget_old()
            except asyncio.CancelledError:  # the client is gone without the id
                self.cancel(request_id)
                raise
        return running

    async def count(self, request: ChatRequest) -> int:
        return await self.opening.count(request)

    async def text_of(self, ids: Sequence[int]) -> str:
        return await self.opening.text_of(ids)

    async def follow(self, request: ChatRequest, watch: Stopwatch | None = None) -> AsyncGenerator[Said, None]:
        """The events of a new answer, to its end; closing the generator cancels it. Raises as `ask`, BadModel, and
        NodeError if the node quits.
        """
        request_id = new_request_id()
        async with aclosing(self._bus.follow(request_id)) as events:
            await anext(events)
            running, is_over = await self._take(request_id, request, watch), False
            stop = partial(self.cancel, request_id)
            try:
                yield running.accepted
                followed = (event async for event in events if isinstance(event, Followed))
                saying = answer_stream(followed, running.reader(), stop, one_call=request.one_call)
                async with aclosing(saying) as parts:
                    async for said in parts:
                        is_over = isinstance(said, RequestDone)
                        yield said
                        if is_over:
                            return
            finally:
                if not is_over:
                    stop()
        raise errors.NodeError("macluster is quitting on this Mac.", "Send the request again later.")

    async def unfinished(self) -> list[UnfinishedAnswer]:
        return [unfinished_of(written) for written in await self.archive.unfinished()]

    async def go_on(self, wanted: AnswerId) -> RequestAccepted:
        running = await self.opening.continued(wanted)
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
        """Hand waiting answers to the worker, if the ring is ready; those at which one died in turn, so that another
        death has one cause.
        """
        plan = self._worker.led
        if plan is None or not self._worker.is_ready:
            return
        macs = frozenset(part.device_id for part in plan.parts)
        is_tried = any(one.is_handed_over and one.deaths for one in self._running.values())
        for running in [one for one in self._running.values() if not (one.is_handed_over or one.end)]:
            if running.deaths and is_tried:
                continue
            try:
                running.join(macs)
            except OSError as error:
                self._unwritten(running, error)
                continue
            self._mirror.limit = plan.mirror_bytes
            mirrored = self._mirror.begin(running.request_id, running.known)
            self._supervisor.send(running.hand_over(mirrored))
            is_tried = is_tried or running.deaths > 0

    def suspend(self) -> None:
        """Ignore reports of the workers, which are about to be replaced; `send` hands the answers over again."""
        for running in self._running.values():
            running.is_handed_over = False

    def worker_died(self) -> None:
        """End the answers at which workers died twice without a token between: the next worker would die, too."""
        for running in [one for one in self._running.values() if one.is_handed_over]:
            running.is_handed_over = False
            running.deaths += 1
            if running.deaths >= MAX_DEATHS:
                what = f"{MAX_DEATHS} workers ended unexpectedly at this answer, so it is not tried again."
                problem = errors.WorkerDied(what, "Ask something else; the log says why they ended.").problem
                self._finish(running, running.so_far("error", problem), running.rest())

    def cancel(self, request_id: str) -> None:
        """End an answer with what it has; unknown ids are ignored, since it may just have ended."""
        if running := self._running.get(request_id):
            self._break_off(running, running.so_far("cancelled"))
            self.send()

    def handle_report(
        self, report: messages.Token | PromptLogprobs | messages.Departed | messages.Prefilled | messages.AnswerDone
    ) -> None:
        self.active_at = monotonic()
        running = self._running.get(report.request_id)
        if running is None or not running.is_handed_over:
            return
        match report:
            case messages.Prefilled(done=done, total=total):
                task = Progress(task="prefill", request_id=report.request_id, done=done, total=total, unit="tokens")
                self._bus.publish(task)
            case messages.Departed():
                running.left(report)
            case PromptLogprobs():
                running.read_scores(report, self._bus.publish)
            case messages.Token():
                if running.is_next(report):
                    running.read(report, self._read)
            case messages.AnswerDone(problem=errors.Problem(kind=kind)) if (
                kind in LOSSES and running.losses < MAX_LOSSES
            ):
                running.losses += 1
                running.is_handed_over = False
                self.send()
            case messages.AnswerDone():
                running.end = report
                self._end_if_read(running)

    def handle_mirror_report(
        self, report: messages.Mirrored | messages.Unmirrored | messages.WantSpans | messages.Restored
    ) -> None:
        """Handle KV to mirror, or a request for mirrored KV, from the head's worker."""
        running = self._running.get(report.request_id)
        if running is None or not running.is_handed_over:
            return
        match report:
            case messages.Mirrored(request_id=request_id, span=span):
                if not self._mirror.keep(request_id, span, running.known):
                    self._supervisor.send(messages.StopMirror(request_id=request_id))
            case messages.WantSpans(request_id=request_id, behind=behind):
                spans = self._mirror.spans(request_id, behind)
                self._supervisor.send(messages.MirrorSpans(request_id=request_id, behind=behind, spans=spans))
            case messages.Unmirrored():
                self._journal.warn("An answer is no longer mirrored: its states are too large, or can't be cut.")
            case messages.Restored(tokens=tokens):
                rest = len(running.known) - tokens
                if not self._mirror.limit:  # the current plan has no memory for a mirror
                    self._mirror.forget()
                self._journal.info(f"{tokens} tokens came back from the mirror, and {rest} are read again.")

    def counted(self, batch: Batch) -> None:
        if self._worker.is_ready:
            self._bus.publish(batch_now(batch, self._running))

    def _end_if_read(self, running: RunningAnswer) -> None:
        if running.end and not running.unread:
            text, done = running.rest(), running.end
            reason = "stop" if running.stopped and done.finish_reason == "length" else done.finish_reason
            self._finish(running, running.figures(msgspec.structs.replace(done, finish_reason=reason)), text)
            self.send()

    def _read(self, running: RunningAnswer, report: messages.Token, decoded: Decoded | Refused) -> None:
        was_tried = running.deaths > 0
        self._write(running, report, decoded)
        if was_tried:
            self.send()

    def _write(self, running: RunningAnswer, report: messages.Token, decoded: Decoded | Refused) -> None:
        """Commit and show a token. One that can't be written is not shown and ends the answer, as a stop text does."""
        if isinstance(decoded, Refused):
            self._break_off(running, running.so_far("error", decoded.problem))
            return
        try:
            text = running.write(report.token, decoded)
        except OSError as error:
            self._unwritten(running, error)
            return
        self._log_sync.written(running)
        self._bus.publish(TokenEvent(**msgspec.structs.asdict(report), text=text, names=decoded.names))
        if running.stopped:
            self._break_off(running, running.so_far("stop"))
        else:
            self._end_if_read(running)

    def _unwritten(self, running: RunningAnswer, error: OSError) -> None:
        self._break_off(running, running.so_far("error", unwritable(error).problem))

    def _break_off(self, running: RunningAnswer, done: messages.AnswerDone) -> None:
        if running.is_handed_over:
            self._supervisor.send(messages.Cancel(request_id=done.request_id))
        self._finish(running, done, running.rest())

    def stop_all(self, problem: errors.Problem, *, keeps_tokenizer: bool = False) -> None:
        """Give up the plan: end every answer with its text so far, and the tokenizer unless the model comes again."""
        if not keeps_tokenizer:
            self._tokenizer.forget()
        for running in list(self._running.values()):
            self._finish(running, running.so_far("error", problem), running.rest())
        self.conversation = None
        self._mirror.forget()

    async def forget_shared(self, macs: Collection[str]) -> None:
        self._mirror.forget()
        await self.archive.forget_shared(macs)

    def _finish(self, running: RunningAnswer, done: messages.AnswerDone, text: str) -> None:
        del self._running[done.request_id]
        self._mirror.end(done.request_id)
        if running.record.keep and not done.problem:
            self.conversation = running.conversation(text)
        if running.record.keep:
            reason = None if done.problem else done.finish_reason
            self.archive.close(running, reason, partial(self._publish_end, running, done, text))
        else:
            self._publish_end(running, done, text)

    def _publish_end(self, running: RunningAnswer, done: messages.AnswerDone, text: str) -> None:
        is_whole = done.finish_reason == "stop" and not running.stop_text
        self._bus.publish(
            RequestDone(
                **msgspec.structs.asdict(done),
                text=text,
                stop_text=running.stop_text,
                is_valid=is_whole if running.record.constraint else None,
            )
        )
        if done.problem:
            self._journal.error(f"An answer ended after {done.tokens} tokens: {done.problem.what}")
