"""The prompt of a request as token ids, and the constraint of its answer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from core.answer_parts import CallRules
from core.constraint import Constraint
from core.errors import UsageError
from core.node.answers.tokenizer import Tokenizer
from core.requests.answers import ChatRequest


async def prompt_of(request: ChatRequest, tokens: Tokenizer) -> list[int]:
    if not request.prompt_tokens:
        return await tokens.encode(request.messages, request.raw, request.tools, request.template_options)
    _check(request.prompt_tokens, tokens)
    return [*request.prompt_tokens]


async def constraint_of(request: ChatRequest, prompt: Sequence[int], tokens: Tokenizer) -> Constraint | None:
    calls = CallRules(tools=request.tools, must_call=request.must_call, one_call=request.one_call)
    if request.constraint is None and not calls.are_enforced:
        return None
    if request.min_tokens:
        raise UsageError("min_tokens can't be combined with a constrained answer.", "Leave out min_tokens.")
    return await tokens.constrain(request.constraint, calls, prompt, request.raw)


async def text_of(ids: Sequence[int], tokens: Tokenizer) -> str:
    """Decode token ids. Raises UsageError, BadModel."""
    _check(ids, tokens)
    stream = tokens.stream(f"text {secrets.token_hex(8)}")
    try:
        decoded = await stream.add_all(ids)
    finally:
        stream.end()
    return decoded.text + decoded.held


def _check(ids: Sequence[int], tokens: Tokenizer) -> None:
    if foreign := [each for each in ids if each >= tokens.vocab_size]:
        what = f"The prompt contains token {foreign[0]}, which this model does not have."
        raise UsageError(what, f"Its token ids are 0 to {tokens.vocab_size - 1}.")
