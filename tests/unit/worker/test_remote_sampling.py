"""The Mac with the output head chooses as the head would, and each refuses impossible messages of the other."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import msgspec
import pytest

from core.engine.requests import Admit, Request
from core.engine.sampling import Picked, RowSampler, greedy, pick_all, pick_drafted
from core.errors import ProtocolError, UsageError
from core.sampling_options import Sampling
from core.worker.remote_sampling import ROWS_LIMIT, RemoteSamplers, check_admission, decode_choices, encode_choices
from core.worker.work_frames import Dismiss, decode_orders, encode_orders
from tests.support.grammars import BYTES

VOCABULARY = 50
CONTEXT = 4096
PROMPT = [3, 4, 5, 4, 3, 9]
SAMPLINGS = [
    pytest.param(Sampling(), id="greedy"),
    pytest.param(Sampling(temperature=0.9, seed=4), id="seeded"),
    pytest.param(Sampling(repetition_penalty=1.6, repetition_context=4, logprobs=3), id="penalty"),
    pytest.param(Sampling(logit_bias={7: 4.0}, presence_penalty=1.0), id="bias"),
]


GREEDY = Sampling()


def request(sampling: Sampling = GREEDY, number: int = 1, **changes: Any) -> Request:
    return Request(request_id=f"{number:032x}", tokens=PROMPT, max_tokens=9, eos=[2], sampling=sampling, **changes)


def sampler(asked: Request) -> RowSampler:
    return RowSampler(asked.admit, VOCABULARY)


def told(asked: Request) -> Admit:
    """The request as it arrives over the link."""
    (order,) = decode_orders(encode_orders([asked.admit])[0])
    assert isinstance(order, Admit)
    return order


def noise(step: int, rows: int = 1) -> mx.array:
    return 3 * mx.random.normal((rows, VOCABULARY), key=mx.random.key(step))


def over(rows: list[list[Picked]], positions: int = 1) -> list[list[Picked]]:
    return decode_choices(encode_choices(rows)[0], len(rows), positions, VOCABULARY)


def key(number: int) -> bytes:
    return bytes.fromhex(f"{number:032x}")


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_tokens_are_those_that_the_head_would_choose(sampling: Sampling) -> None:
    asked = request(sampling, min_tokens=3)
    here, there = sampler(asked), RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    there.admit(told(asked))
    for step in range(8):
        expected = pick_all([here], noise(step))
        (chosen,) = over(there.choose([key(1)], noise(step)))
        assert chosen == expected


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_row_that_goes_on_is_chosen_for_as_if_it_had_never_stopped(sampling: Sampling, count: int) -> None:
    """The Mac gets the number of written tokens, and the tokens that penalties need."""
    asked = request(sampling, min_tokens=3)
    undisturbed = RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    undisturbed.admit(told(asked))
    chosen = [undisturbed.choose([key(1)], noise(step)) for step in range(9)]
    there = RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    there.admit(told(request(sampling, min_tokens=3, written=[rows[0][0].token for rows in chosen[:count]])))
    assert [there.choose([key(1)], noise(step)) for step in range(count, 9)] == chosen[count:]


def test_rows_keep_their_own_way_whichever_run_together() -> None:
    asked = [request(Sampling(temperature=1.0, seed=n), n) for n in range(3)]
    here, there = [sampler(each) for each in asked], RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    for each in asked:
        there.admit(told(each))
    for step, together in enumerate([(0, 1, 2), (2, 0), (1,), (0, 1, 2)]):
        logits = noise(step, len(together))
        expected = pick_all([here[n] for n in together], logits)
        assert over(there.choose([key(n) for n in together], logits)) == [[picked] for picked in expected]


@pytest.mark.parametrize("sampling", [*SAMPLINGS[:1], pytest.param(Sampling(logprobs=2), id="logprobs")])
def test_guesses_are_checked_by_the_head(sampling: Sampling) -> None:
    asked = request(sampling)
    logits = noise(7, 4)
    tokens = [greedy(logits[n : n + 1]) for n in range(4)]
    there = RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    there.admit(told(asked))
    (chosen,) = over(there.choose([key(1)], logits[None]), 4)
    assert [picked.token for picked in chosen] == tokens
    for right in range(4):
        drafts = [*tokens[:right], (tokens[right] + 1) % VOCABULARY, 1, 2][:3]
        assert pick_drafted(sampler(asked), logits, drafts) == chosen[: right + 1]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_guessed_tokens_are_chosen_as_if_they_had_come_one_by_one(sampling: Sampling) -> None:
    asked = request(sampling, min_tokens=2)
    logits = noise(9, 6)
    alone = sampler(asked)
    expected = [pick_all([alone], logits[n : n + 1])[0] for n in range(6)]
    together = sampler(asked)
    first = pick_drafted(together, logits[:3], [expected[0].token, expected[1].token])
    wrong = pick_drafted(together, logits[3:], [(expected[3].token + 1) % VOCABULARY, 0])
    assert [*first, *wrong] == expected[:4]


def test_what_no_honest_peer_asks_is_refused() -> None:
    there = RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    there.admit(told(request()))
    for askers, logits in [
        ([key(2)], noise(1)),
        ([key(1)], noise(1, 2)),
        ([key(1), key(1)], noise(1)),
        ([key(1), key(1)], noise(1, 2)[None]),
    ]:
        with pytest.raises(ProtocolError):
            there.choose(askers, logits)
    there.dismiss(key(1))
    with pytest.raises(ProtocolError, match="0 of them run"):
        there.choose([key(1)], noise(1))
    with pytest.raises(ProtocolError, match="does not have"):
        there.admit(Admit(key(1), Sampling(), (VOCABULARY,)))
    with pytest.raises(UsageError):
        there.admit(Admit(key(1), Sampling(logit_bias={VOCABULARY: 1.0})))
    for written in (CONTEXT, (1 << 32) - 1):
        with pytest.raises(ProtocolError, match=f"{written} tokens in a context of {CONTEXT}"):
            there.admit(Admit(key(1), Sampling(temperature=1.0), written=written))
    for written in (-1, 1 << 32):
        with pytest.raises(ProtocolError, match="does not decode"):
            decode_orders(encode_orders([Admit(key(1), Sampling(), written=written)])[0])
    for number in range(ROWS_LIMIT):
        there.admit(Admit(key(number), Sampling()))
    with pytest.raises(ProtocolError, match="rows were admitted"):
        there.admit(Admit(key(ROWS_LIMIT), Sampling()))


def test_guesses_of_a_row_that_does_not_take_the_most_likely_token_are_refused() -> None:
    there = RemoteSamplers(VOCABULARY, CONTEXT, BYTES)
    there.admit(told(request(Sampling(temperature=1.0))))
    with pytest.raises(ProtocolError, match="can't have one here"):
        there.choose([key(1)], noise(1, 2)[None])


def test_no_more_of_the_prompt_leaves_than_penalties_look_at() -> None:
    assert request().admit.prompt == ()
    assert request(Sampling(repetition_penalty=1.1, repetition_context=30)).admit.prompt == tuple(PROMPT)
    short = Sampling(frequency_penalty=1.0, repetition_context=2, presence_context=2, frequency_context=3)
    assert request(short).admit.prompt == (4, 3, 9)
    assert request(short, written=[11, 12]).admit.prompt == (9, 11, 12)
    assert request(written=[11, 12]).admit.prompt == ()
    with pytest.raises(UsageError, match="too long to send"):
        check_admission(request(Sampling(logit_bias={n: 1.5 for n in range(9000)})).admit)


GOOD = [[Picked(4, -0.5, ((4, -0.5), (5, -1.0)))]]


def test_choices_come_back() -> None:
    assert over(GOOD) == GOOD


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x91" * 9000 + b"\xc0", id="nested"),
        pytest.param(msgspec.msgpack.encode([]), id="no row"),
        pytest.param(msgspec.msgpack.encode([[]]), id="no token"),
        pytest.param(msgspec.msgpack.encode([[[4], [5]]]), id="two tokens"),
        pytest.param(msgspec.msgpack.encode([[[4]], [[5]]]), id="two rows"),
        pytest.param(msgspec.msgpack.encode([[[VOCABULARY]]]), id="a token beyond"),
        pytest.param(msgspec.msgpack.encode([[[-1]]]), id="a token below"),
        pytest.param(msgspec.msgpack.encode([[[4, -1.0, [[VOCABULARY, 0.0]]]]]), id="a likely one beyond"),
        pytest.param(msgspec.msgpack.encode([[[4, float("-inf")]]]), id="minus infinity"),
        pytest.param(msgspec.msgpack.encode([[[4, float("nan")]]]), id="no number"),
        pytest.param(msgspec.msgpack.encode([[[4, 0.0, [[n, 0.0] for n in range(21)]]]]), id="too many likely ones"),
    ],
)
def test_choices_that_no_honest_peer_makes_are_refused(told: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_choices(told, 1, 1, VOCABULARY)


def test_a_row_that_is_over_is_forgotten() -> None:
    assert decode_orders(encode_orders([Dismiss(key(3))])[0]) == (Dismiss(key(3)),)
