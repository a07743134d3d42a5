"""Requests on the head: prompt to tokens, tokens to the log, to text, to events."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from core.errors import Busy, LinkError, NodeError, NotLoaded, NotPaired, Problem, SealError, UsageError, error_from
from core.events import Plan, Progress, RequestDone, RequestStarted, TokenEvent
from core.node.bus import Bus
from core.node.cluster import Cluster
from core.node.journal import Journal
from core.node.supervisor import Supervisor
from core.node.token_log import Opening, TokenLog, forget_old, forget_shared
from core.requests import ChatRequest, RequestAccepted
from core.trust.levels import carries_prompts
from core.worker.messages import Cancel, Done, Generate, Prefilled, Token

if TYPE_CHECKING:
    from core.models.tokens import TextStream, Tokens

QUEUE_LIMIT = 8


class Running:
    """An answer that waits or is being written."""

    def __init__(self, order: Generate, log: TokenLog, text: TextStream) -> None:
        self.order = order
        self.log = log
        self.text = text
        self.tokens = 0
        self.failed: Problem | None = None


class Answers:
    """A bounded queue in front of the ring; one answer runs at a time."""

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
        self._queue: deque[Running] = deque()
        self._current: Running | None = None

    async def use(self, directory: Path) -> None:
        """Read the tokenizer of the model that is being loaded, while the stages load. Raises BadModel."""
        self._tokens = asyncio.ensure_future(asyncio.to_thread(_read_tokenizer, directory))
        await asyncio.shield(self._tokens)

    async def ask(self, request: ChatRequest) -> RequestAccepted:
        """Queue a request. Raises NotLoaded, NotPaired, Busy, UsageError."""
        plan, reading = self._cluster.plan, self._tokens
        if plan is None or reading is None:
            raise NotLoaded("No model is loaded.")
        tokens = await asyncio.shield(reading)
        self._check(plan, reading)
        prompt = await asyncio.to_thread(tokens.encode, request.messages, request.raw)
        self._check(plan, reading)  # a template takes its time, and the world may have moved on
        if (room := plan.context - len(prompt)) < 1:
            what = f"A prompt of {len(prompt)} tokens leaves no room in a context of {plan.context}."
            raise UsageError(what, "Ask for less, or load the model with a larger --context.")
        request = msgspec.structs.replace(request, max_tokens=min(request.max_tokens, room))
        running = self._admit(request, prompt, tokens, plan)
        self._queue.append(running)
        self._bus.publish(RequestStarted(request_id=running.order.request_id, prompt_tokens=len(prompt)))
        self.pump()
        try:
            await asyncio.to_thread(forget_old, self._folder)
        except SealError as error:
            self._journal.warn(str(error))
        return RequestAccepted(request_id=running.order.request_id, prompt_tokens=len(prompt))

    def _check(self, plan: Plan, reading: asyncio.Future[Tokens]) -> None:
        now = self._cluster.plan
        if now is None or now.fingerprint != plan.fingerprint or self._tokens is not reading:
            raise NotLoaded(f"{plan.model} was unloaded meanwhile.")
        trust = self._bus.now.trust
        if not carries_prompts(trust.level):
            what = f"A prompt does not leave this Mac while {trust.weakest} is {trust.level}. {trust.reason}"
            raise NotPaired(what.strip(), "`macluster trust list` says how far each Mac is trusted.")
        if len(self._queue) >= QUEUE_LIMIT:
            raise Busy(f"{QUEUE_LIMIT} requests are waiting already.")

    def _admit(self, request: ChatRequest, prompt: list[int], tokens: Tokens, plan: Plan) -> Running:
        order = Generate(
            request_id=secrets.token_hex(16),
            tokens=prompt,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            eos=sorted(tokens.eos),
        )
        opening = Opening(
            request_id=order.request_id,
            model=plan.model,
            fingerprint=plan.fingerprint,
            prompt=prompt,
            temperature=request.temperature,
            top_p=request.top_p,
            seed=request.seed,
            macs=tuple(s.device_id for s in plan.stages),
        )
        return Running(order, TokenLog(self._folder, self._secret, opening), tokens.stream())

    def pump(self) -> None:
        """Start the next request if the ring is ready and free."""
        if self._current is None and self._queue and self._cluster.ready:
            self._current = self._queue.popleft()
            self._supervisor.send(self._current.order)

    def cancel(self, request_id: str) -> None:
        """Take a request back; unknown ids are ignored, for it may just have ended."""
        for waiting in list(self._queue):
            if waiting.order.request_id == request_id:
                self._queue.remove(waiting)
                self._finish(waiting, self._unrun(waiting, None))
        if self._current and self._current.order.request_id == request_id:
            self._supervisor.send(Cancel(request_id=request_id))

    def heard(self, report: Token | Prefilled | Done) -> None:
        """The head's worker says something about the answer that runs."""
        running = self._current
        if running is None or report.request_id != running.order.request_id:
            return
        match report:
            case Prefilled(done=done, total=total):
                task = Progress(task="prefill", request_id=report.request_id, done=done, total=total, unit="tokens")
                self._bus.publish(task)
            case Token(token=token, index=index):
                if not self._commit(running, token):
                    return
                running.tokens += 1
                text = "" if token in running.order.eos else running.text.add(token)
                self._bus.publish(TokenEvent(request_id=report.request_id, index=index, token=token, text=text))
            case Done():
                self._current = None
                self._finish(running, self._unrun(running, running.failed) if running.failed else report)
                if report.problem is None:
                    self._cluster.served()
                if report.problem is None or not isinstance(error_from(report.problem), LinkError):
                    self.pump()  # after a broken link the ring is linked anew first, which pumps

    def _commit(self, running: Running, token: int) -> bool:
        """A token that cannot be written is not shown: the answer ends, the worker's Done frees the ring."""
        if running.failed:
            return False
        try:
            running.log.append(token)
        except OSError as error:
            what = f"The token log cannot be written: {error.strerror}."
            running.failed = NodeError(what, "Free space on this Mac's disk, then ask again.").problem
            self._supervisor.send(Cancel(request_id=running.order.request_id))
        return running.failed is None

    def stop_all(self, problem: Problem) -> None:
        """The plan runs no more: every answer ends here, with what it has."""
        stopped = [r for r in (self._current, *self._queue) if r]
        self._current = None
        self._queue.clear()
        for running in stopped:
            self._finish(running, self._unrun(running, problem))

    async def forget_shared(self, macs: Collection[str]) -> None:
        """Forget the logs of answers in which one of `macs` took part. Raises SealError."""
        count = await asyncio.to_thread(forget_shared, self._folder, self._secret, macs)
        if count:
            self._journal.info(f"{count} token log(s) of answers in which that Mac took part are deleted.")

    def _finish(self, running: Running, done: Done) -> None:
        with contextlib.suppress(OSError):  # what was shown is written; the rest is told by the problem
            running.log.close()
        rate = (done.tokens - 1) / done.decode_s if done.tokens > 1 and done.decode_s > 0 else None
        self._bus.publish(
            RequestDone(
                request_id=done.request_id,
                finish_reason=done.finish_reason,
                prompt_tokens=done.prompt_tokens,
                tokens=done.tokens,
                text=running.text.finish(),
                ttft_s=done.ttft_s,
                decode_tokens_per_s=rate,
                problem=done.problem,
            )
        )
        if done.problem:
            self._journal.error(f"An answer ended after {done.tokens} tokens: {done.problem.what}")

    @staticmethod
    def _unrun(running: Running, problem: Problem | None) -> Done:
        return Done(
            request_id=running.order.request_id,
            finish_reason="error" if problem else "cancelled",
            prompt_tokens=len(running.order.tokens),
            tokens=running.tokens,
            ttft_s=None,
            decode_s=0.0,
            problem=problem,
        )


def _read_tokenizer(directory: Path) -> Tokens:
    """mlx-lm takes a second to import, so it is imported here, in the thread, when the first model is loaded."""
    from core.models.tokens import Tokens

    return Tokens.load(directory)
