"""From a request to an answer that can run: the loaded model, trust, prompt, constraint and token log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import msgspec

from core.answer_parts import CallRules
from core.constraint import Constraint
from core.errors import Busy, ContextExceeded, MaclusterError, NotLoaded, NotPaired, NotReady, UsageError
from core.events import Plan
from core.node.answers.answer_archive import AnswerArchive
from core.node.answers.answer_record import chosen, going_on, record_of
from core.node.answers.model_tokenizer import ModelTokenizer
from core.node.answers.running_answer import RunningAnswer
from core.node.answers.token_log import AnswerRecord, UnloggedAnswer
from core.node.answers.tokenizer import Tokenizer
from core.node.base.bus import Bus
from core.node.base.stopwatch import Stopwatch
from core.node.peers.worker_state import WorkerState
from core.requests.answers import AnswerId, ChatRequest
from core.settings import QUEUE_LIMIT
from core.trust.levels import carries_prompts


class AnswerOpening:
    """Opens new answers and continues old ones. The caller starts them without awaiting anything before."""

    def __init__(
        self,
        worker: WorkerState,
        bus: Bus,
        tokenizer: ModelTokenizer[Tokenizer],
        archive: AnswerArchive,
        running: Mapping[str, RunningAnswer],
    ) -> None:
        self._worker, self._bus, self._tokenizer = worker, bus, tokenizer
        self._archive, self._running = archive, running

    async def new(self, request_id: str, request: ChatRequest, watch: Stopwatch | None = None) -> RunningAnswer:
        """A new answer. Raises NotLoaded, NotPaired, Busy, UsageError, ModelError, NodeError."""
        plan, reading = self._loaded()
        tokens = await asyncio.shield(reading)
        self.check(plan, reading)
        prompt = await _prompt_of(request, tokens, plan.context)
        constraint = await _constraint_of(request, prompt, tokens)
        if watch:
            watch.lap("encode")
        plan = self.check(plan, reading)  # a template takes time, and the plan may have changed
        left_open = {name: getattr(tokens.sampling, name) for name in request.model_sampling}
        sampling = msgspec.structs.replace(request.sampling, **left_open)
        asked = msgspec.structs.replace(request, constraint=constraint, sampling=sampling, model_sampling=())
        record = record_of(request_id, asked, prompt, tokens.eos, plan)
        log = await self._archive.open(record) if record.keep else UnloggedAnswer()
        try:
            self.check(plan, reading)
        except MaclusterError:
            log.forget()
            raise
        return RunningAnswer(record, log, tokens.stream(request_id, is_chat=not record.raw), watch=watch)

    async def continued(self, wanted: AnswerId) -> RunningAnswer:
        """Continue the newest unfinished answer whose id starts with the wanted one. Raises UsageError without such an
        answer or room for it, NotLoaded, NotPaired, Busy, NodeError, SealError.
        """
        async with self._archive.old_logs:
            written = chosen(await self._archive.unfinished(), wanted)
            plan, reading = self._loaded_for(written.record)
            tokens = await asyncio.shield(reading)
            plan = self.check(plan, reading)
            record = going_on(written, plan)
            stream = tokens.stream(record.request_id, is_chat=not record.raw)
            with ExitStack() as undo:
                undo.callback(stream.end)
                decoded = await stream.add_all([token for token in written.tokens if token not in record.eos])
                self.check(plan, reading)
                log = await self._archive.continued(record, written)
                undo.callback(log.close)
                self.check(plan, reading)
                undo.pop_all()
            return RunningAnswer(record, log, stream, written.tokens, decoded, written.text)

    async def count(self, request: ChatRequest) -> int:
        plan, reading = self._loaded()
        return len(await _prompt_of(request, await asyncio.shield(reading), plan.context))

    async def text_of(self, ids: Sequence[int]) -> str:
        """Decode token ids. Raises NotLoaded, UsageError, BadModel."""
        _, reading = self._loaded()
        tokens = await asyncio.shield(reading)
        _check_known(ids, tokens)
        stream = tokens.stream(f"text {secrets.token_hex(8)}")
        try:
            decoded = await stream.add_all(ids)
        finally:
            stream.end()
        return decoded.text + decoded.held

    def check(self, plan: Plan, reading: asyncio.Future[Tokenizer]) -> Plan:
        """The current plan, perhaps a newer one of the same model. Raises NotLoaded, NotPaired, Busy."""
        now, same = self._loaded()
        if now.fingerprint != plan.fingerprint or same is not reading:
            raise NotLoaded(f"{plan.model} was unloaded meanwhile.")
        self.check_trust()
        if len(self._running) >= now.rows + QUEUE_LIMIT:
            what = f"{len(self._running)} requests run or wait already, the most that {now.model} takes here."
            raise Busy(what, "Try again when one of them is done, or cancel one.")
        return now

    def check_trust(self) -> None:
        """Raises NotPaired if prompts may not leave this Mac."""
        trust = self._bus.now.trust
        if not carries_prompts(trust.level):
            what = f"Prompts don't leave this Mac while {trust.weakest} is {trust.level}. {trust.reason}"
            raise NotPaired(what.strip(), "`macluster trust list` shows how far each Mac is trusted.")

    def _loaded(self) -> tuple[Plan, asyncio.Future[Tokenizer]]:
        plan, reading = self._worker.led, self._tokenizer.now()
        if plan and reading:
            return plan, reading
        if recovery := self._bus.now.recovery:
            raise NotReady(recovery.text, recovery.fix)
        if plan and self._bus.now.plan_status == "loading":
            raise NotReady(f"{plan.name} is loading.")
        raise NotLoaded("No model is loaded.")

    def _loaded_for(self, record: AnswerRecord) -> tuple[Plan, asyncio.Future[Tokenizer]]:
        load = f"Load it: `macluster load {record.model}`."
        if self._worker.led is None and self._bus.now.recovery is None:
            raise NotLoaded(f"{record.model}, which began that answer, is not loaded.", load)
        plan, reading = self._loaded()
        if plan.fingerprint != record.fingerprint:
            raise NotLoaded(f"{record.model} began that answer, but {plan.model} is loaded.", load)
        return plan, reading


async def _prompt_of(request: ChatRequest, tokens: Tokenizer, context: int) -> list[int]:
    """Token ids of the prompt. Raises ContextExceeded before any work on one that can't fit."""
    read = request.messages[-1:] if request.raw else [each for each in request.messages if each.role != "assistant"]
    length = max(len(request.prompt_tokens), -(-sum(len(each.content) for each in read) // max(1, tokens.longest)))
    if length > context and (request.prompt_tokens or tokens.longest):
        what = f"The prompt is too long: at least {length:,} tokens, the context holds {context:,}."
        raise ContextExceeded(what, "Shorten it, or load the model with a larger context.")
    if not request.prompt_tokens:
        return await tokens.encode(request.messages, request.raw, request.tools, request.template_options)
    _check_known(request.prompt_tokens, tokens)
    return [*request.prompt_tokens]


async def _constraint_of(request: ChatRequest, prompt: Sequence[int], tokens: Tokenizer) -> Constraint | None:
    most, must = request.max_tokens, request.must_call
    calls = CallRules(tools=request.tools, must_call=must, one_call=request.one_call, max_tokens=most)
    if request.constraint is None and not calls.are_enforced:
        return None
    if unknown := sorted({*must} - {tool.name for tool in request.tools}):
        raise UsageError(f"The answer must call {unknown[0]!r}, which is not among its tools.")
    if request.min_tokens:
        raise UsageError("min_tokens can't be combined with a constrained answer.", "Leave out min_tokens.")
    return await tokens.constrain(request.constraint, calls, prompt, request.raw)


def _check_known(ids: Sequence[int], tokens: Tokenizer) -> None:
    if foreign := [each for each in ids if each >= tokens.vocab_size]:
        what = f"The prompt contains token {foreign[0]}, which this model does not have."
        raise UsageError(what, f"Its token ids are 0 to {tokens.vocab_size - 1}.")
