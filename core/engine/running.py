"""A request that runs: what its row holds, what it feeds next, and when its answer is over.

The *beginning* of a row is what is known before it chooses a token: its prompt, and behind that what is written of its
answer already.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.engine.constraints import RowGrammar
from core.engine.requests import Request
from core.engine.speculation import PromptLookup
from core.events import FinishReason


class Row:
    """`handle` is the plain one of its beginning of `given` tokens, which holds the first `reused` of them already.
    `history`: prompt and answer so far; `position`: so many tokens of it are on the ring; `excess`: so many guesses are
    there behind them, of which nobody knows yet that they are right, or that turned out wrong. At most `most_drafted` a
    step, and where it is `sure` only such as its grammar forces. `read`: so much of its beginning every stage has done,
    or held already. `kept_at`: where a copy of it is to be kept, on its way through the beginning.
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
        self.excess = 0
        self.drafted = self.accepted = 0
        self.is_in_lane = self.is_lost = False
        self.kept_at: list[int] = []
        self._most_drafted = most_drafted
        self._grammar, self._is_sure = grammar, sure
        self._is_forced = False  # what goes with its step is no guess of the lookup's
        self._lookup: PromptLookup | None = None

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

    def guess(self, trim_limit: int | None) -> tuple[int, ...]:
        """What may go with the next token: no more than the answer may have, nor than could be trimmed again."""
        most = min(self._most_drafted, self.request.max_tokens - self._answered - 1)
        if trim_limit is not None:
            most = min(most, trim_limit - self.position - 2)
        if most <= 0:
            return ()
        forced = self._grammar.forced(most) if self._grammar else ()
        self._is_forced = bool(forced)
        if forced or self._is_sure:
            return forced
        self._lookup = self._lookup or PromptLookup(self.history, self._most_drafted)
        draft = self._lookup.draft(most)
        return draft[: self._grammar.allows(draft)] if self._grammar and draft else draft

    @property
    def may_go_ahead(self) -> bool:
        """Whether its next step may go before the token that it feeds is known, which then neither is the last one it
        may have, nor is needed to guess from. The first one is told before anything else is computed.
        """
        if self._grammar or self.is_lost or not 0 < self._answered < self.request.max_tokens - 1:
            return False
        return not (self._lookup and self._lookup.expects)

    def go_ahead(self) -> None:
        """A step feeds the next token, which is chosen, but not known here."""
        self.position += 1

    def feed(self, guesses: int = 0) -> int:
        """The token of its next step, and so many guesses with it."""
        token = self.history[self.position]
        self.position += 1
        self.excess = guesses
        self.drafted += guesses
        return token

    def take(self, tokens: Sequence[int]) -> tuple[int, FinishReason | None]:
        """The tokens that follow, all but the last one guessed; says how many it takes, and why it ends with them."""
        drafted, before, reason = self.excess, len(self.history), None
        for token in tokens:
            self.history.append(token)
            if reason := self.request.end(self._answered, token):
                break
        taken = len(self.history) - before
        self.position += taken - 1
        self.excess -= taken - 1
        self.accepted += taken - 1
        if self._lookup:
            self._lookup.extend(self.history[before:])
            if drafted and not self._is_forced:
                self._lookup.note_result(drafted, len(tokens) - 1)
        return taken, reason

    def trim(self) -> int:
        """How many guesses have to be taken off before anything else."""
        excess, self.excess = self.excess, 0
        return excess

    @property
    def _answered(self) -> int:
        return len(self.history) - len(self.request.tokens)
