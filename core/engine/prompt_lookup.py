"""Guesses of the tokens that follow, from what the row holds already: one step can then confirm several of them.

Prompt lookup, after A. Saxena, "Prompt Lookup Decoding" (2023): text that repeats is continued as it was the last time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

LENGTHS: Final = (4, 3, 2)  # of the n-grams that are looked up, in tokens
FIRST_DRAFT: Final = 4
WEIGHT: Final = 0.25  # of the newest step in the rate of guesses that are right
LEAST_RATE: Final = 0.25
FIRST_REST: Final = 16
LONGEST_REST: Final = 256


class PromptLookup:
    """The n-grams of one row's history, prompt and answer, and how much to trust them: at most `most` guesses a step.

    A draft begins with 4 tokens. It doubles when all of it was right, else the next is one longer than what was right.
    The rate of right guesses is smoothed over the steps that guessed, the newest with weight 1/4, and starts at 1/2.
    Where it falls below 1/4, nothing is guessed for 16 tokens; then one token is tried. Wrong: the rest is twice as
    long, at most 256 tokens. Right: the rate is 1/2 again, and the next rest 16 tokens.
    """

    def __init__(self, history: Iterable[int], most: int) -> None:
        self._history: list[int] = []
        self._behind: dict[tuple[int, ...], int] = {}  # where the latest one ends that another token follows
        self._most = most
        self._size = min(FIRST_DRAFT, most)
        self._rate = 2 * LEAST_RATE
        self._rest = FIRST_REST
        self._resumes = 0  # at this length of the history
        self._foresaw = False  # the newest token
        self.extend(history)
        self._foresaw = False

    def extend(self, tokens: Iterable[int], *, guessed: bool = True) -> None:
        """Add tokens that the row was given, or answered; `guessed`: they came from a draft of this lookup."""
        start, foreseen = len(self._history), self._latest()
        self._history += tokens
        came = self._history[start:]
        self._foresaw = (guessed and len(came) > 1) or (foreseen is not None and came[:1] == [self._history[foreseen]])
        for length in LENGTHS:
            for end in range(max(start, length), len(self._history)):
                self._behind[tuple(self._history[end - length : end])] = end

    def draft(self, most: int) -> tuple[int, ...]:
        """At most `most` tokens that followed the latest earlier occurrence of the longest n-gram that the history ends
        with. Where that one runs into the end, its draft goes on with itself, as in text of one short period.
        """
        size = min(self._size, most)
        start = self._latest() if size > 0 and len(self._history) >= self._resumes else None
        if start is None:
            return ()
        period = self._history[start : start + size]
        return tuple(period[number % len(period)] for number in range(size))

    @property
    def expects(self) -> bool:
        """Whether it is worth waiting for the next token to guess from it: text that repeats itself was foreseen."""
        return self._foresaw and len(self._history) >= self._resumes

    def note_result(self, drafted: int, accepted: int) -> None:
        """Note how many tokens of a draft were right, the first ones."""
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
