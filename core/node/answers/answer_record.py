"""What is asked of the Macs, as a token log opens with it: for a new answer, or for one that was cut off."""

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
    """A name for a request, which no other one has."""
    return secrets.token_hex(16)


def record_of(
    request_id: str, request: ChatRequest, prompt: list[int], eos: Collection[int], plan: Plan
) -> AnswerRecord:
    """A new answer. Raises UsageError where the context has no room for it."""
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
    """The same answer, over the Macs of `plan`. Raises UsageError where the context has no room for it."""
    old = written.record
    most = _most(old.prompt, old.max_tokens, old.min_tokens, plan)
    if len(written.tokens) >= most < old.max_tokens:
        what = f"{len(old.prompt) + len(written.tokens)} tokens leave no room in a context of {plan.context}."
        raise UsageError(what, "Load the model with a larger --context.")
    macs = sorted(written.macs | {part.device_id for part in plan.parts})
    return replace(old, max_tokens=most, macs=tuple(macs))


def chosen(found: list[Written], wanted: AnswerId) -> Written:
    """The newest of `found` whose id begins so. Raises UsageError where there is none."""
    for written in found:
        if written.record.request_id.startswith(wanted.request_id):
            return written
    which = f"No unfinished answer has an id that begins with {wanted.request_id!r}."
    what = which if wanted.request_id else "No answer is unfinished."
    raise UsageError(what, "`macluster status --json` lists those that are.")


def unfinished_of(written: Written) -> UnfinishedAnswer:
    """As a person is told of it."""
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
    """With a seed, another worker can draw on where the first one stopped."""
    if sampling.temperature == 0 or sampling.seed is not None:
        return sampling
    return replace(sampling, seed=secrets.randbits(63))


def _most(prompt: list[int], max_tokens: int, min_tokens: int, plan: Plan) -> int:
    if (room := plan.context - len(prompt)) < 1:
        what = f"A prompt of {len(prompt)} tokens leaves no room in a context of {plan.context}."
        raise ContextExceeded(what, "Ask for less, or load the model with a larger --context.")
    if min_tokens > (most := min(max_tokens, room)):
        what = f"min_tokens: an answer of at least {min_tokens} tokens cannot end after {most} at most."
        raise UsageError(what, "Ask for fewer, let it have more, or load the model with a larger --context.")
    return most
