"""Families with state-space layers, shared keys, several boundary arrays or odd caches: slices equal the whole.

Weights are mlx-lm's own random ones; these models never see a disk.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes

from core.models.caches import Phantom
from core.models.probe import Probe
from core.models.slots import Slice, legal_cuts

LAYERS = 8
CHUNKS = (11, 5, 1, 1, 1)

COMMON: dict[str, Any] = {
    "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 211, "rms_norm_eps": 1e-5, "layer_norm_epsilon": 1e-5, "norm_eps": 1e-5,
    "rope_theta": 1e4, "max_position_embeddings": 512, "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}

CONFIGS: dict[str, dict[str, Any]] = {
    "jamba": {
        **EXPERTS, "attn_layer_offset": 2, "attn_layer_period": 4, "expert_layer_offset": 1, "expert_layer_period": 2,
        "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2,
    },
    "bailing_moe_linear": {
        **EXPERTS, "num_shared_experts": 1, "norm_topk_prob": True, "first_k_dense_replace": 1, "layer_group_size": 4,
        "group_norm_size": 2, "topk_group": 1, "head_dim": 24,
    },
    "falcon_h1": {"head_dim": 24, "mamba_d_head": 16, "mamba_d_ssm": 96, "mamba_d_state": 16, "mamba_n_heads": 6},
    "nemotron_h": {
        "mamba_num_heads": 6, "mamba_head_dim": 16, "mamba_proj_bias": False, "ssm_state_size": 16, "conv_kernel": 4,
        "n_groups": 1, "mlp_bias": False, "use_bias": False, "use_conv_bias": True, "head_dim": 24,
        "hybrid_override_pattern": "M-M*M-M*", "time_step_limit": [0.0, 100.0],
    },
    "recurrent_gemma": {
        "num_key_value_heads": 1, "conv1d_width": 4, "logits_soft_cap": 30.0, "attention_window_size": 8,
        "block_types": ["recurrent", "recurrent", "attention"], "embeddings_scale_by_sqrt_dim": True,
    },
    "rwkv7": {
        "head_dim": 32, "a_low_rank_dim": 16, "decay_low_rank_dim": 16, "gate_low_rank_dim": 16, "v_low_rank_dim": 16,
    },
    "qwen3_next": {
        **EXPERTS, "head_dim": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "decoder_sparse_step": 1, "mlp_only_layers": [],
        "shared_expert_intermediate_size": 64, "partial_rotary_factor": 0.5, "full_attention_interval": 4,
        "norm_topk_prob": True,
    },
    "cohere2": {"head_dim": 24, "sliding_window": 8, "sliding_window_pattern": 4, "layer_norm_eps": 1e-5},
}  # fmt: skip


def build(family: str) -> nn.Module:
    """The same weights on every call."""
    mx.random.seed(5)
    config = {"model_type": family, **COMMON, **CONFIGS[family]}
    model_class, args_class = _get_classes(config)
    model: nn.Module = model_class(args_class.from_dict(config))
    model.eval()
    mx.eval([array for _, array in tree_flatten(model.parameters())])
    return model


def inputs() -> list[mx.array]:
    rng = np.random.default_rng(3)
    return [mx.array(rng.integers(0, 200, (1, n))) for n in CHUNKS]


@pytest.fixture(scope="module", params=CONFIGS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def expected(family: str) -> list[Any]:
    model: Any = build(family)
    caches = make_prompt_cache(model)
    logits = []
    for tokens in inputs():
        out = model(tokens, cache=caches)[:, -1]
        mx.eval(out, [c.state for c in caches])
        logits.append(np.array(out))
    return logits


@pytest.mark.parametrize("cuts", [(1,), (3,), (4,), (7,), (2, 3)])
def test_stages_equal_the_whole(family: str, expected: list[Any], cuts: tuple[int, ...]) -> None:
    edges = (0, *cuts, LAYERS)
    stages = []
    for start, stop in pairwise(edges):
        model = build(family)
        stages.append(Slice(model, Probe(model), start, stop, embed=start == 0, output=stop == LAYERS))
    caches = [stage.new_caches() for stage in stages]
    position = 0
    for tokens, logits in zip(inputs(), expected, strict=True):
        boundary: list[mx.array] = []
        for stage, own in zip(stages, caches, strict=True):
            boundary = stage.run(boundary, own, position) if boundary else stage.embed(tokens, own)
            mx.eval(boundary, stage.states(own))
            boundary = [mx.array(np.array(array)) for array in boundary]
        position += tokens.shape[1]
        np.testing.assert_array_equal(np.array(stages[-1].output(boundary, caches[-1], position)), logits)


def test_every_cut_is_legal(family: str) -> None:
    assert legal_cuts(Probe(build(family))) == set(range(1, LAYERS))


def test_a_stand_in_counts_the_tokens_of_an_embedding_stage() -> None:
    model = build("bailing_moe_linear")
    stage = Slice(model, Probe(model), 0, 2, embed=True, output=False)
    caches = stage.new_caches()
    phantoms = {id(c): c for c in caches if isinstance(c, Phantom)}
    assert len(phantoms) == 1
    for tokens in inputs():
        stage.embed(tokens, caches)
    assert next(iter(phantoms.values())).offset == sum(CHUNKS)
    assert len(stage.own(caches)) == 2
