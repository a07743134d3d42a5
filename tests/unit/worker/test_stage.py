"""A chain of stages does with handles what mlx-lm does with its caches, and refuses impossible requests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any
from unittest.mock import Mock, patch

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from core.engine.ring_work import Copy, Drop, Extend, Extract, Finalise, Keep, Merge, New, Op, PrepareRows, Trim
from core.errors import ProtocolError, StageFailed
from core.link.arrays import Arrived
from core.models.made.maker import random_model
from core.models.metal import GpuFault
from core.models.slicing.caches import KV_GROUP
from core.models.slicing.probe import ModelProbe
from core.models.slicing.quirks import order_windows
from core.models.slicing.slots import Slice
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.atlas import VOCAB, config_of
from tests.support.compositions import Handles
from tests.support.made import build, twin
from tests.support.rings import Reference, Ring, private_ring, wire

pytestmark = pytest.mark.slow

VARIANTS = ("llama", "gemma3_text", "qwen3_next", "deepseek_v3", "bailing_moe_linear")
CUTS = {"two": (3,), "three": (1, 6)}
PLAYS = 40


def ring_of(variant: str, whole: Any, cuts: tuple[int, ...]) -> Ring:
    return private_ring(whole, lambda: twin(variant, whole), cuts)


class Alike(Handles):
    """Runs every composition and forward over a ring, and over the whole model with mlx-lm's caches."""

    def __init__(self, ring: Ring, whole: Any) -> None:
        super().__init__(ring.trim_limit, lambda: make_prompt_cache(whole))
        self._ring, self._whole = ring, whole
        self._rng = np.random.default_rng(3)

    def do(self, op: Op) -> None:
        super().do(op)
        self._ring.compose([op])

    def forward(self, handle: int, length: int) -> None:
        tokens = mx.array(self._rng.integers(4, 200, (len(self.rows[handle].tokens), length)))
        if length > 1:
            order_windows(self.caches[handle])
        expected = self._whole(tokens, cache=self.caches[handle])
        mx.eval(expected, [cache.state for cache in self.caches[handle]])
        found = self._ring.forward(handle, tokens)
        np.testing.assert_allclose(np.array(found), np.array(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("cuts", ["three", pytest.param("two", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_operation_is_mlx_lms(variant: str, cuts: str) -> None:
    whole = build(variant)
    ring = ring_of(variant, whole, CUTS[cuts])
    done: set[type[Op]] = set()
    for seed in range(2):
        alike = Alike(ring, whole)
        rng = Random(seed)
        for _ in range(PLAYS):
            alike.play(rng)
        done |= alike.done
        for stage in ring.stages:
            assert stage.handles == len(alike.rows)
            for handle, rows in alike.rows.items():
                assert stage.position(handle) == rows.position
            stage.reset()
            assert stage.handles == 0
    wanted = {New, Merge, Extend, Keep, Copy, Extract, Trim, PrepareRows, Finalise, Drop}
    assert done == wanted - ({Trim} if ring.trim_limit == 0 else set())


def test_one_row_is_computed_bit_for_bit() -> None:
    whole = build("llama")
    reference = Reference(whole, (11, 40), 16)
    assert len(set(reference.tokens)) > 8
    for ring in (ring_of("llama", whole, (1, 6)), ring_of("llama", whole, ())):
        row = ring.begin()
        for inputs, expected in zip(reference.inputs, reference.logits, strict=False):
            np.testing.assert_array_equal(ring.step(row, inputs), expected)


@pytest.mark.parametrize("variant", ["gemma3_text", "qwen3_next"])
def test_rows_that_share_a_batch_get_what_each_gets_alone(variant: str) -> None:
    """The batch has short rows and full windows, which get one token and later several."""
    whole = build(variant)
    ring = ring_of(variant, whole, (3,))
    rng = np.random.default_rng(5)
    read = [rng.integers(4, 200, length).tolist() for length in (1, 16, 3, 10)]
    rows = [ring.begin() for _ in read]
    for row, tokens in zip(rows, read, strict=True):
        ring.step(row, [tokens])
    batch = ring.merge(rows)
    for size in (1, 2, 1, 1, 3):
        more = rng.integers(4, 200, (len(read), size)).tolist()
        read = [tokens + new for tokens, new in zip(read, more, strict=True)]
        alone = [np.array(whole(mx.array([tokens]))[0, -1]) for tokens in read]
        np.testing.assert_allclose(ring.step(batch, more), alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("variant", ["llama", pytest.param("deepseek_v3", marks=pytest.mark.nightly)])
def test_a_copy_without_most_of_its_tokens_takes_no_memory_for_them(variant: str) -> None:
    whole = build(variant)
    ring = ring_of(variant, whole, (3,))
    tokens = np.random.default_rng(2).integers(4, 200, (1, 520)).tolist()
    row, copy = ring.begin(), 10
    ring.step(row, tokens)
    ring.compose([Copy(copy, row), Trim(copy, 420)])
    expected = whole(mx.array([[*tokens[0][:100], 7, 8]]))[:, -1]
    ring.step(copy, [[7]])
    np.testing.assert_allclose(ring.step(copy, [[8]]), np.array(expected), rtol=0, atol=1e-4)
    assert [2 * stage.nbytes(copy) < stage.nbytes(row) for stage in ring.stages] == [True, True]
    assert ring.head.position(row) == 520


@pytest.mark.parametrize("cuts", [pytest.param((), id="whole"), pytest.param((3,), id="two")])
def test_logits_of_every_position(cuts: tuple[int, ...]) -> None:
    whole = build("deepseek_v3")
    ring = ring_of("deepseek_v3", whole, cuts)
    tokens = Reference(whole, (9,), 0).inputs[0]
    found = ring.forward(ring.begin(), mx.array(tokens))
    np.testing.assert_allclose(np.array(found), np.array(whole(mx.array(tokens))), rtol=0, atol=1e-5)
    assert found.shape == (1, 9, VOCAB)
    assert ring.step(ring.begin(), tokens).shape == (1, VOCAB)


def test_caches_in_few_bits_are_mlx_lms_and_hold_one_row_each() -> None:
    config = {**config_of("qwen3"), "hidden_size": 128, "num_key_value_heads": 1, "head_dim": KV_GROUP}
    whole = random_model(config, 3, mx.float32)
    ring = private_ring(whole, lambda: random_model(config, 3, mx.float32), (3,), kv_bits=8)
    caches = make_prompt_cache(whole)
    row, copy = ring.begin(), 10
    for length in (11, 20, *[1] * 8):
        inputs = np.random.default_rng(length).integers(4, 200, (1, length)).tolist()
        expected = whole(mx.array(inputs), cache=caches)[:, -1]
        maybe_quantize_kv_cache(caches, 0, KV_GROUP, 8)
        np.testing.assert_allclose(ring.step(row, inputs), np.array(expected), rtol=0, atol=1e-5)
    ring.compose([Copy(copy, row), Trim(copy, 3)])
    # keys and values of 256 positions on three layers, at four bytes each
    assert ring.own_bytes(copy) < 3 * 2 * 256 * KV_GROUP * 4 / 3
    ring.step(copy, [[5, 6, 7]])
    with pytest.raises(StageFailed, match="few bits"):
        ring.merge([row])


@pytest.fixture(scope="module")
def last() -> LoadedStage:
    """Layers 3 to 7, which take a boundary."""
    whole = build("llama")
    return LoadedStage(Slice(whole, ModelProbe(whole), 3, 8, embed=False, output=True), StageMeter(1))


@pytest.fixture
def stage(last: LoadedStage) -> LoadedStage:
    """A stage: handle 1 is a row of 5 tokens, 2 a batch of two rows, 3 an empty row."""
    last.reset()
    last.compose([New(1), New(3), New(4), New(5)])
    last.run(1, boundary(1, 5), 0)
    last.run(4, boundary(1, 3), 0)
    last.compose([Merge(2, (4, 5))])
    return last


def boundary(rows: int, length: int, width: int = 96) -> list[mx.array]:
    return [mx.ones((rows, length, width))]


@pytest.mark.parametrize(
    "ops",
    [
        pytest.param([Copy(9, 8)], id="unknown handle"),
        pytest.param([New(1)], id="new where there is one"),
        pytest.param([Copy(2, 1)], id="copy over another"),
        pytest.param([Copy(1, 1)], id="copy over itself"),
        pytest.param([Extract(2, 2, 0)], id="extract over the batch"),
        pytest.param([Merge(2, (1, 3))], id="merge over another"),
        pytest.param([Merge(9, (1, 1))], id="merge a row with itself"),
        pytest.param([Merge(9, (1, 2))], id="merge a batch"),
        pytest.param([Merge(9, ())], id="merge nothing"),
        pytest.param([Extend(2, 2)], id="extend with itself"),
        pytest.param([Extend(2, 1)], id="extend with a plain row"),
        pytest.param([Keep(2, ())], id="keep nothing"),
        pytest.param([Keep(2, (2,))], id="keep a row that is not there"),
        pytest.param([Extract(9, 2, 2)], id="extract a row that is not there"),
        pytest.param([Trim(1, 6)], id="trim too much"),
        pytest.param([PrepareRows(2, lengths=(1, 2, 3))], id="prepare other rows"),
        pytest.param([Finalise(1)], id="finalise a plain row"),
    ],
)
def test_what_no_honest_head_composes_changes_nothing(stage: LoadedStage, ops: list[Op]) -> None:
    with pytest.raises(ProtocolError):
        stage.compose(ops)
    assert stage.handles == 3
    assert [stage.position(handle) for handle in (1, 2, 3)] == [5, 3, 0]
    stage.run(1, boundary(1, 1), 5)
    stage.run(2, boundary(2, 1), 3)


def test_a_step_must_fit_its_handle(stage: LoadedStage) -> None:
    for refused in (
        lambda: stage.run(8, boundary(1, 1), 0),
        lambda: stage.run(1, boundary(1, 1), 4),
        lambda: stage.run(1, boundary(1, 1), 6),
        lambda: stage.run(1, boundary(2, 1), 5),
        lambda: stage.run(2, boundary(1, 2), 3),
        lambda: stage.run(1, boundary(1, 1, 95), 5),
        lambda: stage.run(1, boundary(1, 0), 5),
        lambda: stage.run(1, [], 5),
        lambda: stage.run(1, [mx.ones(96)], 5),
        lambda: stage.output(1, boundary(2, 1)),
        lambda: stage.output(1, []),
        lambda: stage.position(8),
        lambda: stage.nbytes(8),
    ):
        with pytest.raises(ProtocolError):
            refused()
    with pytest.raises(StageFailed, match="previous stage"):
        stage.run(1, [mx.ones((1, 1, 48)), mx.ones((1, 1, 48))], 5)
    assert stage.run(1, boundary(1, 1), 5)[0].shape == (1, 1, 96)
    assert stage.position(1) == 6


def test_merged_rows_may_take_the_name_of_one(stage: LoadedStage) -> None:
    stage.compose([Merge(1, (1, 3)), Drop(8)])
    stage.run(1, boundary(2, 1), 5)
    assert stage.handles == 2
    assert stage.position(1) == 6


def test_what_fails_is_forgotten_and_the_rest_stays() -> None:
    whole = build("llama4")
    stage = LoadedStage(Slice(whole, ModelProbe(whole), 0, 8, embed=True, output=True), StageMeter(0))
    stage.compose([New(1), New(2), New(3), New(4)])
    for handle in (1, 2, 3, 4):
        stage.whole(handle, mx.array([[5, 6, 7]]))
    with pytest.raises(StageFailed, match="merge"):
        stage.compose([Trim(4, 1), Merge(9, (1, 2)), Drop(3)])
    assert stage.handles == 0
    stage.compose([New(5), Drop(4)])
    assert stage.handles == 1


@pytest.mark.parametrize("variant", ["qwen3_next", "gemma3_text"])
def test_caches_are_trimmed_only_as_long_as_mlx_lm_can(variant: str) -> None:
    whole = build(variant)
    probe = ModelProbe(whole)
    # neither state nor window is among the layers of the last stage
    stage = LoadedStage(Slice(whole, probe, 7, 8, embed=False, output=True), StageMeter(1))
    assert all(cache.is_trimmable() for cache in stage.layers.caches.own(stage.layers.caches.new()))
    stage.compose([New(1)])
    stage.run(1, boundary(1, 4), 0)
    if variant == "gemma3_text":
        stage.compose([Trim(1, 1)])
        stage.run(1, boundary(1, 6), 3)
    with pytest.raises(StageFailed, match="taken off"):
        stage.compose([Trim(1, 1)])


def test_copies_share_memory_until_one_of_them_is_written(stage: LoadedStage) -> None:
    before = mx.get_active_memory()
    stage.compose([Copy(100 + number, 1) for number in range(50)])
    assert mx.get_active_memory() - before < stage.nbytes(1)
    stage.run(100, boundary(1, 1), 5)
    assert stage.position(1) == 5
    (mine,), (copied,) = (stage.run(handle, boundary(1, 2), 5) for handle in (1, 101))
    np.testing.assert_array_equal(np.array(mine), np.array(copied))


@pytest.mark.parametrize("variant", [*VARIANTS, "gpt2"])
def test_what_was_built_before_is_what_is_computed(variant: str) -> None:
    """For one row and for a batch; nothing is built again once the step is here."""
    whole = build(variant)
    ring, alone = (private_ring(whole, lambda: twin(variant, whole), (3,)) for _ in range(2))

    def refuse(*_: object) -> None:
        raise RuntimeError("It was to be built before.")

    for seat in (ring, alone):
        first, second = seat.begin(), seat.begin()
        seat.step(first, [[5, 6, 7]]), seat.step(second, [[9, 8]])
        rows = seat.merge([first, second]) if variant != "bailing_moe_linear" else first
        seat.step(rows, [[11]] if rows == first else [[11], [12]])
    for stage in ring.stages:
        stage.layers.run = stage.layers.embed = refuse  # type: ignore[method-assign, assignment]
    tokens = [[21]] if rows == first else [[21], [22]]
    assert np.array_equal(ring.step(rows, tokens), alone.step(rows, tokens))


def test_what_comes_next_is_built_for_all_that_came_meanwhile() -> None:
    """Two lanes, one right after the other, leave no stage idle between them."""
    whole = build("llama")
    ring, alone = (private_ring(whole, lambda: twin("llama", whole), (3,)) for _ in range(2))
    head, last = ring.stages
    lanes, others = ([seat.begin(), seat.begin()] for seat in (ring, alone))
    for lane, other in zip(lanes, others, strict=True):
        for tokens in ([[5, 6, 7]], [[11]]):
            ring.step(lane, tokens), alone.step(other, tokens)

    def step(lane: int) -> Sequence[Arrived]:
        position = head.position(lane)
        return wire(last.run(lane, wire(head.embed(lane, mx.array([[21]]))), position))

    before = [step(lane) for lane in lanes]
    for stage in ring.stages:
        stage.prepare()
    with (
        patch.object(last.layers, "run", side_effect=RuntimeError),
        patch.object(head.layers, "embed", last.layers.run),
    ):
        after = [step(lane) for lane in lanes]
    for boundaries in (before, after):
        for lane, other, boundary in zip(lanes, others, boundaries, strict=True):
            logits = head.output(lane, boundary)
            assert np.array_equal(np.array(logits.astype(mx.float32)), alone.step(other, [[21]]))


@pytest.mark.parametrize("variant", ["llama", "gemma3_text", "qwen3_moe"])
def test_the_output_too_is_built_before_what_it_is_of_comes(variant: str) -> None:
    whole = build(variant)
    ring, alone = (private_ring(whole, lambda: twin(variant, whole), (3,)) for _ in range(2))
    row, other = ring.begin(), alone.begin()
    for tokens in ([[5, 6, 7]], [[11]], [[12]]):
        ring.step(row, tokens), alone.step(other, tokens)
    head, last = ring.stages
    position = head.position(row)
    boundary = last.run(row, wire(head.embed(row, mx.array([[21]]))), position)
    head.prepare()
    head.layers.output = Mock(side_effect=RuntimeError("It was to be built before."))  # type: ignore[method-assign]
    said = head.output(row, wire(boundary)).astype(mx.float32)
    assert np.array_equal(np.array(said), alone.step(other, [[21]]))


def test_output_and_next_step_are_one_graph_where_the_tokens_between_them_are_foreseen() -> None:
    whole = build("llama")
    ring, alone = (private_ring(whole, lambda: twin("llama", whole), (3,)) for _ in range(2))
    row, other = ring.begin(), alone.begin()
    for tokens in ([[5, 6, 7]], [[11]], [[12]]):
        ring.step(row, tokens), alone.step(other, tokens)
    head, last = ring.stages
    given: list[mx.array] = []

    def foresee(handle: int, logits: mx.array) -> mx.array | None:
        assert handle == row
        given.append(mx.argmax(logits, axis=-1).astype(mx.int32)[:, None])
        return given[-1]

    def returned(boundary: list[mx.array]) -> mx.array:
        return head.output(row, wire(last.run(row, wire(boundary), position)))

    position = head.position(row)
    out = head.embed(row, mx.array([[21]]))
    head.prepare(foresee)
    refuse = Mock(side_effect=RuntimeError("It was to be built before."))
    with patch.object(head.layers, "output", refuse), patch.object(head.layers, "embed", refuse):
        logits = returned(out)
        out, position = head.embed(row, given[0]), position + 1  # before the values are read
    expected = alone.step(other, [[21]])
    assert np.array_equal(np.array(logits.astype(mx.float32)), expected)
    token = int(expected.argmax())
    assert given[0].tolist() == [[token]]
    head.prepare(foresee)
    boundary = wire(last.run(row, wire(out), position))
    logits = head.output(row, boundary)
    out, position = head.embed(row, mx.array([[33]])), position + 1  # another token than was foreseen
    assert np.array_equal(np.array(logits.astype(mx.float32)), alone.step(other, [[token]]))
    assert np.array_equal(np.array(returned(out).astype(mx.float32)), alone.step(other, [[33]]))


def test_a_gpu_that_gives_up_while_a_graph_is_built_ahead_is_told() -> None:
    """Any other failure there is reported when the step is here."""
    whole = build("llama")
    ring = private_ring(whole, lambda: twin("llama", whole), (3,))
    stage, row = ring.stages[1], ring.begin()

    boundary = [mx.zeros((1, 1, whole.args.hidden_size))]

    def prepare(error: str) -> None:
        stage.layers.build_next = Mock(side_effect=RuntimeError(error))  # type: ignore[method-assign]
        stage.run(row, boundary, stage.position(row))
        stage.prepare()

    prepare("another one")
    with pytest.raises(GpuFault):
        prepare("[METAL] Command buffer execution failed: Hang. (00000003:kIOGPUCommandBufferCallbackErrorHang)")
