"""Drafts by a smaller model, of a size and for as long as they pay.

Speculative decoding, after Y. Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023). The
samplers alone decide which draft tokens are right, so the answer is the same without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from statistics import median
from typing import Final, NamedTuple, Protocol

FIRST_RATE: Final = 0.5  # assumed share of right draft tokens before the first result
LEAST_RATE: Final = 0.4  # below it, timing teaches nothing more
MOST_RATE: Final = 0.98
FADES: Final = 0.9  # weight of the rate of right draft tokens at the next window
LEAST_GAIN: Final = 1.15  # with less, a few wrong guesses cost more than the right ones give
TRIAL: Final = 2
FIRST_REST: Final = 32
LONGEST_REST: Final = 512
SAMPLES: Final = 5
ENOUGH: Final = 3  # samples of a time that varies


class DraftModel(Protocol):
    """A model that continues greedily."""

    def read(self, tokens: Sequence[int]) -> None:
        """Hold these tokens, at least one, and nothing else."""

    def propose(self, count: int) -> tuple[int, ...]:
        """Up to `count` tokens that follow what it has read."""


class Windows(NamedTuple):
    """Windows of `size` tokens each, up to `in_flight` of them on the ring."""

    size: int
    in_flight: int


class DraftTimes(NamedTuple):
    """Times of the ring and the draft model, in seconds; `overlap` and `restart` are shares of one round."""

    round_s: float  # a step of one token, once round
    more_s: float = 0.0  # each further token of the step
    guess_s: float = 0.0  # each draft token
    overlap: float = 1.0  # between two windows in flight
    restart: float = 1.0  # of the first window after wrong ones

    def per_token(self, windows: Windows, rate: float) -> float:
        """Seconds per token, if a share `rate` of the draft tokens is right. A draft token is wrong in window number 1
        / (1 - rate ** size) on average, after 1 / (1 - rate) tokens.
        """
        guesses = windows.size * self.guess_s
        once = self.round_s + (windows.size - 1) * self.more_s
        whole = rate**windows.size
        if windows.in_flight == 1:
            return (guesses + once) * (1 - rate) / (1 - whole)
        between = max(guesses, self.overlap * once)
        return (guesses + self.restart * once + between * whole / (1 - whole)) * (1 - rate)


class StepPlace(Enum):
    """Work on the ring when a step is put: none, steps with right or wrong drafts, or other requests' work."""

    ALONE = auto()
    AFTER_DRAFT = auto()
    AFTER_WRONG = auto()
    AMONG_OTHERS = auto()


class _Out(NamedTuple):
    tokens: int
    place: StepPlace
    at: float


class Drafter:
    """Drafts by `model` for the only running request: up to `most` tokens a window, and a window in flight per stage.

    The measured rate of right draft tokens and `DraftTimes` (medians of the last few, by `clock` in seconds) decide
    what pays. When nothing does, drafting rests for 32 tokens and then tries one token; each further rest is twice as
    long, at most 512 tokens.
    """

    def __init__(self, model: DraftModel, most: int, stages: int, clock: Callable[[], float]) -> None:
        self._model, self._clock = model, clock
        counts = {1, stages}
        self._choices = [Windows(size, count) for count in counts for size in range(1 + (count == 1), most + 2)]
        self._right, self._tried = FIRST_RATE, 1.0
        self._round, self._more, self._guess = _times(), _times(), _times()
        self._overlap, self._restart = _times(1 / stages), _times(1.0)
        self._left, self._rest = 0, FIRST_REST  # tokens until it tries again
        self._best: Windows | None = None
        self._out = deque[_Out]()
        self._back: float | None = None  # when the last one came back, if it counted

    @property
    def rate(self) -> float:
        """Share of draft tokens that are right, of those whose predecessors were all right."""
        return min(MOST_RATE, self._right / self._tried)

    @property
    def windows(self) -> Windows:
        """Size of the next window, one token of it known, and how many may be in flight; size 0: don't draft now."""
        if self._left or not self._round:
            return Windows(0, 1)
        return self._best or Windows(TRIAL, 1)

    def read(self, tokens: Sequence[int]) -> None:
        if not self._left:
            self._model.read(tokens)

    def propose(self, history: Sequence[int], most: int) -> tuple[int, ...]:
        if most <= 0:
            return ()
        self._model.read(history)
        started = self._clock()
        guesses = self._model.propose(most)
        if guesses:
            self._guess.append((self._clock() - started) / len(guesses))
        return guesses

    def note_result(self, drafted: int, accepted: int) -> None:
        """Note that the first `accepted` tokens of a draft were right."""
        self._right = FADES * self._right + accepted
        self._tried = FADES * self._tried + min(drafted, accepted + 1)
        self._best = self._what_pays()
        is_known = len(self._more) >= ENOUGH or self.rate < LEAST_RATE
        if self._best:
            self._rest = FIRST_REST
        elif is_known and not self._left:
            self._left, self._rest = self._rest, min(2 * self._rest, LONGEST_REST)

    def note_tokens(self, count: int) -> None:
        self._left = max(0, self._left - count)

    def went(self, tokens: int, place: StepPlace) -> None:
        self._out.append(_Out(tokens, place, self._clock()))

    def came(self, *, counts: bool) -> None:
        """Note that the oldest step is back; `counts`: its tokens belong to the only request."""
        step, before, now = self._out.popleft(), self._back, self._clock()
        self._back = now if counts else None
        if not counts or (not self._round and (step.place, step.tokens) != (StepPlace.ALONE, 1)):
            return
        seconds, once_s = now - max(step.at, before or step.at), self._once_s(step.tokens)
        match step.place:
            case StepPlace.ALONE if step.tokens == 1:
                self._round.append(seconds)
            case StepPlace.ALONE:
                self._more.append(max(0.0, (seconds - median(self._round)) / (step.tokens - 1)))
            case StepPlace.AFTER_DRAFT if before is not None:
                self._overlap.append(min(1.0, seconds / once_s))
            case StepPlace.AFTER_WRONG:
                self._restart.append(max(1.0, seconds / once_s))

    def forget(self) -> None:
        self._out.clear()
        self._back = None

    def _once_s(self, tokens: int) -> float:
        return (median(self._round) if self._round else 0.0) + (tokens - 1) * (
            median(self._more) if self._more else 0.0
        )

    def _what_pays(self) -> Windows | None:
        if not (self._round and self._more and self._guess):
            return None
        times = DraftTimes(*map(median, (self._round, self._more, self._guess, self._overlap, self._restart)))
        best = min(self._choices, key=lambda windows: times.per_token(windows, self.rate))
        return best if times.per_token(best, self.rate) * LEAST_GAIN <= times.round_s else None


def _times(*first: float) -> deque[float]:
    return deque(first, maxlen=SAMPLES)
