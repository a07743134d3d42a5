"""Every row gets the tokens that `mlx_lm.generate_step` gives it alone, whatever other rows are in the batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from math import isfinite
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from msgspec.structs import replace

from core.engine.requests import Admit
from core.engine.sampling import (
    DRAWS_AT_ONCE,
    LEAST_LOGPROB,
    Picked,
    RowSampler,
    choose_all,
    greedy,
    logprobs_of,
    pick_all,
)
from core.errors import UsageError
from core.models.made.maker import random_model
from core.sampling_options import Sampling
from tests.support.cluster import choosing
from tests.support.made_configs import FAMILIES, Shape
from tests.support.search import SEARCH

pytestmark = pytest.mark.slow

VOCAB = 512
PROMPT = [5, 300, 41, 41, 7, 222, 101, 9]
COUNT = 20
BIAS = dict.fromkeys(range(4, VOCAB, 3), 1.0) | dict.fromkeys(range(5, VOCAB, 30), -100.0)
TABLE = {
    "greedy": Sampling(),
    "temperature": Sampling(temperature=0.7, seed=7),
    "hot": Sampling(temperature=5.0, seed=(1 << 63) - 1),
    "top_k": Sampling(temperature=1.0, top_k=5, seed=1),
    "top_k_all_but_one": Sampling(temperature=1.0, top_k=VOCAB - 1, seed=1),
    "top_p": Sampling(temperature=1.0, top_p=0.6, seed=2),
    "min_p": Sampling(temperature=1.0, min_p=0.05, seed=3),
    "cut_three_ways": Sampling(temperature=1.3, top_k=40, top_p=0.9, min_p=0.01, seed=4),
    "repetition": Sampling(repetition_penalty=1.4),
    "repetition_of_few": Sampling(repetition_penalty=0.8, repetition_context=3),
    "presence": Sampling(presence_penalty=1.5, presence_context=40),
    "frequency": Sampling(frequency_penalty=0.4),
    "frequency_wanted": Sampling(frequency_penalty=-0.1, frequency_context=5),
    "bias": Sampling(logit_bias=BIAS),
    "all": Sampling(
        temperature=0.9,
        top_p=0.95,
        top_k=100,
        min_p=0.001,
        repetition_penalty=1.1,
        repetition_context=4,
        presence_penalty=0.3,
        presence_context=7,
        frequency_penalty=0.2,
        frequency_context=1 << 62,
        logit_bias=BIAS,
        seed=0,
        logprobs=3,
    ),
}  # fmt: skip
CASES = [pytest.param(sampling, id=name) for name, sampling in TABLE.items()]


@cache
def model(dtype: mx.Dtype = mx.float32) -> nn.Module:
    shape = Shape(layers=2, hidden=64, intermediate=96, vocab=VOCAB, heads=2, kv_heads=2, head_dim=32, context=256)
    return random_model(FAMILIES["llama"](shape), 0, dtype)


def sampler(
    sampling: Sampling,
    prompt: Sequence[int],
    eos: Sequence[int] = (),
    least: int = 0,
    *,
    written: int = 0,
    vocab_size: int = VOCAB,
) -> RowSampler:
    return RowSampler(Admit(bytes(16), sampling, tuple(prompt), tuple(eos), least, written), vocab_size)


class Row:
    """One request as the head runs it: the model gives logits, and the sampler chooses outside of it."""

    def __init__(
        self,
        sampling: Sampling,
        dtype: mx.Dtype = mx.float32,
        eos: Sequence[int] = (),
        least: int = 0,
        written: Sequence[Picked] = (),
    ) -> None:
        self.picked = list(written)
        beginning = PROMPT + self.tokens
        self.sampler = sampler(sampling, beginning, eos, least, written=len(written))
        self._model, self._cache = model(dtype), make_prompt_cache(model(dtype))
        self._model(mx.array([PROMPT[:-1]]), cache=self._cache)
        for token in beginning[len(PROMPT) - 1 : -1]:
            self._model(mx.array([[token]]), cache=self._cache)

    @property
    def tokens(self) -> list[int]:
        return [picked.token for picked in self.picked]

    def logits(self) -> mx.array:
        last = self.picked[-1].token if self.picked else PROMPT[-1]
        logits: mx.array = self._model(mx.array([[last]]), cache=self._cache)
        return logits[:, -1]


def run(rows: Sequence[Row], count: int = COUNT) -> None:
    for _ in range(count):
        picked = pick_all([row.sampler for row in rows], mx.concatenate([row.logits() for row in rows]))
        for row, pick in zip(rows, picked, strict=True):
            row.picked.append(pick)


Answer = tuple[list[int], list[list[float]]]
ANSWERS: dict[str, Answer] = {}


def reference(sampling: Sampling, dtype: mx.Dtype = mx.float32) -> Answer:
    """Tokens of generate_step, and the logprobs [vocabulary] of each; computed once."""
    asked = repr((sampling, dtype))
    if asked not in ANSWERS:
        ANSWERS[asked] = generated(sampling, dtype)
    return ANSWERS[asked]


def generated(sampling: Sampling, dtype: mx.Dtype = mx.float32, more: Sequence[Any] = ()) -> Answer:
    whole = model(dtype)  # making one draws random numbers
    if sampling.seed is not None:
        mx.random.seed(sampling.seed)
    how = choosing(replace(sampling, frequency_context=min(sampling.frequency_context, 1000)))
    how["logits_processors"] += more
    steps = generate_step(mx.array(PROMPT), whole, max_tokens=COUNT, **how)
    answered = [(int(token), logprobs.astype(mx.float32).tolist()) for token, logprobs in steps]
    return [token for token, _ in answered], [logprobs for _, logprobs in answered]


@pytest.mark.parametrize(
    ("sampling", "dtype"),
    [
        *(pytest.param(sampling, mx.float32, id=name) for name, sampling in TABLE.items()),
        pytest.param(TABLE["all"], mx.bfloat16, id="all-bfloat16"),
    ],
)
def test_a_row_gets_the_tokens_of_generate_step(sampling: Sampling, dtype: mx.Dtype) -> None:
    expected, _ = reference(sampling, dtype)
    assert len(set(expected)) >= COUNT // 2, "a reference that repeats one token proves nothing"
    row = Row(sampling, dtype)
    run([row])
    assert row.tokens == expected


@pytest.mark.parametrize("sampling", CASES)
def test_a_row_goes_on_behind_what_is_written_as_if_it_had_chosen_that(sampling: Sampling) -> None:
    """Some of the splits come before its least number of tokens, others after."""
    eos, least = [7, 222, 301, *range(40, 50)], 9
    undisturbed = Row(sampling, eos=eos, least=least)
    run([undisturbed])
    for count in (2, least - 1, COUNT - 1):
        resumed = Row(sampling, eos=eos, least=least, written=undisturbed.picked[:count])
        run([resumed], COUNT - count)
        assert resumed.picked == undisturbed.picked


def test_a_long_answer_goes_on_with_the_random_state_that_it_had() -> None:
    sampling, count = Sampling(temperature=1.0, seed=21), 2 * DRAWS_AT_ONCE + 50
    logits = mx.zeros((1, VOCAB))
    undisturbed = sampler(sampling, [1])
    said = [pick_all([undisturbed], logits)[0].token for _ in range(count + 9)]
    resumed = sampler(sampling, [1, *said[:count]], written=count)
    assert [pick_all([resumed], logits)[0].token for _ in range(9)] == said[count:]


def test_every_setting_counts() -> None:
    answers = {name: tuple(reference(sampling)[0]) for name, sampling in TABLE.items()}
    answers |= {"seed": tuple(reference(Sampling(temperature=0.7, seed=8))[0])}
    assert len(set(answers.values())) == len(answers)


def test_rows_of_a_batch_do_not_show_through() -> None:
    """Each step takes other rows, in another order."""
    dice = random.Random(1)
    rows = {name: Row(sampling) for name, sampling in TABLE.items()}
    while waiting := [row for row in rows.values() if len(row.picked) < COUNT]:
        mx.random.seed(dice.randrange(100))
        run(dice.sample(waiting, dice.randint(1, len(waiting))), 1)
    assert {name: row.tokens for name, row in rows.items()} == {name: reference(s)[0] for name, s in TABLE.items()}


def test_what_is_foreseen_counts_when_it_is_read() -> None:
    foreseen, read = (sampler(TABLE["all"], [1, 2, 3]) for _ in range(2))
    told = []
    for number in range(8):
        logits = mx.random.normal((1, VOCAB), key=mx.random.key(number))
        choose_all([foreseen], mx.zeros((1, VOCAB)))  # the choice is discarded
        choice = choose_all([foreseen], logits)
        assert choice.tokens.shape == (1, 1)
        told.append(choice.read())
        assert told[-1] == pick_all([read], logits)
    assert len({pick.token for (pick,) in told}) > 4


def test_rows_without_a_seed_are_seeded_by_the_machine() -> None:
    rows = [Row(Sampling(temperature=2.0)) for _ in range(3)]
    mx.random.seed(0)
    run(rows)
    assert len({tuple(row.tokens) for row in rows}) == 3


@pytest.mark.parametrize("wanted", [0, 1, 20])
@pytest.mark.parametrize("name", ["greedy", "repetition", "cut_three_ways", "bias"])
def test_logprobs_are_of_what_the_processors_left_before_temperature(name: str, wanted: int) -> None:
    tokens, logprobs = reference(TABLE[name])
    row, silent = Row(replace(TABLE[name], logprobs=wanted)), Row(TABLE[name])
    run([row, silent])
    assert silent.picked == [Picked(token) for token in tokens]
    for picked, token, all_of_them in zip(row.picked, tokens, logprobs, strict=True):
        assert (picked.token, picked.logprob) == (token, all_of_them[token])
        best = sorted(range(VOCAB), key=lambda one: (-all_of_them[one], one))[:wanted]
        assert picked.top == tuple((one, all_of_them[one]) for one in best)


def test_ruled_out_tokens_are_not_among_the_top_logprobs() -> None:
    sampling = Sampling(logit_bias=dict.fromkeys(range(2, 6), 3.0), logprobs=20)
    row = sampler(sampling, [1], [0, 3, 4, 5], 1, vocab_size=6)
    (picked,) = pick_all([row], mx.zeros((1, 6)))
    assert picked.token == 2
    assert [token for token, _ in picked.top] == [2, 1]
    assert all(isfinite(logprob) for _, logprob in picked.top)
    (picked,) = pick_all([row], mx.zeros((1, 6)))
    assert [token for token, _ in picked.top][:4] == [2, 3, 4, 5]


@pytest.mark.parametrize("least", [0, 1, 4, COUNT])
def test_no_end_before_there_are_enough_tokens(least: int) -> None:
    free, _ = reference(Sampling())
    eos = [free[0], free[3], 4_000_000, -1]

    def not_yet(tokens: mx.array, logits: mx.array) -> mx.array:
        if tokens.size - len(PROMPT) < least:
            logits[:, mx.array(eos[:2])] = -mx.inf
        return logits

    expected, _ = generated(Sampling(), more=[not_yet])
    row, other = Row(Sampling(), eos=eos, least=least), Row(Sampling())
    run([row, other])
    assert row.tokens == expected
    assert (row.tokens == free) == (least == 0)
    assert not {free[0], free[3]} & set(row.tokens[:least])
    assert other.tokens == free


@pytest.mark.parametrize(
    ("sampling", "said", "cure"),
    [
        pytest.param(Sampling(top_k=VOCAB), "Top-k 512 is not below", "less than 512", id="top_k"),
        pytest.param(Sampling(top_k=1 << 70), "Top-k", "less than 512", id="huge_top_k"),
        pytest.param(Sampling(logit_bias={1: 0.0, VOCAB: 1.0}), "names token 512", "0 to 511", id="token"),
        pytest.param(Sampling(logit_bias={-1: 1.0}), "names token -1", "0 to 511", id="negative_token"),
    ],
)
def test_what_this_vocabulary_cannot_give_is_refused(sampling: Sampling, said: str, cure: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        sampler(sampling, PROMPT)
    assert cure in refused.value.fix


def test_greedy_is_what_generate_step_does_without_a_sampler() -> None:
    for seed in range(20):
        logits = (4 * mx.random.normal((1, 4096), key=mx.random.key(seed))).astype(mx.bfloat16)
        logprobs = logits - mx.logsumexp(logits, keepdims=True)
        assert greedy(logits) == mx.argmax(logprobs, axis=-1).item()


SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 10]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([None, 0.5, 1.5]),
    frequency_penalty=st.sampled_from([None, 0.0, -2.0]),
    logit_bias=st.dictionaries(st.integers(0, 31), st.sampled_from([-100.0, 1.0]), max_size=3),
    seed=st.integers(0, (1 << 63) - 1),
    logprobs=st.sampled_from([None, 0, 4]),
)


@given(st.lists(SAMPLINGS, min_size=2, max_size=6), st.integers(0, 1000))
@settings(max_examples=40 * SEARCH)
def test_a_row_is_chosen_for_as_if_it_were_alone(samplings: list[Sampling], seed: int) -> None:
    def samplers() -> list[RowSampler]:
        return [sampler(s, [1, 2], [0], 2, vocab_size=32) for s in samplings]

    together, alone = samplers(), samplers()
    for step in range(4):
        logits = 3 * mx.random.normal((len(samplings), 32), key=mx.random.key(seed + step))
        expected = [pick_all([row], logits[i : i + 1])[0] for i, row in enumerate(alone)]
        assert pick_all(together, logits) == expected


@pytest.mark.parametrize("name", ["greedy", "cut_three_ways", "bias", "all"])
@pytest.mark.parametrize("spoil", [mx.nan, mx.inf])
def test_logits_that_are_no_numbers_are_told_and_harm_no_other_row(name: str, spoil: float) -> None:
    logits = mx.random.normal((2, VOCAB), key=mx.random.key(1))
    (alone,) = pick_all([sampler(TABLE[name], PROMPT)], logits[:1])
    bad = mx.where(mx.arange(VOCAB) == 5, spoil, logits[1:])
    rows = [sampler(TABLE[name], PROMPT) for _ in range(2)]
    good, wrong = pick_all(rows, mx.concatenate([logits[:1], bad]))
    assert (good, good.is_number) == (alone, True)
    assert wrong == Picked(wrong.token, is_number=False)
    for row, picked in zip(rows, (good, wrong), strict=True):
        row.check([picked])
    assert rows[0].problem is None
    assert "overflow" in (rows[1].problem.what if rows[1].problem else "")


def test_logprobs_of_a_prompt_whose_logits_are_no_numbers_are_no_numbers() -> None:
    logits = mx.zeros((2, VOCAB))
    logits[1, 7] = mx.nan
    assert [each.is_number for each in logprobs_of(logits, [3, 4], 2)] == [True, False]
    ruled_out = mx.where(mx.arange(VOCAB) == 3, -mx.inf, mx.zeros((1, VOCAB)))
    assert logprobs_of(ruled_out, [3], 0)[0] == Picked(3, LEAST_LOGPROB)
