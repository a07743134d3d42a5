"""Grammars of rows whose answers must have a shape: which tokens may come next, by llguidance.

A grammar advances with each chosen token. The Mac that chooses has a copy, and so does the head, which rejects any
other Mac's choice that the grammar forbids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import mlx.core as mx

from core.constraint import Constraint
from core.engine.requests import Admit
from core.errors import BadModel, Problem, StageFailed, UsageError
from core.models.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

# bits of a byte, the lowest first
_BITS: Final = mx.array([1 << bit for bit in range(8)], mx.uint8)
_FIX: Final = "Ask with a simpler shape, or for text."


class Grammars:
    """Grammars of one model with token ids below `size`; its vocabulary is read with the first row that needs it."""

    def __init__(self, read: Callable[[], Vocabulary], size: int) -> None:
        self._read, self._size = read, size
        self._tokenizers: dict[tuple[int, ...], LLTokenizer] = {}

    def of(self, row: Admit) -> RowGrammar | None:
        """The grammar of a row at the start of its answer; None if it has no constraint. Raises UsageError if the
        constraint can't be enforced, UnsupportedModel or BadModel if the vocabulary can't be read.
        """
        if row.constraint is None:
            return None
        # imported only where a row needs it
        from core.models.text.grammar import matcher_of, tokenizer_of

        ends = tuple(sorted({token for token in row.eos if token < self._size}))
        if not ends:
            raise UsageError("This model has no end token, so its answers can't have a shape.", "Ask for text.")
        if ends not in self._tokenizers:
            tokens, special = self._read()
            try:
                self._tokenizers = {ends: tokenizer_of(tokens, special, ends)}
            except ValueError as error:
                what = f"The vocabulary of this model can't be used for shapes: {error}."
                raise BadModel(what, "Ask without a shape, or load another model.") from error
        return RowGrammar(row.constraint, matcher_of(row.constraint, self._tokenizers[ends]), ends, self._size)


class RowGrammar:
    """The state of one row. With a `problem` it allows nothing but an end token."""

    def __init__(self, constraint: Constraint, matcher: LLMatcher, eos: Sequence[int], size: int) -> None:
        self._start, self._end = constraint.think_start, constraint.think_end
        self._matcher, self._eos, self._size = matcher, frozenset(eos), size
        self._state: Literal["open", "thinking", "shaped"] = "shaped"
        if self._end:
            self._state = "open" if self._start else "thinking"
        self._begun: tuple[int, ...] = ()  # the rest of `think_start`, which must come next
        self._thought: list[int] = []
        self._bits = b""  # mask of the next tokens, computed on demand
        self.problem: Problem | None = None

    def allowed(self) -> mx.array:
        """Whether each token may come next: booleans [vocabulary]."""
        if self._state == "thinking":
            return self._only(self._begun[:1]) if self._begun else self._no_end
        bits = self._bits = self._bits or self._matcher.compute_bitmask()
        if self._matcher.is_error():
            self._fail("takes too long to enforce")
        elif not any(bits):
            self._fail("needs text that this model's tokens can't express")
        if self.problem:
            return ~self._no_end
        marks = mx.array(memoryview(bits))[:, None] & _BITS  # type: ignore[arg-type]  # uint8
        allowed = marks.flatten()[: self._size] != 0
        return allowed | self._only(self._start[:1]) if self._state == "open" else allowed

    def prepare(self) -> None:
        """Compute the mask of the next tokens early, while other stages compute."""
        if self._state != "thinking" and not self.problem:
            self._bits = self._bits or self._matcher.compute_bitmask()

    def take(self, token: int) -> None:
        self._bits = b""
        if self._state == "open":
            self._state = "thinking" if token == self._start[0] else "shaped"
            self._begun = self._start if self._state == "thinking" else ()
        if self._state == "thinking":
            self._begun = self._begun[1:]
            self._thought = [*self._thought, token][-len(self._end) :]
            if tuple(self._thought) == self._end:
                self._state = "shaped"
        elif not (self.problem or self._matcher.consume_token(token)):
            self._fail("was left by the answer")

    def forced(self, most: int) -> tuple[int, ...]:
        """The next tokens, at most `most`, where the grammar allows no others."""
        if self._state != "shaped" or self.problem or most <= 0:
            return self._begun[: max(0, most)]
        return tuple(self._matcher.compute_ff_tokens()[:most])

    def allows(self, guesses: Sequence[int]) -> int:
        """How many of the first `guesses` may follow."""
        if self._state == "thinking":
            follow = [wanted == guess for wanted, guess in zip(self._begun, guesses, strict=False)]
            return len(guesses) if all(follow) else follow.index(False)
        return self._matcher.validate_tokens(list(guesses)) if self._state == "shaped" and not self.problem else 0

    def _fail(self, why: str) -> None:
        self.problem = self.problem or StageFailed(f"The shape that this answer must have {why}.", _FIX).problem

    @cached_property
    def _no_end(self) -> mx.array:
        return ~self._only(self._eos)

    def _only(self, tokens: Sequence[int] | frozenset[int]) -> mx.array:
        return mx.any(mx.arange(self._size)[:, None] == mx.array(list(tokens)), axis=1)
