"""Tokens from logits, by mlx-lm's own samplers and logits processors. Every row gets the same tokens as from
`mlx_lm.generate_step` alone, regardless of the other rows in the step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite
from typing import Annotated, Any, Final, NamedTuple

import mlx.core as mx
import msgspec
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from core.engine.constraints import RowGrammar
from core.engine.requests import Admit
from core.errors import Problem, StageFailed, UsageError
from core.numbers import Logprob, TokenId
from core.sampling_options import MAX_LOGPROBS, Sampling

_OVERFLOW_FIX: Final = "Ask in other words, or use a version of the model in bfloat16 or with more bits."
LEAST_LOGPROB: Final = -9999.0  # of a token that the model rules out
LONGEST_CONTEXT: Final = (1 << 31) - 1  # mlx slices with 32-bit integers
DRAWS_AT_ONCE: Final = 1024  # draws held in memory until they are evaluated


class Picked(NamedTuple):
    """A chosen token, its logprob, and on request the top (token id, logprob), most probable first; after the
    processors, before temperature. Not `is_number`: the logits were no numbers, and the token means nothing.
    """

    token: TokenId
    logprob: Logprob | None = None
    top: Annotated[tuple[tuple[TokenId, Logprob], ...], msgspec.Meta(max_length=MAX_LOGPROBS)] = ()
    is_number: bool = True


class RowSampler:
    """Chooses the tokens of one row: counts them, knows its history, and has its own random state.

    It continues after what is written of `row` as if it had chosen that itself. Prompt token ids are below
    `vocab_size`. The `grammar` must still `follow` what is written. Raises UsageError for options that this vocabulary
    can't meet.
    """

    def __init__(self, row: Admit, vocab_size: int, grammar: RowGrammar | None = None) -> None:
        sampling = row.sampling
        _check(sampling, vocab_size)
        self._grammar = grammar
        self.draws = sampling.temperature > 0
        self.logprobs = sampling.logprobs
        key = mx.random.key(int.from_bytes(os.urandom(8)) if sampling.seed is None else sampling.seed)
        self.key = _drawn(key, row.written) if self.draws else key
        self._sample = make_sampler(sampling.temperature, sampling.top_p, sampling.min_p, top_k=sampling.top_k)
        self._processors = _processors(sampling)
        self._lookback = max(1, sampling.lookback)
        self._history = list(row.prompt)
        self._eos = [token for token in row.eos if 0 <= token < vocab_size]
        self._owed = row.min_tokens - row.written if self._eos else 0
        self._fault: Problem | None = None

    @property
    def processes(self) -> bool:
        return bool(self._processors) or self._owed > 0 or self._grammar is not None

    @property
    def problem(self) -> Problem | None:
        """Why it can't choose; its tokens from then on don't count."""
        return self._fault or (self._grammar.problem if self._grammar else None)

    def check(self, picked: Sequence[Picked]) -> None:
        """Note a problem if the model's numbers have overflowed."""
        if not all(each.is_number for each in picked):
            self._fault = StageFailed("The model's numbers overflow in this conversation.", _OVERFLOW_FIX).problem

    @property
    def is_plain(self) -> bool:
        return not self.draws and not self.processes

    def process(self, logits: mx.array) -> mx.array:
        """Logits [1, vocabulary] after the processors, which see as much of prompt and answer as they look at."""
        if self._processors:
            history = mx.array(self._history[-self._lookback :])
            for processor in self._processors:
                logits = processor(history, logits)
        if self._owed > 0:
            logits[:, mx.array(self._eos)] = -mx.inf
        if self._grammar:
            logits = mx.where(self._grammar.allowed(), logits, mx.array(-mx.inf, logits.dtype))
        return logits

    def draw(self, logprobs: mx.array) -> tuple[mx.array, mx.array]:
        """A token [1] from logprobs [1, vocabulary], and the random `key` after it; neither evaluated nor counted yet.
        The samplers are compiled with this thread's random state, which only a seed can set; a key is a seed in two
        halves.
        """
        upper, lower = _ints(self.key)
        mx.random.seed(upper << 32 | lower)
        token: mx.array = self._sample(logprobs)
        state: Any = mx.random.state
        return token, state[0]

    def prepare(self) -> None:
        if self._grammar:
            self._grammar.prepare()

    def forced(self) -> Picked | None:
        """Take and return the next token if the constraint leaves only one, as if chosen from logits."""
        forced = self._grammar.forced(1) if self._grammar else ()
        if not forced:
            return None
        if self.draws:
            self.key = _drawn(self.key, 1)
        self.took(forced[0])
        if self.logprobs is None:
            return Picked(forced[0])
        return Picked(forced[0], 0.0, ((forced[0], 0.0),)[: self.logprobs])

    def took(self, token: int) -> None:
        self._history.append(token)
        self._owed -= 1
        self.follow([token])

    def follow(self, tokens: Sequence[int]) -> None:
        """Advance the constraint by tokens that were chosen, here or by another sampler of this row."""
        if self._grammar:
            for token in tokens:
                self._grammar.take(token)


class NextTokens(NamedTuple):
    """The next token of each row, `tokens` [rows, 1], still to be computed; the `samplers` know neither it nor the
    `keys` after it. `told`: the result of `_with_top` for each row; `finite`: whether its logits are numbers.
    """

    samplers: Sequence[RowSampler]
    tokens: mx.array
    told: Sequence[list[mx.array]]
    finite: mx.array
    keys: Sequence[mx.array]

    def begin(self) -> None:
        mx.async_eval(self.tokens, self.told, self.finite, self.keys)

    def read(self) -> list[Picked]:
        """Wait for the tokens and pass them to the samplers."""
        mx.eval(self.tokens, self.told, self.finite, self.keys)
        # read in place: an array made of them would be computed after the step that was put since
        rows: Any = self.tokens.tolist()
        tokens = [int(token) for (token,) in rows]
        picked = [_picked(*each) for each in zip(tokens, self.told, _ints(self.finite), strict=True)]
        for sampler, key, pick in zip(self.samplers, self.keys, picked, strict=True):
            sampler.key = key
            sampler.took(pick.token)
        return picked


def choose_all(samplers: Sequence[RowSampler], logits: mx.array) -> NextTokens:
    """One token per row of logits [rows, vocabulary], by its own sampler. Evaluates and changes nothing."""
    rows = range(len(samplers))
    if any(sampler.processes for sampler in samplers):
        logits = mx.concatenate([samplers[i].process(logits[i : i + 1]) for i in rows])
    logprobs = _logprobs(logits)
    keys: Sequence[mx.array] = [sampler.key for sampler in samplers]
    if any(sampler.draws for sampler in samplers):
        drawn, keys = zip(*(samplers[i].draw(logprobs[i : i + 1]) for i in rows), strict=True)
        tokens = mx.concatenate(list(drawn))
    else:
        tokens = mx.argmax(logprobs, axis=-1)
    told = [_with_top(logprobs[i], tokens[i : i + 1], samplers[i].logprobs) for i in rows]
    return NextTokens(samplers, tokens.astype(mx.int32)[:, None], told, _finite(logprobs, tokens), keys)


def pick_all(samplers: Sequence[RowSampler], logits: mx.array) -> list[Picked]:
    return choose_all(samplers, logits).read()


def pick_drafted(sampler: RowSampler, logits: mx.array, drafts: Sequence[int]) -> list[Picked]:
    """One row's tokens from logits [1 + drafts, vocabulary]; those after the first wrong draft don't count."""
    if sampler.is_plain:
        return confirmed(pick_each(sampler, logits), drafts)
    picked: list[Picked] = []
    for at in range(1 + len(drafts)):
        forced = sampler.forced()
        picked += [forced] if forced else pick_all([sampler], logits[at : at + 1])
        if at < len(drafts) and picked[at].token != drafts[at]:
            break
    return picked


def pick_each(sampler: RowSampler, logits: mx.array) -> list[Picked]:
    logprobs = _logprobs(logits)
    tokens = mx.argmax(logprobs, axis=-1)
    told = [_with_top(logprobs[i], tokens[i : i + 1], sampler.logprobs) for i in range(len(logits))]
    finite = _finite(logprobs, tokens)
    mx.eval(tokens, told, finite)
    return [_picked(*each) for each in zip(_ints(tokens), told, _ints(finite), strict=True)]


def logprobs_of(logits: mx.array, tokens: Sequence[int], count: int) -> list[Picked]:
    """Logprob of each of `tokens` at its position of logits [positions, vocabulary], with the top `count`."""
    logprobs = _logprobs(logits)
    told = [_with_top(logprobs[i], mx.array([token]), count) for i, token in enumerate(tokens)]
    finite = mx.logical_not(mx.isnan(logprobs).any(axis=-1))[: len(tokens)]
    mx.eval(told, finite)
    return [_picked(*each) for each in zip(tokens, told, _ints(finite), strict=True)]


def confirmed(picked: Sequence[Picked], drafts: Sequence[int]) -> list[Picked]:
    """The tokens that count, of those picked at 1 + `drafts` positions: up to the first mismatch with `drafts`."""
    right = next((n for n, draft in enumerate(drafts) if picked[n].token != draft), len(drafts))
    return list(picked[: right + 1])


def greedy(logits: mx.array) -> int:
    """The most probable token of logits [1, vocabulary], as generate_step chooses it without a sampler."""
    (token,) = _ints(mx.argmax(_logprobs(logits), axis=-1))
    return token


def _drawn(key: mx.array, times: int) -> mx.array:
    """The random state after `times` draws: each draw splits the key, uses one half and leaves the other."""
    for number in range(1, times + 1):
        key = mx.random.split(key)[0]
        if number % DRAWS_AT_ONCE == 0:
            mx.eval(key)
    return key


def _logprobs(logits: mx.array) -> mx.array:
    """In the dtype of the logits, as in generate_step: rounding may make two equal, and the first is chosen."""
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


def _with_top(logprobs: mx.array, token: mx.array, count: int | None) -> list[mx.array]:
    """Ids and logprobs of `token`, then of the top `count` in any order; empty if `count` is None."""
    if count is None:
        return []
    count = min(count, logprobs.size)
    ids = mx.concatenate([token, mx.argpartition(-logprobs, kth=count - 1)[:count]])
    return [ids, logprobs[ids].astype(mx.float32)]


def _finite(logprobs: mx.array, tokens: mx.array) -> mx.array:
    """Whether the logprob of each chosen token is a number; one NaN among the logits makes all logprobs NaN."""
    return mx.isfinite(mx.take_along_axis(logprobs, tokens[:, None], axis=-1))[:, 0]


def _picked(token: int, with_top: list[mx.array], is_number: int) -> Picked:
    if not (with_top and is_number):
        return Picked(token, is_number=bool(is_number))
    ids, values = with_top
    numbers: Any = values.tolist()
    (_, logprob), *others = zip(_ints(ids), map(float, numbers), strict=True)
    top = sorted((pair for pair in others if isfinite(pair[1])), key=lambda pair: (-pair[1], pair[0]))
    return Picked(token, max(logprob, LEAST_LOGPROB), tuple(top))


def _processors(sampling: Sampling) -> list[Any]:
    return list(
        make_logits_processors(
            sampling.logit_bias,
            sampling.repetition_penalty,
            min(sampling.repetition_context, LONGEST_CONTEXT),
            sampling.presence_penalty,
            min(sampling.presence_context, LONGEST_CONTEXT),
            sampling.frequency_penalty,
            min(sampling.frequency_context, LONGEST_CONTEXT),
        )
    )


def _check(sampling: Sampling, vocab_size: int) -> None:
    """Check ids that mlx does not: it reads and writes beyond the end of an array."""
    if sampling.top_k >= vocab_size:
        what = f"Top-k {sampling.top_k} is not below the vocabulary size of {vocab_size}."
        raise UsageError(what, f"Use less than {vocab_size}, or 0 to turn it off.")
    if foreign := [token for token in sampling.logit_bias if not 0 <= token < vocab_size]:
        what = f"The logit bias names token {foreign[0]}, which this model does not have."
        raise UsageError(what, f"Its token ids are 0 to {vocab_size - 1}.")


def _ints(array: mx.array) -> list[int]:
    values: Any = array.tolist()
    return [int(value) for value in values]
