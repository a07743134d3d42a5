"""A row: a running request, what the stages hold of it, what it feeds next, and when its answer ends.

The *prefix* of a row is everything before the first token that it chooses: its prompt and the written part of its
answer. A *window* is a step on the ring. Several may be in flight, each after the draft tokens of those before it. If
one of these is wrong, the later windows are void: their results don't count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from core.engine.constraints import RowGrammar
from core.engine.drafting import Drafter
from core.engine.prefix_cache import tokens_of
from core.engine.prompt_lookup import PromptLookup
from core.engine.requests import Request
from core.events import FinishReason


class Row:
    """One request. At most `max_draft` draft tokens go with a step; `only_forced`: those its grammar forces."""

    def __init__(
        self, request: Request, max_draft: int, grammar: RowGrammar | None = None, *, only_forced: bool = False
    ) -> None:
        self.request = request
        self.history = request.prefix  # prompt and answer so far
        self.cached: int | None = None  # tokens of its prefix that were cached when it first ran
        self.drafted = self.accepted = 0  # draft tokens fed, and right ones
        self.is_displaced = False  # others needed its memory, now or before
        self._max_draft = max_draft
        self._grammar, self._only_forced = grammar, only_forced
        self._lookup: PromptLookup | None = None

    def start(self, handle: int, reused: int) -> None:
        """Run. `handle` already holds `reused` tokens of the prefix."""
        self.handle = handle  # plain; holds its prefix
        self.reused = reused
        self.cached = reused if self.cached is None else self.cached
        self.prefix_tokens = len(self.history)
        self.position = reused  # tokens of `history` that are on the ring
        self.read = reused  # tokens of the prefix that every stage has done
        self.void = 0  # next results that don't count
        self.is_in_lane = self.is_lost = False
        self.kept_at: list[int] = []  # positions in the prefix at which to keep a copy
        self._draft_source: PromptLookup | Drafter | None = None  # of the draft of its step
        self._draft: list[int] = []  # draft tokens on the ring that may be right
        self._wrong = 0  # draft tokens on the ring that were wrong
        self._windows = deque[int]()  # draft tokens after the first token of each window

    def displace(self) -> None:
        """Note that its memory goes to others: the rest of its answer waits."""
        self.is_displaced = True
        self.request = msgspec.structs.replace(self.request, written=self.history[len(self.request.tokens) :])

    @property
    def most_tokens(self) -> int:
        return tokens_of(self.request)

    def claimed(self, chunk: int, step: int) -> int:
        """Memory that it takes after its next chunk or step, in tokens."""
        more = step if self.is_ready else min(chunk, self.prefix_tokens - self.position)
        return min(self.most_tokens, self.position + self.excess + more)

    def reserved(self, more: int) -> int:
        """Memory of its whole prefix or of what it takes now, and of `more` tokens."""
        return min(self.most_tokens, max(self.prefix_tokens, self.position + self.excess) + more)

    @property
    def written_here(self) -> int:
        """Tokens that it has written since it started."""
        return len(self.history) - self.prefix_tokens

    @property
    def is_kept_now(self) -> bool:
        return self.position in self.kept_at

    @property
    def is_ready(self) -> bool:
        """Whether its prefix is on the ring, except the last token, which the first step feeds."""
        return self.position >= self.prefix_tokens - 1

    @property
    def may_share(self) -> bool:
        """Whether its prefix may be read together with others; an answer that is nearly done goes first, alone."""
        left = self.request.left
        return not self.is_ready and left is not None and 8 * left > self.request.max_tokens

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(self.history[: self.position])

    @property
    def unread(self) -> int:
        """Prefix tokens that may go on the ring now: none after a position at which a copy is to be kept."""
        return min((at for at in self.kept_at if at > self.position), default=self.prefix_tokens - 1) - self.position

    def keep_at(self, position: int) -> None:
        if position >= self.position and position not in self.kept_at:
            self.kept_at.append(position)

    def cut(self, size: int) -> list[int]:
        start, self.position = self.position, self.position + size
        return self.history[start : self.position]

    @property
    def excess(self) -> int:
        return len(self._draft) + self._wrong

    def draft(self, trim_limit: int | None, drafter: Drafter | None = None) -> tuple[int, ...]:
        """Draft tokens for the next step, as many as may follow and be trimmed. Repetitive text needs no `drafter`."""
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
        """The tokens of one more window, after the draft on the ring."""
        if self._grammar or self._only_forced or self.is_lost or self._draft_source is not drafter:
            return ()
        if not 0 < len(self._windows) < drafter.windows.in_flight:
            return ()
        return drafter.propose([*self.history, *self._draft], min(self._room(trim_limit), drafter.windows.size))

    def _room(self, trim_limit: int | None) -> int:
        most = self.most_tokens
        if trim_limit is not None:
            most = min(most, trim_limit)
        return min(self._max_draft + 1, most - 1 - self.position - len(self._draft))

    def may_go_ahead(self, drafter: Drafter | None = None) -> bool:
        """Whether its next step may go first: its token isn't the first or last one, nor needed for a draft."""
        if self._grammar or self.is_lost or not 0 < self._answered < self.request.max_tokens - 1:
            return False
        needs = self._draft or (drafter and drafter.windows.size) or (self._lookup and self._lookup.expects)
        return not needs

    def go_ahead(self) -> None:
        self.position += 1
        self._windows.append(0)

    def feed(self, draft: Sequence[int] = ()) -> int:
        token = self.history[self.position]
        self.position += 1
        self._windows.append(len(draft))
        self._put(draft)
        return token

    def feed_on(self, draft: Sequence[int]) -> None:
        self._windows.append(len(draft) - 1)
        self._put(draft)

    def _put(self, draft: Sequence[int]) -> None:
        self._draft += draft
        self.drafted += len(draft)

    def take(self, tokens: Sequence[int], drafter: Drafter | None = None) -> tuple[int, FinishReason | None]:
        """Take the tokens of a step, all but the last from the draft; returns how many count, and why the row ends."""
        before, reason = len(self.history), None
        for token in tokens:
            self.history.append(token)
            if reason := self.request.end(self._answered, token):
                break
        taken, drafted = len(self.history) - before, self._windows.popleft()
        # the last one may be the first of the next window
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
        """Forget the draft tokens on the ring; returns how many tokens the stages must trim."""
        excess = self.excess
        self._draft.clear()
        self._wrong = 0
        return excess

    @property
    def _answered(self) -> int:
        return len(self.history) - len(self.request.tokens)
