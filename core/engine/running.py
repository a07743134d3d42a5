"""A request that runs: what its row holds, what it feeds next, and when its answer is over.

The *beginning* of a row is what is known before it chooses a token: its prompt, and behind that what is written of its
answer already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from core.engine.constraints import RowGrammar
from core.engine.drafting import Drafter
from core.engine.requests import Request
from core.engine.speculation import PromptLookup
from core.events import FinishReason


class Row:
    """`handle` is the plain one of its beginning of `given` tokens, which holds the first `reused` of them already.
    `history`: prompt and answer so far; `position`: so many tokens of it are on the ring; `excess`: so many guesses are
    there behind them, of which nobody knows yet that they are right, or that turned out wrong. At most `most_drafted` a
    step, and where it is `sure` only such as its grammar forces. `read`: so much of its beginning every stage has done,
    or held already. `kept_at`: where a copy of it is to be kept, on its way through the beginning.

    A *window* is a step that is on the ring; several may be, each behind the guesses of those before it. Where one of
    these turns out wrong, the windows behind it are `void`: so many come back next, and say nothing.
    """

    def __init__(
        self,
        request: Request,
        handle: int,
        reused: int,
        most_drafted: int,
        grammar: RowGrammar | None = None,
        *,
        sure: bool = False,
    ) -> None:
        self.request, self.handle, self.reused = request, handle, reused
        self.history = request.beginning
        self.given = len(self.history)
        self.position = self.read = reused
        self.drafted = self.accepted = self.void = 0
        self.is_in_lane = self.is_lost = False
        self.kept_at: list[int] = []
        self._most_drafted = most_drafted
        self._grammar, self._is_sure = grammar, sure
        self._lookup: PromptLookup | None = None
        self._guesser: PromptLookup | Drafter | None = None  # whose guesses go with its step
        self._guesses: list[int] = []  # that are on the ring, and may be right
        self._wrong = 0  # guesses that are on the ring
        self._windows = deque[int]()  # how many guesses came behind the token that each begins with

    @property
    def is_kept_now(self) -> bool:
        """Whether it has come to where a copy of it is to be kept."""
        return self.position in self.kept_at

    @property
    def is_ready(self) -> bool:
        """Whether all of the beginning is on the ring but its last token, which the first step feeds."""
        return self.position >= self.given - 1

    @property
    def may_share(self) -> bool:
        """Whether it is read again, and may be read with others; what is nearly done goes by itself, before them."""
        return not self.is_ready and self.request.left is not None and not self.request.is_nearly_done

    @property
    def held(self) -> tuple[int, ...]:
        """The tokens of its history that are on the ring."""
        return tuple(self.history[: self.position])

    @property
    def unread(self) -> int:
        """Tokens of the beginning that may go on the ring now; where a copy is to be kept, none behind that."""
        return min((at for at in self.kept_at if at > self.position), default=self.given - 1) - self.position

    def keep_at(self, position: int) -> None:
        """Have a copy kept of its first `position` tokens, if it does not hold more by then."""
        if position >= self.position and position not in self.kept_at:
            self.kept_at.append(position)

    def cut(self, size: int) -> list[int]:
        """The next part of the beginning, of no more than is `unread`."""
        start, self.position = self.position, self.position + size
        return self.history[start : self.position]

    @property
    def excess(self) -> int:
        """Guesses that are on the ring."""
        return len(self._guesses) + self._wrong

    def guess(self, trim_limit: int | None, drafter: Drafter | None = None) -> tuple[int, ...]:
        """What may go with the next token: no more than the answer may have, nor than could be trimmed again. Text that
        repeats itself needs no `drafter`.
        """
        most, self._guesser = self._room(trim_limit) - 1, None
        if most <= 0:
            return ()
        forced = self._grammar.forced(most) if self._grammar else ()
        if forced or self._is_sure:
            return forced
        self._lookup = self._lookup or PromptLookup(self.history, self._most_drafted)
        self._guesser = self._lookup
        is_due = drafter and drafter.windows.size and self._answered
        draft = () if is_due and not self._lookup.expects else self._lookup.draft(most)
        if drafter and is_due and not draft:
            self._guesser = drafter
            draft = drafter.propose(self.history, min(most, drafter.windows.size - 1))
        return draft[: self._grammar.allows(draft)] if self._grammar and draft else draft

    def guess_on(self, trim_limit: int | None, drafter: Drafter) -> tuple[int, ...]:
        """The next window, behind the guesses that are on the ring: one guess more, and what may go with it."""
        if self._grammar or self._is_sure or self.is_lost or self._guesser is not drafter:
            return ()
        if not 0 < len(self._windows) < drafter.windows.in_flight:
            return ()
        return drafter.propose([*self.history, *self._guesses], min(self._room(trim_limit), drafter.windows.size))

    def _room(self, trim_limit: int | None) -> int:
        """How many tokens may be fed now."""
        most = len(self.request.tokens) + self.request.max_tokens
        if trim_limit is not None:
            most = min(most, trim_limit)
        return min(self._most_drafted + 1, most - 1 - self.position - len(self._guesses))

    def may_go_ahead(self, drafter: Drafter | None = None) -> bool:
        """Whether its next step may go before the token that it feeds is known, which then neither is the last one it
        may have, nor is needed to guess from. The first one is told before anything else is computed.
        """
        if self._grammar or self.is_lost or not 0 < self._answered < self.request.max_tokens - 1:
            return False
        needs = self._guesses or (drafter and drafter.windows.size) or (self._lookup and self._lookup.expects)
        return not needs

    def go_ahead(self) -> None:
        """A step feeds the next token, which is chosen, but not known here."""
        self.position += 1
        self._windows.append(0)

    def feed(self, guesses: Sequence[int] = ()) -> int:
        """The token of its next step, and these guesses with it."""
        token = self.history[self.position]
        self.position += 1
        self._windows.append(len(guesses))
        self._put(guesses)
        return token

    def feed_on(self, guesses: Sequence[int]) -> None:
        """A window of guesses alone."""
        self._windows.append(len(guesses) - 1)
        self._put(guesses)

    def _put(self, guesses: Sequence[int]) -> None:
        self._guesses += guesses
        self.drafted += len(guesses)

    def take(self, tokens: Sequence[int], drafter: Drafter | None = None) -> tuple[int, FinishReason | None]:
        """The tokens that follow, all but the last one guessed; says how many it takes, and why it ends with them."""
        before, reason = len(self.history), None
        for token in tokens:
            self.history.append(token)
            if reason := self.request.end(self._answered, token):
                break
        taken, drafted = len(self.history) - before, self._windows.popleft()
        # the last one may be what the next window begins with
        goes_on = reason is None and self._guesses[:taken] == self.history[before:]
        kept = taken if goes_on else taken - 1
        tried = drafted + (len(self._guesses) > drafted)
        self.position += kept
        self.accepted += kept
        if goes_on:
            self._guesses = self._guesses[kept:]
        elif self._guesses:
            self._wrong += len(self._guesses) - kept
            self._guesses.clear()
            self.void += len(self._windows)
            self._windows.clear()
        if self._lookup:
            self._lookup.extend(self.history[before:], guessed=self._guesser is self._lookup)
        if self._guesser and tried and not reason:
            self._guesser.note_result(tried, len(tokens) if goes_on else len(tokens) - 1)
        if drafter:
            drafter.note_tokens(taken)
        return taken, reason

    def trim(self) -> int:
        """How many guesses have to be taken off before anything else."""
        excess = self.excess
        self._guesses.clear()
        self._wrong = 0
        return excess

    @property
    def _answered(self) -> int:
        return len(self.history) - len(self.request.tokens)
