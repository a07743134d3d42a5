"""Requests on the head: prompt to tokens, tokens to the log, to text, to events."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from core.engine.requests import Request
from core.engine.stops import StopTexts
from core.errors import Busy, NodeError, NotLoaded, NotPaired, Problem, SealError, UsageError
from core.events import FinishReason, Plan, Progress, RequestDone, RequestStarted, TokenEvent
from core.node.bus import Bus
from core.node.cluster import Cluster
from core.node.journal import Journal
from core.node.supervisor import Supervisor
from core.node.token_log import Opening, TokenLog, forget_old, forget_shared
from core.requests import ChatRequest, Message, RequestAccepted
from core.settings import QUEUE_LIMIT
from core.trust.levels import carries_prompts
from core.worker.messages import Cancel, Done, Generate, Prefilled, Token

if TYPE_CHECKING:
    from core.models.tokens import TextStream, Tokens

LOOK_S: Final = 0.1


class Conversation(NamedTuple):
    """What was said, and the token ids of all of it, as the model read and wrote them."""

    tokens: list[int]
    messages: tuple[Message, ...]


class Running:
    """An answer that the worker writes or has in its queue, to `asked`."""

    def __init__(
        self, asked: tuple[Message, ...], order: Request, log: TokenLog, text: TextStream, stops: StopTexts
    ) -> None:
        self._asked = asked
        self.order = order
        self.log = log
        self._text = text
        self._stops = stops
        self._asked_at = self._last_at = monotonic()
        self._first_at: float | None = None
        self._tokens: list[int] = []
        self._shown = ""

    def add(self, token: int) -> tuple[str, bool]:
        """The text that `token` lets show, and whether a stop text ends the answer."""
        self._last_at = monotonic()
        self._first_at = self._first_at or self._last_at
        self._tokens.append(token)
        text, stopped = self._stops.feed("" if token in self.order.eos else self._text.add(token))
        self._shown += text
        return text, stopped

    def rest(self) -> tuple[str, bool]:
        """The text that was held back until the end, and whether a stop text was in it."""
        text, stopped = self._stops.feed(self._text.finish())
        return text + self._stops.flush(), stopped

    def so_far(self, reason: FinishReason, problem: Problem | None = None) -> Done:
        """An end that the worker does not tell, with the figures that are known here."""
        return Done(
            request_id=self.order.request_id,
            finish_reason=reason,
            prompt_tokens=len(self.order.tokens),
            tokens=len(self._tokens),
            ttft_s=self._first_at - self._asked_at if self._first_at else None,
            decode_s=self._last_at - self._first_at if self._first_at else 0.0,
            problem=problem,
        )

    def conversation(self, rest: str) -> Conversation:
        """All that was said when it ended; `rest` is the text that was held back until then."""
        answer = Message(role="assistant", content=self._shown + rest)
        return Conversation([*self.order.tokens, *self._tokens], (*self._asked, answer))


class Answers:
    """The answers that run at the same time. The worker queues and batches them; here they are counted, written down
    and turned into text. `conversation`: the one whose answer ended last, or that was loaded.
    """

    def __init__(
        self, cluster: Cluster, supervisor: Supervisor, bus: Bus, journal: Journal, folder: Path, secret: bytes
    ) -> None:
        self._cluster = cluster
        self._supervisor = supervisor
        self._bus = bus
        self._journal = journal
        self._folder = folder
        self._secret = secret
        self._tokens: asyncio.Future[Tokens] | None = None
        self._encoding = asyncio.Lock()
        self._running: dict[str, Running] = {}
        self._unsent: list[Request] = []
        self.conversation: Conversation | None = None

    async def use(self, directory: Path) -> None:
        """Read the tokenizer of the model that is being loaded, while the stages load. Raises BadModel."""
        self._tokens = asyncio.ensure_future(asyncio.to_thread(_read_tokenizer, directory))
        await asyncio.shield(self._tokens)

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Hand a request to the worker, as soon as the ring is proved and stands.

        Raises NotLoaded, NotPaired, Busy, UsageError, NodeError.
        """
        plan, reading = self._cluster.plan, self._tokens
        if plan is None or reading is None:
            raise NotLoaded("No model is loaded.")
        tokens = await asyncio.shield(reading)
        async with self._encoding:  # in order, one at a time: a template has two seconds, which many would share
            self._check(plan, reading)
            prompt = await asyncio.to_thread(tokens.encode, request.messages, request.raw)
        self._check(plan, reading)  # a template takes its time, and the world may have moved on
        order = _order(request, prompt, tokens, plan)
        self._running[order.request_id] = Running(
            request.messages, order, self._open_log(order, plan), tokens.stream(), StopTexts(request.stop)
        )
        self._bus.publish(RequestStarted(request_id=order.request_id, prompt_tokens=len(prompt)))
        self._unsent.append(order)
        self.send()
        try:
            await asyncio.to_thread(forget_old, self._folder)
        except SealError as error:
            self._journal.warn(str(error))
        return RequestAccepted(request_id=order.request_id, prompt_tokens=len(prompt))

    def send(self) -> None:
        """The ring may be ready now: hand over what waits for that."""
        if self._cluster.ready:
            orders, self._unsent = self._unsent, []
            for order in orders:
                self._supervisor.send(Generate(request=order))

    async def attend(self, request_id: str, is_gone: Callable[[], bool]) -> None:
        """Until the answer ends; it is cancelled where whoever asked for it is gone before that."""
        while request_id in self._running:
            if is_gone():
                self.cancel(request_id)
                return
            await asyncio.sleep(LOOK_S)

    def _check(self, plan: Plan, reading: asyncio.Future[Tokens]) -> None:
        now = self._cluster.plan
        if now is None or now.fingerprint != plan.fingerprint or self._tokens is not reading:
            raise NotLoaded(f"{plan.model} was unloaded meanwhile.")
        self.check_trust()
        if len(self._running) >= plan.rows + QUEUE_LIMIT:
            what = f"{len(self._running)} requests run or wait already, which is as many as {plan.model} takes here."
            raise Busy(what, "Ask again when one of them is done, or cancel one.")

    def check_trust(self) -> None:
        """Raises NotPaired where no prompt may leave this Mac."""
        trust = self._bus.now.trust
        if not carries_prompts(trust.level):
            what = f"A prompt does not leave this Mac while {trust.weakest} is {trust.level}. {trust.reason}"
            raise NotPaired(what.strip(), "`macluster trust list` says how far each Mac is trusted.")

    def _open_log(self, order: Request, plan: Plan) -> TokenLog:
        opening = Opening(
            request_id=order.request_id,
            model=plan.model,
            fingerprint=plan.fingerprint,
            prompt=order.tokens,
            sampling=order.sampling,
            macs=tuple(s.device_id for s in plan.stages),
        )
        try:
            return TokenLog(self._folder, self._secret, opening)
        except OSError as error:
            raise _unwritable(error) from error

    def cancel(self, request_id: str) -> None:
        """End an answer with what it has; unknown ids are ignored, for it may just have ended."""
        if running := self._running.get(request_id):
            self._unsent = [order for order in self._unsent if order.request_id != request_id]
            self._break_off(running, running.so_far("cancelled"))

    def heard(self, report: Token | Prefilled | Done) -> None:
        """The head's worker says something about an answer; of one that was broken off here nothing counts any more."""
        running = self._running.get(report.request_id)
        if running is None:
            return
        match report:
            case Prefilled(done=done, total=total):
                task = Progress(task="prefill", request_id=report.request_id, done=done, total=total, unit="tokens")
                self._bus.publish(task)
            case Token():
                self._write(running, report)
            case Done():
                text, stopped = running.rest()
                reason = "stop" if stopped and report.finish_reason == "length" else report.finish_reason
                self._finish(running, msgspec.structs.replace(report, finish_reason=reason), text)

    def _write(self, running: Running, told: Token) -> None:
        """A token that cannot be written is not shown: it ends the answer, as a stop text does."""
        self._cluster.served()
        try:
            running.log.append(told.token)
        except OSError as error:
            self._break_off(running, running.so_far("error", _unwritable(error).problem))
            return
        text, stopped = running.add(told.token)
        self._bus.publish(
            TokenEvent(
                request_id=told.request_id,
                index=told.index,
                token=told.token,
                text=text,
                logprob=told.logprob,
                top=told.top,
            )
        )
        if stopped:
            self._break_off(running, running.so_far("stop"))

    def _break_off(self, running: Running, done: Done) -> None:
        """End an answer here, at once; the worker takes its row out after the step that is on its way."""
        self._supervisor.send(Cancel(request_id=done.request_id))
        self._finish(running, done, running.rest()[0])

    def stop_all(self, problem: Problem) -> None:
        """The plan runs no more: every answer ends here, with what it has, and its tokenizer is not used again."""
        self._tokens = None
        self._unsent.clear()
        for running in list(self._running.values()):
            self._finish(running, running.so_far("error", problem), running.rest()[0])
        self.conversation = None

    async def forget_shared(self, macs: Collection[str]) -> None:
        """Forget the logs of answers in which one of `macs` took part. Raises SealError."""
        count = await asyncio.to_thread(forget_shared, self._folder, self._secret, macs)
        if count:
            self._journal.info(f"{count} token log(s) of answers in which that Mac took part are deleted.")

    def _finish(self, running: Running, done: Done, text: str) -> None:
        del self._running[done.request_id]
        if not done.problem:
            self.conversation = running.conversation(text)
        with contextlib.suppress(OSError):  # what was shown is written; the rest is told by the problem
            running.log.close()
        rate = (done.tokens - 1) / done.decode_s if done.tokens > 1 and done.decode_s > 0 else None
        self._bus.publish(
            RequestDone(
                request_id=done.request_id,
                finish_reason=done.finish_reason,
                prompt_tokens=done.prompt_tokens,
                tokens=done.tokens,
                reused_tokens=done.reused,
                drafted_tokens=done.drafted,
                accepted_tokens=done.accepted,
                text=text,
                ttft_s=done.ttft_s,
                decode_tokens_per_s=rate,
                problem=done.problem,
            )
        )
        if done.problem:
            self._journal.error(f"An answer ended after {done.tokens} tokens: {done.problem.what}")


def _order(request: ChatRequest, prompt: list[int], tokens: Tokens, plan: Plan) -> Request:
    """What the worker is asked for. Raises UsageError where the context has no room for it."""
    if (room := plan.context - len(prompt)) < 1:
        what = f"A prompt of {len(prompt)} tokens leaves no room in a context of {plan.context}."
        raise UsageError(what, "Ask for less, or load the model with a larger --context.")
    if request.min_tokens > (most := min(request.max_tokens, room)):
        what = f"An answer of at least {request.min_tokens} tokens cannot end after {most} at most."
        raise UsageError(what, "Ask for fewer, let it have more, or load the model with a larger --context.")
    return Request(
        request_id=secrets.token_hex(16),
        tokens=prompt,
        max_tokens=most,
        min_tokens=request.min_tokens,
        eos=sorted(tokens.eos),
        sampling=request.sampling,
    )


def _unwritable(error: OSError) -> NodeError:
    what = f"The token log cannot be written: {error.strerror}."
    return NodeError(what, "Free space on this Mac's disk, then ask again.")


def _read_tokenizer(directory: Path) -> Tokens:
    """mlx-lm takes a second to import, so it is imported here, in the thread, when the first model is loaded."""
    from core.models.tokens import Tokens

    return Tokens.load(directory)
