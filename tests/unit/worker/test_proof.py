"""Facts that the proof accepts without a check, and facts that it checks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec
import pytest
from msgspec.structs import replace

from core.errors import ModelNotFound, StageFailed
from core.events import Plan
from core.link.arrays import decode_arrays, encode_arrays
from core.models.files.block_map import BlockMap, FileFacts
from core.models.files.model_folder import ModelFolder, read_folder
from core.models.slicing.loading import load_slice
from core.worker import reference_model
from core.worker.messages import Load, Proved
from core.worker.pipeline import Pipeline
from core.worker.proof import GoesOn, check_sane, compare, prove
from core.worker.reference_model import (
    FORMAT,
    PART,
    POSITIONS,
    PROMPT_TOKENS,
    Reference,
    WholeLogits,
    fixed_prompt,
    make_reference,
    reference_for,
)
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.made import build, twin
from tests.support.maker import make_model
from tests.support.plans import as_ranks, plan_of
from tests.support.rings import private_ring

pytestmark = pytest.mark.slow

NAN, INF = float("nan"), float("inf")
DTYPES = ("float32", "float16", "bfloat16")
UNCOMPARED = Reference(why="no one knows it")
RING = [[0.0, 2.0, 8.0], [1.0, 8.0, -INF]]


def whole(rows: list[list[float]], *, exact: bool = True, rounding: float = 0.0) -> WholeLogits:
    return WholeLogits(logits=b"".join(encode_arrays([mx.array(rows)])), exact=exact, rounding=rounding)


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


def proved(stage: LoadedStage, reference: Reference = UNCOMPARED, on: GoesOn = lambda tokens, seconds: None) -> Proved:
    return prove(plan_of(1), Pipeline(stage, plan_of(1), 1.0), reference, on)


def test_a_proof_tells_of_every_part_so_a_slow_mac_is_not_taken_for_a_stuck_one(stage: LoadedStage) -> None:
    told: list[int] = []
    proved(stage, on=lambda tokens, _: told.append(tokens))
    assert told == [PART, PART, PROMPT_TOKENS - POSITIONS - 2 * PART, *[0] * POSITIONS]


def test_a_proof_leaves_nothing_behind_and_can_be_given_again(stage: LoadedStage) -> None:
    for _ in range(2):
        told = proved(stage)
        assert (told.plan_gen, told.tokens, told.difference, told.why) == (100, PROMPT_TOKENS, None, UNCOMPARED.why)
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


# ---- the whole model's logits


def order(folder: Path, home: Path, plan: Plan, *, verify: bool = False) -> Load:
    return Load(plan=plan, index=0, directory=str(folder), references=str(home), verify=verify)


def unseen(done: int, total: int) -> None:
    pass


def with_room(plan: Plan, nbytes: int) -> Plan:
    head, *others = plan.stages
    return replace(plan, stages=(replace(head, budget_bytes=nbytes), *others))


def looked_up(load: Load) -> Reference:
    return reference_for(load, read_folder(Path(load.directory)), {}, unseen)


def logits_of(reference: Reference) -> mx.array:
    assert reference.whole
    (logits,) = decode_arrays(memoryview(reference.whole.logits))
    return logits


def test_logits_of_a_whole_model_outlive_its_room_and_no_other_model_gets_them(tmp_path: Path) -> None:
    """Two models that differ in weights alone have one fingerprint."""
    model, other, home = tmp_path / "model", tmp_path / "other", tmp_path / "home" / "logits"
    for folder, seed in ((model, 0), (other, 1)):
        make_model(folder, "llama", layers=2, hidden=64, intermediate=64, seed=seed)
    assert read_folder(model).fingerprint == read_folder(other).fingerprint
    roomy, tight = with_room(plan_of(2), 10**9), with_room(plan_of(2), 1000)
    assert looked_up(order(model, home, tight)).why == "the whole model has never had room on mac0"
    made = looked_up(order(model, home, roomy))
    kept = looked_up(order(model, home, tight))
    assert kept.whole == made.whole
    assert looked_up(order(other, home, tight)).whole is None
    others = looked_up(order(other, home, roomy)).whole
    assert others
    assert looked_up(order(other, home, tight)).whole == others
    with pytest.raises(StageFailed):
        compare(logits_of(made), others)
    kept.forget()
    assert looked_up(order(model, home, tight)).whole, "they could not be made again"
    made.forget()
    assert looked_up(order(model, home, tight)).whole is None


def test_damaged_logits_are_made_again_and_newer_ones_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model(tmp_path / "model", "llama", layers=2, hidden=64, intermediate=64)
    load = order(tmp_path / "model", tmp_path / "logits", with_room(plan_of(2), 10**9))
    made = looked_up(load)
    assert made.file
    assert made.whole
    written = made.file.read_bytes()
    for damaged in (b"", b"?", written[:-1]):
        made.file.write_bytes(damaged)
        assert looked_up(load) == made
        assert made.file.read_bytes() == written
    wrong = replace(made.whole, rounding=9.0)
    made.file.write_bytes(msgspec.msgpack.encode(wrong))
    assert looked_up(load).whole == wrong
    monkeypatch.setattr(reference_model, "FORMAT", FORMAT - 1)
    assert looked_up(load).file != made.file
    assert made.file.read_bytes() == msgspec.msgpack.encode(wrong)
    monkeypatch.undo()
    assert looked_up(replace(load, verify=True)) == made


def test_a_ring_that_computes_otherwise_is_refused_and_its_logits_are_made_again(tmp_path: Path) -> None:
    make_model(tmp_path / "model", "llama", layers=2, hidden=64, intermediate=64)
    folder, held = read_folder(tmp_path / "model"), dict[str, mx.array]()
    load = order(tmp_path / "model", tmp_path / "logits", with_room(plan_of(1), 10**9))
    reference = reference_for(load, folder, held, unseen)
    layers = load_slice(folder, 0, 2, embed=True, output=True, held=held)
    assert not held, "what the stage does not need is free"
    stage = LoadedStage(layers, StageMeter(0))
    assert proved(stage, reference).difference == 0.0
    layers.model.layers[1].mlp.up_proj.weight *= 1.5
    with pytest.raises(StageFailed, match="not those of the whole model"):
        proved(stage, reference)
    assert reference.file
    assert not reference.file.exists()
    with pytest.raises(StageFailed, match="--parallelism pp"):
        prove(as_ranks(plan_of(1)), Pipeline(stage, plan_of(1), 1.0), reference, lambda tokens, seconds: None)


def test_files_that_are_not_all_here_are_told_unless_a_comparison_was_asked_for(tmp_path: Path) -> None:
    make_model(tmp_path / "model", "llama", layers=2, hidden=64, intermediate=64)
    load, whole = order(tmp_path / "model", tmp_path, with_room(plan_of(2), 10**9)), read_folder(tmp_path / "model")
    facts = {file: FileFacts(size=(tmp_path / "model" / file).stat().st_size, sha256="") for file in whole.headers}
    part = whole._replace(there=BlockMap(facts, {}))
    assert reference_for(load, part, {}, unseen).why == "mac0 has only a part of the model's files"
    with pytest.raises(ModelNotFound):
        reference_for(replace(load, verify=True), part, {}, unseen)


@pytest.mark.parametrize(("family", "bits"), [("llama", None), ("deepseek_v3", 4)])
def test_the_model_in_slices_is_the_whole_model(family: str, bits: int | None, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=4, hidden=128, intermediate=128, heads=4, head_dim=32, bits=bits)
    folder, ranks = read_folder(tmp_path), as_ranks(plan_of(2))
    at_once = whole_of(folder, with_room(ranks, 10**9))
    assert logits_of(Reference(at_once)).shape == (POSITIONS, 512)
    for room_bytes in (0, folder.layout().total_bytes // 2):
        in_slices = whole_of(folder, with_room(ranks, room_bytes))
        assert compare(logits_of(Reference(at_once)), in_slices) == 0.0
        assert in_slices.rounding == at_once.rounding < 1e-4


@pytest.mark.parametrize(("family", "bits"), [("llama", None), ("qwen3_moe", 4)])
def test_sums_in_the_parts_of_ranks_count_as_rounding(family: str, bits: int | None, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=2, hidden=64, intermediate=256, heads=4, bits=bits)
    folder, ranks = read_folder(tmp_path), as_ranks(plan_of(2))
    alone, in_parts = (whole_of(folder, with_room(plan, 10**9)) for plan in (plan_of(2), ranks))
    assert in_parts.logits == alone.logits
    assert in_parts.rounding > 0 == alone.rounding, "on a processor, chunks alone round alike"
    in_slices = whole_of(folder, with_room(ranks, 0))
    assert in_slices.rounding == in_parts.rounding


def test_half_precision_is_measured_by_rounding_otherwise(tmp_path: Path) -> None:
    for dtype in DTYPES:
        make_model(tmp_path / dtype, "llama", layers=2, hidden=64, intermediate=64, dtype=dtype)
    exact, finer, coarse = (whole_of(read_folder(tmp_path / dtype), with_room(plan_of(2), 10**9)) for dtype in DTYPES)
    assert (exact.exact, finer.exact, coarse.exact) == (True, False, False)
    assert exact.rounding < 1e-5 < finer.rounding < coarse.rounding


def whole_of(folder: ModelFolder, plan: Plan) -> WholeLogits:
    return make_reference(folder, plan, {}, unseen)
