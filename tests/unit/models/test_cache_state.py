"""The content of a row moves from one split of a model to another as bytes, and no other bytes are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from itertools import pairwise
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import SessionError
from core.models.made.maker import random_model
from core.models.slicing import cache_state
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.probe import ModelProbe, legal_cuts
from core.models.slicing.slots import Slice
from tests.support.atlas import config_of, nightly_unless
from tests.support.made import build, twin
from tests.support.rings import wire
from tests.support.search import SEARCH

pytestmark = pytest.mark.slow

# saved after two chunks and three steps; beyond a window of 8, and beyond a dry run's length
CHUNKS: Final = (9, 71)
BEFORE: Final = 3
BEHIND: Final = 3
# one for each kind of cache: plain, sliding, a state, a list, all three in it, chunks, token ids, one of the family's
# own
KINDS: Final = (
    "llama", "llama sliding", "qwen3_next", "minimax_m3_vl", "baichuan_m1", "llama4", "longcat_flash_ngram",
    "deepseek_v41",
)  # fmt: skip
# A window is put in the order of its tokens, so sums are taken in another order, and the sharp attention of some
# made-up weights turns rounding into 1e-4; a wrong row is off by about 1.
WITHIN: Final = 1e-3


Saved = dict[int, bytes]


class Row:
    """One row in a model that is cut at `cuts`; the first stage has norm and head. `make` gives equal instances."""

    def __init__(self, make: Callable[[], nn.Module], probe: ModelProbe, cuts: Sequence[int], bits: int | None) -> None:
        self.stages = [
            Slice(make(), probe, start, stop, embed=start == 0, output=start == 0)
            for start, stop in pairwise((0, *cuts, probe.layers))
        ]
        self.bits = bits
        self.caches = [stage.caches.new() for stage in self.stages]
        self.tokens = 0

    def step(self, tokens: list[list[int]]) -> Any:
        """Feed more tokens; returns the logits [B, V] after them."""
        inputs, first = mx.array(tokens), self.stages[0]
        if len(self.stages) == 1:
            logits = first.whole(inputs, self.caches[0])
        else:
            boundary = first.embed(inputs, self.caches[0], self.tokens)
            for stage, caches in zip(self.stages[1:], self.caches[1:], strict=True):
                boundary = stage.run([packed.unpack() for packed in wire(boundary)], caches, self.tokens)
            logits = first.output(boundary, self.caches[0], self.tokens)
        self.tokens += len(tokens[0])
        if self.bits:
            self.caches = [s.caches.quantise(c, self.bits) for s, c in zip(self.stages, self.caches, strict=True)]
        mx.eval(logits, [s.caches.states(c) for s, c in zip(self.stages, self.caches, strict=True)])
        return np.array(logits.astype(mx.float32))

    def save(self) -> Saved:
        """The bytes of every cache, by its place in the model."""
        pairs = zip(self.stages, self.caches, strict=True)
        return {i: b"".join(cache_state.pack(caches[i])) for stage, caches in pairs for i in stage.caches.indices}

    def load(self, saved: Saved, tokens: int) -> None:
        """Restore the content of another row."""
        self.caches = [stage.outline(tokens, self.bits) for stage in self.stages]
        self.tokens = tokens
        assert sorted(saved) == sorted(index for stage in self.stages for index in stage.caches.indices)
        for stage, caches in zip(self.stages, self.caches, strict=True):
            for index in stage.caches.indices:
                assert cache_state.packed_bytes(caches[index]) == len(saved[index])
                cache_state.fill(caches[index], saved[index])


def write(row: Row, logits: Any, steps: int) -> list[Any]:
    """Run greedy steps after `logits`, [1, V]; returns the logits of each."""
    written = []
    for _ in range(steps):
        logits = row.step([[int(logits.argmax())]])
        written.append(logits)
    return written


def check_moved(whole: nn.Module, make: Callable[[], nn.Module], bits: int | None = None) -> None:
    """Check that a row saved at one split and loaded at others continues like one that never moved."""
    probe = ModelProbe(whole)
    legal = sorted(legal_cuts(probe))
    splits = [sorted({legal[n * len(legal) // 7] for n in split if legal}) for split in ((1, 4), (0, 2, 6), ())]
    unmoved, *moved = (Row(make, probe, cuts, bits) for cuts in splits)
    for chunk in CHUNKS:
        logits = unmoved.step(np.random.default_rng(chunk).integers(4, 200, (1, chunk)).tolist())
    before = write(unmoved, logits, BEFORE)
    saved, held = unmoved.save(), unmoved.tokens
    expected = write(unmoved, before[-1], BEHIND)
    chosen = [int(logits.argmax()) for logits in (*before, *expected)]
    assert 2 * len(set(chosen)) >= len(chosen)
    for row in moved:
        row.load(saved, held)
        assert row.save() == saved
        found = [row.step([[token]]) for token in chosen[BEFORE - 1 : -1]]
        np.testing.assert_allclose(found, expected, rtol=0, atol=WITHIN)


@pytest.mark.search
@pytest.mark.parametrize("variant", nightly_unless(KINDS))
def test_a_row_moves_to_another_split(variant: str) -> None:
    whole = build(variant)
    check_moved(whole, lambda: twin(variant, whole))


@pytest.mark.parametrize(("variant", "bits"), [("qwen3", 4), ("qwen3_next", 8)])
def test_a_row_in_few_bits_moves_to_another_split(variant: str, bits: int) -> None:
    def make() -> nn.Module:
        return random_model({**config_of(variant), "head_dim": KV_GROUP}, 3, mx.float32)

    check_moved(make(), make, bits)


def test_a_row_saved_right_after_its_prompt_moves_too() -> None:
    """A window is longer after a chunk than after a step."""
    whole = build("llama sliding")
    probe = ModelProbe(whole)
    row, other = (Row(lambda: twin("llama sliding", whole), probe, cuts, None) for cuts in ([3], [5]))
    row.step(np.random.default_rng(1).integers(4, 200, (1, 40)).tolist())
    other.load(row.save(), 40)
    for tokens in ([[7]], [[5, 6, 7]], [[8]]):
        np.testing.assert_allclose(other.step(tokens), row.step(tokens), rtol=0, atol=WITHIN)


def test_what_is_saved_holds_no_more_than_its_tokens() -> None:
    whole = build("llama")
    row = Row(lambda: twin("llama", whole), ModelProbe(whole), [4], None)
    row.step([[1, 2, 3]])
    # keys and values, 2 heads of 32 numbers, 3 tokens; and shapes
    assert {len(data) for data in row.save().values()} == {2 * 2 * 32 * 3 * 4 + 1 + 2 * (2 + 4 * 4)}


@cache
def held(variant: str) -> tuple[Slice, Saved, int]:
    """A whole model, and the content of a row in it."""
    whole = build(variant)
    row = Row(lambda: twin(variant, whole), ModelProbe(whole), [], None)
    row.step(np.random.default_rng(2).integers(4, 200, (1, 21)).tolist())
    return row.stages[0], row.save(), row.tokens


@cache
def outlined(variant: str) -> list[Any]:
    """The outline of that row, to be copied before it is filled."""
    stage, _, tokens = held(variant)
    return stage.outline(tokens)


@settings(max_examples=200 * SEARCH)
@given(st.sampled_from(KINDS), st.data())
def test_changed_bytes_are_refused_or_are_a_cache_of_the_same_shape(variant: str, data: st.DataObject) -> None:
    _, saved, _ = held(variant)
    index = data.draw(st.sampled_from(sorted(saved)))
    good = saved[index]
    bad = data.draw(mutations(good, [saved[other] for other in sorted(saved)]))
    like = outlined(variant)[index]
    outline = deepcopy(like)
    with suppress(SessionError):
        cache_state.fill(outline, bad)
        like = outline
        assert len(bad) == len(good)
    assert b"".join(cache_state.pack(outline)) == (bad if outline is like else b"".join(cache_state.pack(like)))


def mutations(good: bytes, others: list[bytes]) -> st.SearchStrategy[bytes]:
    """Cut, longer, changed near the front, where types and shapes are, or another layer's."""
    front = min(len(good), 64)
    flipped = st.tuples(st.integers(0, front - 1), st.integers(0, 255)).map(
        lambda at: good[: at[0]] + bytes([at[1]]) + good[at[0] + 1 :]
    )
    cut = st.integers(0, len(good)).map(lambda at: good[:at])
    longer = st.binary(min_size=1, max_size=9).map(lambda more: good + more)
    return flipped | cut | longer | st.sampled_from(others) | st.binary(max_size=99)


def fill_all(outline: list[Any], saved: Saved) -> None:
    for index, hole in enumerate(outline):
        cache_state.fill(hole, saved[index])


@pytest.mark.parametrize(
    ("variant", "tokens", "other", "held_there"),
    [
        pytest.param("llama", 20, "llama", 21, id="of fewer tokens"),
        pytest.param("llama", 22, "llama", 21, id="of more tokens"),
        pytest.param("llama sliding", 5, "llama sliding", 21, id="of a window that is not full"),
        pytest.param("deepseek_v41", 20, "deepseek_v41", 21, id="of a state of fewer tokens"),
        pytest.param("llama", 21, "qwen3_next", 21, id="of another model"),
        pytest.param("longcat_flash_ngram", 21, "llama", 21, id="of another family"),
    ],
)
def test_what_another_row_or_model_holds_is_refused_with_both_named(
    variant: str, tokens: int, other: str, held_there: int
) -> None:
    outline, (_, saved, there) = held(variant)[0].outline(tokens), held(other)
    assert there == held_there
    with pytest.raises(SessionError, match=r"A layer holds .*, where this model holds .*\."):
        fill_all(outline, saved)


def test_nothing_is_computed_for_an_outline() -> None:
    """The outline of a row with a hundred thousand tokens takes almost no memory."""
    stage = held("llama sliding")[0]
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    caches = stage.outline(100_000)
    assert cache_state.packed_bytes(caches[3]) > 50_000_000
    assert mx.get_peak_memory() - before < 1_000_000
