"""Facts that the proof accepts without a check, and facts that it checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec
import pytest

from core.errors import LinkLost, ModelNotFound, StageFailed
from core.link.arrays import decode_arrays, encode_arrays
from core.models.files.model_folder import read_folder
from core.worker.messages import Prove, Proved
from core.worker.pipeline import Pipeline
from core.worker.proof import (
    PART,
    POSITIONS,
    PROMPT_TOKENS,
    GoesOn,
    check_sane,
    compare,
    fixed_prompt,
    prove,
    run_whole,
)
from core.worker.reference_model import Task, Whole, run
from core.worker.stage import LoadedStage
from tests.conftest import our_children
from tests.support.made import build, twin
from tests.support.maker import make_model
from tests.support.plans import plan_of
from tests.support.rings import private_ring

pytestmark = pytest.mark.slow

NAN, INF = float("nan"), float("inf")
RING = [[0.0, 2.0, 8.0], [1.0, 8.0, -INF]]


def whole(rows: list[list[float]], *, exact: bool = True, rounding: float = 0.0) -> Whole:
    return Whole(logits=b"".join(encode_arrays([mx.array(rows)])), exact=exact, rounding=rounding)


def moved(by: float) -> list[list[float]]:
    return [[0.0, 2.0 + by, 8.0], [1.0, 8.0, -INF]]


@pytest.mark.parametrize("vocabulary", [2, 32, 512, 32_000, 104_729, 262_144])
def test_the_prompt_is_the_same_everywhere_and_inside_the_vocabulary(vocabulary: int) -> None:
    prompt = fixed_prompt(vocabulary)
    assert prompt == fixed_prompt(vocabulary)
    assert len(prompt) == PROMPT_TOKENS
    assert all(0 <= token < vocabulary for token in prompt)


@pytest.mark.parametrize("vocabulary", [512, 32_000, 262_144])
def test_the_prompt_wanders(vocabulary: int) -> None:
    assert len(set(fixed_prompt(vocabulary))) >= PROMPT_TOKENS // 2


@pytest.mark.parametrize("logits", [[0.0, NAN, 1.0], [0.0, INF, 1.0], [-INF, -INF, -INF], [3.0, 3.0, 3.0], [0.0, 0.0]])
def test_logits_that_choose_no_token_are_refused(logits: list[float]) -> None:
    with pytest.raises(StageFailed):
        check_sane(mx.array([logits]))


def test_a_family_may_rule_ids_out_by_minus_infinity() -> None:
    check_sane(mx.array([[0.5, -INF, 1.0]]))


@pytest.mark.parametrize(("by", "exact"), [(0.0, True), (5e-4, True), (0.2, False)])
def test_what_rounding_explains_is_taken_and_told(by: float, exact: bool) -> None:
    assert compare(mx.array(RING), whole(moved(by), exact=exact)) == pytest.approx(by, rel=1e-3)


@pytest.mark.parametrize(("by", "exact"), [(2e-3, True), (0.3, False), (NAN, True), (INF, False)])
def test_what_rounding_does_not_explain_is_refused(by: float, exact: bool) -> None:
    with pytest.raises(StageFailed, match="not those of the whole model"):
        compare(mx.array(RING), whole(moved(by), exact=exact))


def test_another_greedy_token_is_refused_however_near() -> None:
    ring, other = mx.array([[1.0, 1.00001]]), whole([[1.00001, 1.0]])
    with pytest.raises(StageFailed, match="not those of the whole model"):
        compare(ring, other)


@pytest.mark.parametrize(("by", "rounding"), [(2e-3, 6e-4), (1.9, 0.5), (1.9, 9.0)])
def test_what_the_whole_model_differs_from_itself_is_rounding(by: float, rounding: float) -> None:
    assert compare(mx.array(RING), whole(moved(by), rounding=rounding)) == pytest.approx(by, rel=1e-3)


@pytest.mark.parametrize(("by", "rounding"), [(2e-3, 1e-4), (2.1, 9.0), (NAN, 9.0)])
def test_more_than_that_is_not(by: float, rounding: float) -> None:
    with pytest.raises(StageFailed, match="not those of the whole model"):
        compare(mx.array(RING), whole(moved(by), rounding=rounding))


def test_a_whole_model_that_differs_from_itself_by_no_number_excuses_no_token() -> None:
    with pytest.raises(StageFailed, match="not those of the whole model"):
        compare(mx.array([[1.0, 1.00001]]), whole([[1.00001, 1.0]], rounding=NAN))


def test_a_token_that_rounding_makes_as_likely_is_taken() -> None:
    assert compare(mx.array([[1.0, 1.01]]), whole([[1.01, 1.0]], rounding=0.005)) == pytest.approx(0.01, rel=1e-3)


def test_a_ring_that_breaks_meanwhile_ends_the_whole_model() -> None:
    def idle() -> None:
        assert any("reference_model" in line for line in our_children())
        raise LinkLost("mbp is gone.")

    with pytest.raises(LinkLost):
        run_whole(Task(directory="/no/such/model", tokens=[1, 2], chunk=8, told=[3]), 0, 0, idle)
    assert not any("reference_model" in line for line in our_children())


def test_what_is_wrong_with_the_whole_model_is_told() -> None:
    with pytest.raises(ModelNotFound, match="/no/such/model"):
        run_whole(Task(directory="/no/such/model", tokens=[1, 2], chunk=8, told=[3]), 0, 0, lambda: None)


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(StageFailed):
        compare(mx.array(RING), whole([[0.0, 2.0], [1.0, 8.0]]))


# ---- the fixed prompt through a stage that owns the whole model


@pytest.fixture(scope="module")
def stage() -> LoadedStage:
    whole = build("llama")
    return private_ring(whole, lambda: twin("llama", whole), ()).head


@contextmanager
def weights(stage: LoadedStage, array: mx.array) -> Iterator[None]:
    """Replace the weights of a layer for a while."""
    model: Any = stage.layers.model
    layer = model.layers[4].mlp.up_proj
    before, layer.weight = layer.weight, array
    try:
        yield
    finally:
        layer.weight = before


def proved(stage: LoadedStage, on: GoesOn = lambda tokens, seconds: None) -> Proved:
    order = Prove(plan_gen=7, directory="/nowhere", verify=False)
    return prove(order, plan_of(1), Pipeline(stage, plan_of(1), 1.0), idle=lambda: None, on=on)


def test_a_proof_tells_of_every_part_so_a_slow_mac_is_not_taken_for_a_stuck_one(stage: LoadedStage) -> None:
    told: list[int] = []
    proved(stage, lambda tokens, _: told.append(tokens))
    assert told == [PART, PART, PROMPT_TOKENS - 1 - 2 * PART, *[0] * POSITIONS]


def test_a_proof_leaves_nothing_behind_and_can_be_given_again(stage: LoadedStage) -> None:
    for _ in range(2):
        told = proved(stage)
        assert (told.plan_gen, told.tokens, told.difference) == (7, PROMPT_TOKENS, None)
        assert stage.handles == 0


@pytest.mark.parametrize(
    ("array", "said"),
    [
        pytest.param(mx.full((64, 96), NAN), "not numbers", id="no numbers"),
        pytest.param(mx.zeros((7, 7)), "MLX could not compute", id="no matrix"),
    ],
)
def test_weights_that_compute_nothing_fail_the_proof(stage: LoadedStage, array: mx.array, said: str) -> None:
    with weights(stage, array), pytest.raises(StageFailed, match=said):
        proved(stage)
    stage.reset()
    assert proved(stage)


# ---- the whole model where it does not fit


@pytest.mark.parametrize(("family", "bits"), [("llama", None), ("deepseek_v3", 4)])
def test_the_model_in_slices_is_the_whole_model(family: str, bits: int | None, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=4, hidden=64, intermediate=64, bits=bits)
    task = Task(directory=str(tmp_path), tokens=fixed_prompt(512), chunk=8, told=[5, 77, 300])
    at_once = run(task)
    (logits,) = decode_arrays(memoryview(at_once.logits))
    assert logits.shape == (3, 512)
    for room_bytes in (0, read_folder(tmp_path).layout().total_bytes // 2):
        in_slices = run(msgspec.structs.replace(task, room_bytes=room_bytes))
        assert compare(logits, in_slices) == 0.0
        assert in_slices.rounding == at_once.rounding < 1e-4


@pytest.mark.parametrize(("family", "bits"), [("llama", None), ("qwen3_moe", 4)])
def test_sums_in_the_parts_of_ranks_count_as_rounding(family: str, bits: int | None, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=2, hidden=64, intermediate=256, heads=4, bits=bits, dtype="bfloat16")
    task = Task(directory=str(tmp_path), tokens=fixed_prompt(512), chunk=8, told=[5, 77, 300])
    alone, in_parts = run(task), run(msgspec.structs.replace(task, ranks=2))
    assert in_parts.logits == alone.logits
    assert in_parts.rounding > 0 == alone.rounding, "on a processor, chunks alone round alike"
    in_slices = run(msgspec.structs.replace(task, ranks=2, room_bytes=0))
    assert in_slices.rounding == in_parts.rounding
