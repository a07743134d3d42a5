"""Drafts from the row's own history: one step can confirm several tokens.

Prompt lookup, after A. Saxena, "Prompt Lookup Decoding" (2023): repeated text is continued as it was the last time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

LENGTHS: Final = (4, 3, 2)  # lengths of the n-grams that are looked up, in tokens
FIRST_DRAFT: Final = 4
WEIGHT: Final = 0.25  # weight of the newest step in the rate of right draft tokens
LEAST_RATE: Final = 0.25
FIRST_REST: Final = 16
LONGEST_REST: Final = 256


class PromptLookup:
    """The n-grams of one row's prompt and answer, and how far to trust them: up to `most` draft tokens a step.

    A draft starts with 4 tokens. It doubles when all of it was right, else it is one longer than the right part. The
    rate of right tokens is smoothed over the steps with a draft, the newest with weight 1/4, and starts at 1/2. Below
    1/4 it drafts nothing for 16 tokens, then tries one token. If that is wrong, the rest doubles, to at most 256
    tokens; if it is right, the rate is 1/2 again and the rest 16 tokens.
    """

    def __init__(self, history: Iterable[int], most: int) -> None:
        self._history: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # position after the latest occurrence that a token follows
        self._most = most
        self._size = min(FIRST_DRAFT, most)
        self._rate = 2 * LEAST_RATE
        self._rest = FIRST_REST
        self._resumes = 0  # length of the history at which drafting resumes
        self._foresaw = False  # whether it predicted the newest token
        self.extend(history)
        self._foresaw = False

    def extend(self, tokens: Iterable[int], *, guessed: bool = True) -> None:
        """Add tokens of the prompt or answer; `guessed`: they came from a draft of this lookup."""
        start, foreseen = len(self._history), self._latest()
        self._history += tokens
        came = self._history[start:]
        self._foresaw = (guessed and len(came) > 1) or (foreseen is not None and came[:1] == [self._history[foreseen]])
        for length in LENGTHS:
            for end in range(max(start, length), len(self._history)):
                self._behind[tuple(self._history[end - length : end])] = end

    def draft(self, most: int) -> tuple[int, ...]:
        """Up to `most` tokens that followed the latest earlier occurrence of the longest n-gram at the end of the
        history. If that runs into the end, the draft repeats itself.
        """
        size = min(self._size, most)
        start = self._latest() if size > 0 and len(self._history) >= self._resumes else None
        if start is None:
            return ()
        period = self._history[start : start + size]
        return tuple(period[number % len(period)] for number in range(size))

    @property
    def expects(self) -> bool:
        """Whether waiting for the next token to draft from it pays: repetitive text was predicted."""
        return self._foresaw and len(self._history) >= self._resumes

    def note_result(self, drafted: int, accepted: int) -> None:
        """Note that the first `accepted` tokens of a draft were right."""
        is_trial = self._rate < LEAST_RATE
        self._rate += WEIGHT * (accepted / drafted - self._rate)
        if is_trial and accepted:
            self._rate, self._rest = 2 * LEAST_RATE, FIRST_REST
        self._size = min(2 * drafted if accepted == drafted else accepted + 1, self._most)
        if self._rate < LEAST_RATE:
            self._resumes, self._size = len(self._history) + self._rest, 1
            self._rest = min(2 * self._rest, LONGEST_REST)

    def _latest(self) -> int | None:
        ends: Sequence[tuple[int, ...]] = [tuple(self._history[-length:]) for length in LENGTHS]
        return next((self._behind[end] for end in ends if end in self._behind), None)
