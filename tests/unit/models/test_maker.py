"""Made models are real: mlx_lm loads them, their answers wander, and the same arguments make the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.generate import generate_step

from core.models.made.maker import main
from tests.support.made_families import MADE
from tests.support.maker import make_model
from tests.support.models import read_entry

pytestmark = pytest.mark.slow


def content(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir())}


def assert_wanders(directory: Path) -> None:
    model, tokenizer = mlx_lm.load(str(directory))[:2]
    prompt = mx.array(tokenizer.encode("Who is there?"))
    tokens = [int(token) for token, _ in generate_step(prompt, model, max_tokens=40)]
    assert len(set(tokens)) >= 20
    assert not set(tokens) & set(tokenizer.eos_token_ids)


@pytest.mark.parametrize("family", MADE)
def test_greedy_answers_wander(family: str, tmp_path: Path) -> None:
    make_model(tmp_path, family)
    assert_wanders(tmp_path)


def test_mlx_lm_generates_text(tmp_path: Path) -> None:
    make_model(tmp_path, "llama", layers=2, bits=4)
    model, tokenizer = mlx_lm.load(str(tmp_path))[:2]
    prompt: Any = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert mlx_lm.generate(model, tokenizer, prompt, max_tokens=8)


@pytest.mark.parametrize("arguments", [{}, {"bits": 4}, {"dtype": "bfloat16", "seed": 3, "files": 1}])
def test_the_same_arguments_make_the_same_bytes(arguments: dict[str, Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_model(tmp_path / name, "qwen3_moe", layers=2, **arguments)
    assert content(tmp_path / "one") == content(tmp_path / "two")
    make_model(tmp_path / "three", "qwen3_moe", layers=2, **{**arguments, "seed": 99})
    assert content(tmp_path / "one") != content(tmp_path / "three")


def test_weights_lie_in_several_files_in_the_order_of_layers(tmp_path: Path) -> None:
    make_model(tmp_path, "llama", files=4)
    assert len(list(tmp_path.glob("model-*-of-00004.safetensors"))) == 4


@pytest.mark.parametrize("family", ["llama", "llama_sliding"])
def test_the_command_line_makes_a_model_that_wanders(family: str, tmp_path: Path) -> None:
    main([str(tmp_path), "--family", family, "--layers", "4", "--kv-heads", "1", "--dtype", "float16"])
    entry = read_entry(tmp_path)
    assert (entry.model_type, entry.layers, entry.quantization) == ("llama", 4, "float16")
    assert_wanders(tmp_path)
