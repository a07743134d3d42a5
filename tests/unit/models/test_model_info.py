"""A model's bits and its context, from the many forms of config.json in the families."""

from __future__ import annotations

import pytest

from core.models.files.model_info import context_of, quantization_of
from core.models.files.safetensors import Tensor


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072),
        ({"model_max_length": 10**30}, 4096),
        ({"n_positions": 1024, "n_ctx": 1024}, 1024),
        ({"max_seq_len": 32768}, 32768),
        ({"max_context_length": 2048}, 2048),
        ({"block_size": 512}, 512),
        ({"text_config": {"max_position_embeddings": 262144}, "max_position_embeddings": 1}, 262144),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, 131072),
        (
            {"rope_parameters": {"factor": 16.0, "original_max_position_embeddings": 16384, "rope_type": "yarn"}},
            262144,
        ),
        ({"rope_scaling": {"factor": float("inf"), "original_max_position_embeddings": 8}}, 4096),
        ({}, 4096),
    ],
)
def test_the_context_is_what_the_model_was_made_for(config: dict[str, object], tokens: int) -> None:
    assert context_of(config) == tokens


def stored(**nbytes: int) -> dict[str, Tensor]:
    def tensor(name: str, size: int) -> Tensor:
        return Tensor(dtype="BF16" if "norm" in name else "U32", shape=(size,), nbytes=size)

    return {f"{name}.weight": tensor(name, size) for name, size in nbytes.items()}


FOUR = {"group_size": 64, "bits": 4}


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"quantization": FOUR}, "4-bit"),
        ({"quantization": {**FOUR, "mode": "affine"}}, "4-bit"),
        ({"quantization": {**FOUR, "mode": "mxfp4"}}, "mxfp4"),
        ({"quantization": {**FOUR, "mode": "nvfp4"}}, "nvfp4"),
        ({"quantization": {"group_size": 64, "bits": 8}}, "8-bit"),
        ({"quantization": {**FOUR, "a": {"bits": 6}, "b": {"bits": 8}}}, "4–8-bit"),
        ({"quantization": {**FOUR, "router": {"bits": 8}, "norm": False}}, "4-bit"),
        ({"quantization": {**FOUR, **{name: {"bits": 8} for name in "abc"}, "router": {"bits": 4}}}, "8-bit"),
        ({"quantization": {**FOUR, "mode": "mxfp4", "a": {"group_size": 64, "bits": 8}}}, "4–8-bit"),
        ({"text_config": {"quantization": FOUR}}, "4-bit"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "4-bit"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
                }
            },
            "4-bit",
        ),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"quantization": {"bits": "x"}}, "u32"),
        ({}, "u32"),
    ],
)
def test_the_bits_are_those_of_the_weights(config: dict[str, object], word: str) -> None:
    assert quantization_of(config, stored(a=1000, b=1000, c=1000, router=10, norm=100)) == word
