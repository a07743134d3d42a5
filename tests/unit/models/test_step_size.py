"""The memory of a step besides weights and caches: the formula against MLX's own count on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

from core.engine.requests import Admit
from core.engine.ring_work import New
from core.engine.sampling import RowSampler, pick_all
from core.models.files.cache_size import CacheSize
from core.models.files.model_folder import read_folder
from core.models.files.step_size import StepSize, step_size
from core.models.slicing.loading import load_slice
from core.plan.stage_sizes import StageSizes
from core.sampling_options import Sampling
from core.settings import MIB
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter
from tests.support.maker import make_model

pytestmark = pytest.mark.slow

LAYERS, CHUNK = 3, 256
BEFORE = 256
LLAMA = {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64}
SCOUT = LLAMA | {"num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256}


def taken(directory: Path, layers: int, kv_bits: int | None) -> int:
    """Memory of a chunk after `BEFORE` tokens, besides weights and caches, by MLX's own count."""
    stage = LoadedStage(
        load_slice(read_folder(directory), 0, layers - 1, embed=True, output=False),
        StageMeter(0),
        kv_bits,
    )
    stage.compose([New(0)])
    stage.embed(0, mx.ones((1, BEFORE), mx.int32))
    held, before = mx.get_active_memory(), stage.nbytes(0)
    mx.reset_peak_memory()
    stage.embed(0, mx.ones((1, CHUNK), mx.int32))
    return mx.get_peak_memory() - held - (stage.nbytes(0) - before)


@pytest.mark.parametrize(
    ("family", "more", "kv_bits"),
    [
        pytest.param("llama", {}, None, id="llama"),
        pytest.param("llama", {"hidden": 512}, None, id="wide", marks=pytest.mark.nightly),
        pytest.param("llama", {"intermediate": 2048, "dtype": "bfloat16"}, None, id="wide-inside"),
        pytest.param("llama", {"heads": 8}, None, id="many-heads", marks=pytest.mark.nightly),
        pytest.param("llama", {"head_dim": 64}, 4, id="quantised-caches"),
        pytest.param("qwen3_moe", {}, None, id="experts"),
        pytest.param("gemma3_text", {"layers": 6}, None, id="windows"),
        pytest.param("deepseek_v3", {}, None, id="latent-keys", marks=pytest.mark.nightly),
    ],
)
def test_a_step_takes_what_the_plan_reserves_and_not_much_less(
    tmp_path: Path, family: str, more: dict[str, Any], kv_bits: int | None
) -> None:
    options = {"layers": LAYERS, "hidden": 128, "intermediate": 256} | more
    make_model(tmp_path, family, **options)
    reserved = StageSizes(read_folder(tmp_path).layout(), None, BEFORE + CHUNK, kv_bits, CHUNK).step_bytes(output=False)
    measured = taken(tmp_path, options["layers"], kv_bits)
    if measured > reserved:  # on a busy machine MLX may free an array later than it could
        measured = taken(tmp_path, options["layers"], kv_bits)
    assert measured <= reserved <= 1.6 * measured


@pytest.mark.parametrize("rows", [1, 8])
def test_choosing_tokens_takes_what_the_plan_reserves_for_as_many_positions_as_are_guessed(rows: int) -> None:
    vocabulary = 20_000
    logits = mx.random.normal((rows, vocabulary), key=mx.random.key(1))
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.1, repetition_penalty=1.1)
    samplers = [RowSampler(Admit(bytes(16), sampling, (1, 2, 3)), vocabulary) for _ in range(rows)]
    mx.eval(logits)
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    pick_all(samplers, logits)
    measured = mx.get_peak_memory() - held
    layout: Any = SimpleNamespace(step=step_size({"vocab_size": vocabulary}), caches=(CacheSize(),))
    assert measured <= StageSizes(layout, None, 1, None, chunk=1, rows=rows).step_bytes(output=True)


def test_a_kernel_that_keeps_no_scores_needs_no_room_for_them_but_with_quantised_caches() -> None:
    size = step_size(SCOUT)
    assert size.fused
    assert size.layer_bytes(512, 32_768, quantised=False) == size.layer_bytes(512, 1, quantised=False)
    assert size.layer_bytes(512, 32_768, quantised=True) > 2 * 64 * 512 * 32_768
    assert 150 * MIB < size.layer_bytes(512, 4096, quantised=False) < 300 * MIB


def test_a_config_that_says_nothing_costs_nothing() -> None:
    assert step_size({}).layer_bytes(512, 4096, quantised=False) >= 0
    assert StepSize().layer_bytes(512, 4096, quantised=True) == 0
