"""The record that a token log starts with, for a new answer or a continued one."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from msgspec.structs import asdict, replace

from core.errors import ContextExceeded, UsageError
from core.events import Plan
from core.node.answers.token_log import AnswerRecord, Written
from core.requests.answers import AnswerId, ChatRequest, UnfinishedAnswer
from core.sampling_options import Sampling


def new_request_id() -> str:
    return secrets.token_hex(16)


def record_of(
    request_id: str, request: ChatRequest, prompt: list[int], eos: Collection[int], plan: Plan
) -> AnswerRecord:
    """The record of a new answer. Raises UsageError if the context has no room for it."""
    most = _most(prompt, request.max_tokens, request.min_tokens, plan)
    asked = replace(request, sampling=_seeded(request.sampling), max_tokens=most, prompt_tokens=())
    return AnswerRecord(
        **asdict(asked),
        request_id=request_id,
        model=plan.model,
        fingerprint=plan.fingerprint,
        prompt=prompt,
        eos=sorted(eos),
        macs=tuple(part.device_id for part in plan.parts),
    )


def going_on(written: Written, plan: Plan) -> AnswerRecord:
    """The record of a continued answer over the Macs of `plan`. Raises UsageError if the context has no room for it."""
    old = written.record
    most = _most(old.prompt, old.max_tokens, old.min_tokens, plan)
    if len(written.tokens) >= most < old.max_tokens:
        length = len(old.prompt) + len(written.tokens)
        what = f"The answer is too long to continue: {length:,} tokens, the context holds {plan.context:,}."
        raise UsageError(what, "Load the model with a larger context.")
    macs = sorted(written.macs | {part.device_id for part in plan.parts})
    return replace(old, max_tokens=most, macs=tuple(macs))


def chosen(found: list[Written], wanted: AnswerId) -> Written:
    """The newest of `found` whose id starts with the wanted one. Raises UsageError."""
    for written in found:
        if written.record.request_id.startswith(wanted.request_id):
            return written
    which = f"No unfinished answer has an id that starts with {wanted.request_id!r}."
    what = which if wanted.request_id else "There is no unfinished answer."
    raise UsageError(what, "`macluster status --json` lists unfinished answers.")


def unfinished_of(written: Written) -> UnfinishedAnswer:
    return UnfinishedAnswer(
        request_id=written.record.request_id,
        model=written.record.model,
        messages=written.record.messages,
        text=written.text,
        tokens=len(written.tokens),
        max_tokens=written.record.max_tokens,
        at=written.at,
    )


def _seeded(sampling: Sampling) -> Sampling:
    """Fix the seed, so that another worker can continue with the same random numbers."""
    if sampling.temperature == 0 or sampling.seed is not None:
        return sampling
    return replace(sampling, seed=secrets.randbits(63))


def _most(prompt: list[int], max_tokens: int, min_tokens: int, plan: Plan) -> int:
    if (room := plan.context - len(prompt)) < 1:
        what = f"The prompt is too long: {len(prompt):,} tokens, the context holds {plan.context:,}."
        raise ContextExceeded(what, "Shorten it, start a new chat, or load the model with a larger context.")
    if min_tokens > (most := min(max_tokens, room)):
        what = f"min_tokens is {min_tokens}, but the answer can have {most} tokens at most."
        raise UsageError(what, "Lower min_tokens, raise max_tokens, or load the model with a larger context.")
    return most
