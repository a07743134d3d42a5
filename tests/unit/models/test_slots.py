"""Slices loaded from disk compute exactly what mlx_lm computes in one process; also the probe, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from mlx_lm.utils import _get_classes

from core.errors import IllegalCut, StageFailed, UnsupportedModel
from core.models.files.model_folder import read_folder
from core.models.slicing.loading import load_slice
from core.models.slicing.probe import ModelProbe, check_cuts, legal_cuts
from core.models.slicing.slots import Slice
from tests.support.atlas import config_of
from tests.support.maker import make_model
from tests.support.rings import Reference, Ring, check

pytestmark = pytest.mark.slow

LAYERS = 6
# 40 tokens exceed a sliding window of 8
CHUNKS = (11, 16, 13)
STEPS = 8

# a few models that load from disk in different ways; tests/unit/models/test_atlas.py has every family
VARIANTS: dict[str, dict[str, Any]] = {name: {"family": name} for name in ("llama_tied", "gemma4_text", "deepseek_v3")}
VARIANTS["qwen3_moe 4-bit"] = {"family": "qwen3_moe", "bits": 4}
VARIANTS["llama bfloat16"] = {"family": "llama", "dtype": "bfloat16"}


@pytest.fixture(scope="session", autouse=True)
def _last_act_of_mlx() -> Iterator[None]:
    yield
    mx.synchronize()
    mx.clear_streams()


@pytest.fixture(scope="module", params=VARIANTS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    make_model(directory, layers=LAYERS, **VARIANTS[request.param])
    return directory


@pytest.fixture(scope="module")
def reference(made: Path) -> Reference:
    return Reference(mlx_lm.load(str(made))[0], CHUNKS, STEPS)


def ring(directory: Path, ranges: list[tuple[int, int]], *, private: bool = False) -> Ring:
    head = 0 if private else len(ranges) - 1
    stages = [
        load_slice(read_folder(directory), a, b, embed=a == 0, output=i == head) for i, (a, b) in enumerate(ranges)
    ]
    return Ring(stages, head)


def test_the_reference_wanders(reference: Reference) -> None:
    assert len(set(reference.tokens)) >= STEPS // 2


def test_two_stages_equal_one_process(made: Path, reference: Reference) -> None:
    check(ring(made, [(0, 4), (4, LAYERS)]), reference, within=1e-5)


def test_three_uneven_stages_equal_one_process(made: Path, reference: Reference) -> None:
    check(ring(made, [(0, 1), (1, 5), (5, LAYERS)]), reference, within=1e-5)


def test_a_private_head_equals_one_process(made: Path, reference: Reference) -> None:
    check(ring(made, [(0, 2), (2, 3), (3, LAYERS)], private=True), reference, within=1e-5)


def test_one_stage_equals_one_process(made: Path, reference: Reference) -> None:
    check(ring(made, [(0, LAYERS)]), reference, within=1e-5)


def unweighted(config: dict[str, Any]) -> nn.Module:
    """A model of a config, never evaluated: enough for a probe."""
    model_class, args_class = _get_classes(config)
    model: nn.Module = model_class(args_class.from_dict(config))
    return model


COMMON: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 8, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
GEMMA4 = {**COMMON, "model_type": "gemma4_text", "sliding_window": 8, "sliding_window_pattern": 4}
GEMMA4 |= {"global_head_dim": 32, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
LOOPED = {**COMMON, "model_type": "nanbeige", "attention_bias": False, "mlp_bias": False, "num_loops": 2}


def test_layers_that_borrow_keys_stay_with_the_layers_that_made_them() -> None:
    probe = ModelProbe(unweighted({**GEMMA4, "num_kv_shared_layers": 4}))
    # layers 4 to 7 borrow from layer 2 (sliding) and layer 3 (full)
    assert legal_cuts(probe) == {1, 2}
    check_cuts(probe, 2, 8, embed=False, output=True)
    with pytest.raises(IllegalCut, match="before layer 5") as caught:
        check_cuts(probe, 5, 8, embed=False, output=True)
    assert "1, 2" in caught.value.fix


def test_what_layers_read_of_each_token_travels_with_the_hidden_state() -> None:
    probe = ModelProbe(unweighted({**GEMMA4, "hidden_size_per_layer_input": 16, "vocab_size_per_layer_input": 300}))
    assert probe.reveals_tokens
    assert legal_cuts(probe) == set(range(1, 8))
    # the hidden state, and 16 numbers for each layer after the cut
    assert [b.bytes_per_token for b in probe.boundaries] == [4 * (96 + 16 * n) for n in range(7, -1, -1)]
    assert not any("per_layer" in path for path in probe.shared | probe.output)


GEMMA3N = {
    **COMMON, "model_type": "gemma3n_text", "num_kv_shared_layers": 2, "vocab_size_per_layer_input": 300,
    "sliding_window": 8, "rope_local_base_freq": 1e4, "final_logit_softcapping": 30.0,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 2,
    "activation_sparsity_pattern": [0.0] * 8, "hidden_size_per_layer_input": 16, "altup_num_inputs": 4,
    "altup_coef_clip": 120.0, "altup_correct_scale": True, "altup_active_idx": 0, "laurel_rank": 16,
}  # fmt: skip
AFM7 = {"model_type": "afm7", "hidden_dim": 96, "num_heads": 4, "num_kv_heads": 2, "vocab_size": 300}
AFM7 |= {"num_layers": 8, "num_kv_reuse_layers": 3}


def test_a_hidden_state_in_several_copies_crosses_with_all_of_them() -> None:
    probe = ModelProbe(unweighted({"model_type": "gemma3n", "text_config": GEMMA3N}))
    assert probe.reveals_tokens
    # layers 6 and 7 borrow the keys of layers 5 and 3
    assert legal_cuts(probe) == {1, 2, 3}
    assert probe.boundaries[1].bytes_per_token == 4 * (4 * 96 + 16 * 6)


def test_layers_that_read_another_layers_cache_stay_with_it() -> None:
    probe = ModelProbe(unweighted(AFM7))
    assert probe.reads_caches
    assert legal_cuts(probe) == {1, 2, 3, 4}


def test_layers_that_share_a_dict_stay_together() -> None:
    probe = ModelProbe(unweighted(config_of("deepseek_v41")))
    assert legal_cuts(probe) == {1, 2, 4, 6}


def test_an_object_that_gathers_blocks_crosses_the_cut() -> None:
    probe = ModelProbe(unweighted(config_of("kimi_k3")))
    assert legal_cuts(probe) == set(range(1, 8))
    assert probe.boundaries[0].bytes_per_token < probe.boundaries[6].bytes_per_token


def test_layers_that_run_twice_stay_in_one_process() -> None:
    probe = ModelProbe(unweighted(LOOPED))
    assert legal_cuts(probe) == frozenset()
    with pytest.raises(UnsupportedModel, match="more than once"):
        check_cuts(probe, 0, 4, embed=True, output=False)


def test_a_second_array_crosses_the_cut_where_the_next_layer_reads_it() -> None:
    ranks = dict.fromkeys(("a_low_rank_dim", "decay_low_rank_dim", "gate_low_rank_dim", "v_low_rank_dim"), 16)
    probe = ModelProbe(unweighted({**COMMON, "model_type": "rwkv7", "norm_eps": 1e-5, **ranks}))
    assert legal_cuts(probe) == set(range(1, 8))
    assert probe.boundaries[3].bytes_per_token == 2 * 96 * 4


def test_the_probe_leaves_the_model_as_it_was() -> None:
    model = unweighted({**COMMON, "model_type": "llama"})
    classes = [type(m) for m in model.modules()]
    probe = ModelProbe(model)
    assert [type(m) for m in model.modules()] == classes
    assert probe.embed == {"model.embed_tokens.weight"}
    assert probe.output == {"model.norm.weight", "lm_head.weight"}
    assert probe.shared == set()


def small_slice(start: int, stop: int) -> Slice:
    model = unweighted({**COMMON, "model_type": "llama"})
    return Slice(model, ModelProbe(model), start, stop, embed=start == 0, output=stop == 8)


def test_a_stage_refuses_a_boundary_of_another_shape() -> None:
    stage = small_slice(4, 8)
    caches = stage.caches.new()
    for hostile in ([], [mx.zeros((1, 3, 95))], [mx.zeros((1, 96))], [mx.zeros((1, 3, 96))] * 2):
        with pytest.raises(StageFailed, match="previous stage"):
            stage.run(hostile, caches, 0)
    with pytest.raises(StageFailed, match="previous stage"):
        stage.run([mx.zeros((1, 3, 96), mx.float16)], caches, 0)


def test_a_stage_does_only_what_it_owns() -> None:
    first, last = small_slice(0, 4), small_slice(4, 8)
    with pytest.raises(StageFailed):
        last.embed(mx.array([[1]]), last.caches.new(), 0)
    with pytest.raises(StageFailed):
        first.run([mx.zeros((1, 1, 96))], first.caches.new(), 0)
    with pytest.raises(StageFailed):
        first.output([mx.zeros((1, 1, 96))], first.caches.new(), 0)
    with pytest.raises(StageFailed):
        first.whole(mx.array([[1]]), first.caches.new())
    with pytest.raises(IllegalCut):
        small_slice(4, 9)
