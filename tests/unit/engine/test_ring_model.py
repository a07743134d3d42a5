"""mlx-lm's own functions give the same over a ring as over the whole model in one process."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from core.engine.ring_model import RingModel
from core.engine.ring_work import Copy, Drop, Op
from core.errors import ProtocolError, UsageError
from core.models.files.model_folder import read_folder
from core.models.slicing.loading import load_slice
from core.models.slicing.probe import ModelProbe
from core.models.slicing.slots import Slice
from tests.support.atlas import VOCAB
from tests.support.made import build, twin
from tests.support.maker import make_model
from tests.support.rings import Ring, check_as_mlx_lm, check_generation, check_speculation, private_ring

pytestmark = pytest.mark.slow

# `make test` skips the families that tests/processes/test_ring_model.py runs over real workers, and one of states
OVER_WORKERS = {
    "llama": (1, 6),
    "gemma3_text": (3,),  # its window is full after 8 tokens
    "qwen3_next": (1, 6),  # three of four layers keep a state
}
VARIANTS = {
    **OVER_WORKERS,
    "deepseek_v3": (3,),
    "bailing_moe_linear": (3, 7),  # layers of a state ask for the position of another layer's cache
}
NIGHTLY = {*OVER_WORKERS, "bailing_moe_linear"}


class Noting(Ring):
    """Keeps the compositions."""

    noted: list[Op]

    def compose(self, ops: Sequence[Op]) -> None:
        self.noted = [*getattr(self, "noted", []), *ops]
        super().compose(ops)


@pytest.mark.search
@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=[pytest.mark.nightly] * (name in NIGHTLY)) for name in VARIANTS]
)
def test_mlx_lm_runs_over_a_ring(variant: str) -> None:
    whole = build(variant)
    ring = private_ring(whole, lambda: twin(variant, whole), VARIANTS[variant])
    model = RingModel(ring)
    check_as_mlx_lm(model, whole)
    gc.collect()
    model.compose()
    assert [stage.handles for stage in ring.stages] == [0] * len(ring.stages)


def test_mlx_lm_streams_text_from_a_model_on_disk(tmp_path: Path) -> None:
    make_model(tmp_path, "llama")
    whole, tokenizer, *_ = mlx_lm.load(str(tmp_path))
    stages = [load_slice(read_folder(tmp_path), a, b, embed=a == 0, output=b == 8) for a, b in ((0, 5), (5, 8))]
    model = RingModel(Ring(stages, head=1))
    check_generation(model, whole, tokenizer)
    check_speculation(model, whole, tokenizer)


@pytest.fixture(scope="module")
def whole() -> Any:
    return build("llama")


@pytest.fixture
def ring(whole: Any) -> Noting:
    probe = ModelProbe(whole)
    return Noting([Slice(twin("llama", whole), probe, 0, 8, embed=True, output=True)], head=0)


def ids(rows: int, length: int) -> mx.array:
    return mx.array(np.random.default_rng(length).integers(4, VOCAB, (rows, length)))


def test_to_mlx_lm_the_ring_is_one_layer_with_one_cache(ring: Ring) -> None:
    model = RingModel(ring)
    (cache,) = make_prompt_cache(model)
    assert len(model.layers) == 1
    assert cache.empty()
    assert cache.state == []
    assert not hasattr(cache, "to_quantized")
    assert model(ids(1, 5), cache=[cache]).shape == (1, 5, VOCAB)
    assert (cache.offset, cache.size(), cache.empty()) == (5, 5, False)
    assert cache.nbytes == ring.own_bytes(cache.handle) > 0
    assert (cache.trim(2), cache.trim(9), cache.trim(1)) == (2, 3, 0)


def test_garbage_is_dropped_with_the_next_composition(ring: Noting) -> None:
    model = RingModel(ring)
    (cache,) = model.make_cache()
    (kept,) = model.make_cache()
    del cache
    ring.noted.clear()
    model(ids(1, 3), cache=[kept])
    assert ring.noted == [Drop(0)]
    model(ids(3, 3))
    model.compose()
    assert ring.head.handles == 1


def test_what_mlx_lm_merges_and_extends_with_stays_as_it_is(ring: Ring, whole: Any) -> None:
    model = RingModel(ring)
    rows = [model.make_cache()[0] for _ in range(2)]
    for length, row in zip((4, 7), rows, strict=True):
        model(ids(1, length), cache=[row])
    batch, other = rows[0].merge(rows), rows[0].merge(rows[:1])
    batch.extend(other)
    model(ids(3, 1), cache=[batch])
    assert batch.rows.tokens == (5, 8, 5)
    assert other.rows.tokens == (4,)
    for length, row in zip((4, 7), rows, strict=True):
        expected = whole(mx.concatenate([ids(1, length), ids(1, 2)], axis=1))[:, -2:]
        np.testing.assert_allclose(model(ids(1, 2), cache=[row]), expected, rtol=0, atol=1e-5)


def test_a_deep_copy_goes_its_own_way(ring: Noting, whole: Any) -> None:
    model = RingModel(ring)
    caches = model.make_cache()
    model(ids(1, 4), cache=caches)
    copies = deepcopy(caches)
    assert ring.noted[-1] == Copy(copies[0].handle, caches[0].handle)
    model(ids(1, 3), cache=copies)
    expected = whole(mx.concatenate([ids(1, 4), ids(1, 2)], axis=1))[:, -2:]
    np.testing.assert_allclose(model(ids(1, 2), cache=caches), expected, rtol=0, atol=1e-5)
    assert (caches[0].offset, copies[0].offset) == (6, 7)


def test_what_cannot_be_is_refused_before_any_stage_is_asked(ring: Noting) -> None:
    model = RingModel(ring)
    caches = model.make_cache()
    batch = caches[0].merge(caches)
    ring.noted.clear()
    for tokens in (mx.array([[VOCAB]]), mx.array([[-1]]), ids(2, 3)):
        with pytest.raises(UsageError):
            model(tokens, cache=caches)
    for refused in (
        lambda: batch.merge([batch]),
        lambda: batch.extend(caches[0]),
        lambda: batch.filter([]),
        lambda: batch.filter(mx.array([1])),
        lambda: batch.extract(1),
        lambda: batch.prepare(lengths=[1, 2]),
        lambda: caches[0].finalize(),
    ):
        with pytest.raises(ProtocolError):
            refused()
    assert ring.noted == []
    model(ids(1, 1), cache=[batch])
