"""A row: a request that runs, with what the stages hold of it, what it feeds next, and when its answer is over.

The *prefix* of a row is everything before the first token that it chooses: its prompt, then the part of its answer that
is already written.

A *window* is a step that is on the ring. Several may be, each after the draft tokens of those before it. Where one of
these turns out wrong, the windows after it are void: their results come back and count for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from core.engine.constraints import RowGrammar
from core.engine.drafting import Drafter
from core.engine.prompt_lookup import PromptLookup
from core.engine.requests import Request
from core.events import FinishReason


class Row:
    """One running request. `reused` tokens of its prefix are under `handle` already; at most `max_draft` draft tokens
    go with a step, and with `only_forced` those alone that its grammar forces.
    """

    def __init__(
        self,
        request: Request,
        handle: int,
        reused: int,
        max_draft: int,
        grammar: RowGrammar | None = None,
        *,
        only_forced: bool = False,
    ) -> None:
        self.request, self.reused = request, reused
        self.handle = handle  # plain; that of its prefix
        self.history = request.prefix  # prompt and answer so far
        self.prefix_tokens = len(self.history)
        self.position = reused  # tokens of `history` that are on the ring
        self.read = reused  # tokens of the prefix that every stage has done
        self.drafted = self.accepted = 0  # draft tokens that were fed, and those that were right
        self.void = 0  # steps that come back next and count for nothing
        self.is_in_lane = self.is_lost = False
        self.kept_at: list[int] = []  # positions in the prefix at which a copy is to be kept
        self._max_draft = max_draft
        self._grammar, self._only_forced = grammar, only_forced
        self._lookup: PromptLookup | None = None
        self._draft_source: PromptLookup | Drafter | None = None  # of the draft of its step
        self._draft: list[int] = []  # draft tokens on the ring that may be right
        self._wrong = 0  # draft tokens on the ring that were wrong
        self._windows = deque[int]()  # draft tokens after the first token of each window

    @property
    def is_kept_now(self) -> bool:
        """Whether a copy is to be kept at its position."""
        return self.position in self.kept_at

    @property
    def is_ready(self) -> bool:
        """Whether its prefix is on the ring, except the last token, which the first step feeds."""
        return self.position >= self.prefix_tokens - 1

    @property
    def may_share(self) -> bool:
        """Whether its answer is read again and may be read with others; an answer that is nearly done goes first."""
        return not self.is_ready and self.request.left is not None and not self.request.is_nearly_done

    @property
    def held(self) -> tuple[int, ...]:
        """The tokens of its history that are on the ring."""
        return tuple(self.history[: self.position])

    @property
    def unread(self) -> int:
        """Tokens of the prefix that may go on the ring now: none after a place where a copy is to be kept."""
        return min((at for at in self.kept_at if at > self.position), default=self.prefix_tokens - 1) - self.position

    def keep_at(self, position: int) -> None:
        """Keep a copy of its first `position` tokens, unless it holds more already."""
        if position >= self.position and position not in self.kept_at:
            self.kept_at.append(position)

    def cut(self, size: int) -> list[int]:
        """The next `size` tokens of the prefix, at most `unread`."""
        start, self.position = self.position, self.position + size
        return self.history[start : self.position]

    @property
    def excess(self) -> int:
        """Draft tokens on the ring."""
        return len(self._draft) + self._wrong

    def draft(self, trim_limit: int | None, drafter: Drafter | None = None) -> tuple[int, ...]:
        """Draft tokens for the next step: no more than the answer may have, nor than can be trimmed again. Text that
        repeats itself needs no `drafter`.
        """
        most, self._draft_source = self._room(trim_limit) - 1, None
        if most <= 0:
            return ()
        forced = self._grammar.forced(most) if self._grammar else ()
        if forced or self._only_forced:
            return forced
        self._lookup = self._lookup or PromptLookup(self.history, self._max_draft)
        self._draft_source = self._lookup
        is_due = drafter and drafter.windows.size and self._answered
        draft = () if is_due and not self._lookup.expects else self._lookup.draft(most)
        if drafter and is_due and not draft:
            self._draft_source = drafter
            draft = drafter.propose(self.history, min(most, drafter.windows.size - 1))
        return draft[: self._grammar.allows(draft)] if self._grammar and draft else draft

    def draft_on(self, trim_limit: int | None, drafter: Drafter) -> tuple[int, ...]:
        """The tokens of one more window, after the draft tokens that are on the ring."""
        if self._grammar or self._only_forced or self.is_lost or self._draft_source is not drafter:
            return ()
        if not 0 < len(self._windows) < drafter.windows.in_flight:
            return ()
        return drafter.propose([*self.history, *self._draft], min(self._room(trim_limit), drafter.windows.size))

    def _room(self, trim_limit: int | None) -> int:
        """Tokens that may be fed now."""
        most = len(self.request.tokens) + self.request.max_tokens
        if trim_limit is not None:
            most = min(most, trim_limit)
        return min(self._max_draft + 1, most - 1 - self.position - len(self._draft))

    def may_go_ahead(self, drafter: Drafter | None = None) -> bool:
        """Whether its next step may go before the token that it feeds is known: the token is neither its last one nor
        needed for a draft. The first token of an answer is reported before anything else is computed.
        """
        if self._grammar or self.is_lost or not 0 < self._answered < self.request.max_tokens - 1:
            return False
        needs = self._draft or (drafter and drafter.windows.size) or (self._lookup and self._lookup.expects)
        return not needs

    def go_ahead(self) -> None:
        """Feed the next token, which is chosen but not known here."""
        self.position += 1
        self._windows.append(0)

    def feed(self, draft: Sequence[int] = ()) -> int:
        """Returns the token of its next step, with which `draft` goes."""
        token = self.history[self.position]
        self.position += 1
        self._windows.append(len(draft))
        self._put(draft)
        return token

    def feed_on(self, draft: Sequence[int]) -> None:
        """Feed one more window: draft tokens alone."""
        self._windows.append(len(draft) - 1)
        self._put(draft)

    def _put(self, draft: Sequence[int]) -> None:
        self._draft += draft
        self.drafted += len(draft)

    def take(self, tokens: Sequence[int], drafter: Drafter | None = None) -> tuple[int, FinishReason | None]:
        """Take the tokens of a step, all but the last of them drafted; returns how many count, and why the row ends."""
        before, reason = len(self.history), None
        for token in tokens:
            self.history.append(token)
            if reason := self.request.end(self._answered, token):
                break
        taken, drafted = len(self.history) - before, self._windows.popleft()
        # the last one may be what the next window begins with
        goes_on = reason is None and self._draft[:taken] == self.history[before:]
        kept = taken if goes_on else taken - 1
        tried = drafted + (len(self._draft) > drafted)
        self.position += kept
        self.accepted += kept
        if goes_on:
            self._draft = self._draft[kept:]
        elif self._draft:
            self._wrong += len(self._draft) - kept
            self._draft.clear()
            self.void += len(self._windows)
            self._windows.clear()
        if self._lookup:
            self._lookup.extend(self.history[before:], guessed=self._draft_source is self._lookup)
        if self._draft_source and tried and not reason:
            self._draft_source.note_result(tried, len(tokens) if goes_on else len(tokens) - 1)
        if drafter:
            drafter.note_tokens(taken)
        return taken, reason

    def trim(self) -> int:
        """Forget the draft tokens on the ring; returns how many the stages have to trim."""
        excess = self.excess
        self._draft.clear()
        self._wrong = 0
        return excess

    @property
    def _answered(self) -> int:
        return len(self.history) - len(self.request.tokens)
