"""mlx-lm's own functions give the same over a ring of real workers as over the whole model in one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

import macluster
from core.events import Topology
from core.settings import MAX_ROWS
from macluster import RingModel, local_ring
from tests.support.atlas import config_of
from tests.support.checkpoints import write_weights
from tests.support.cluster import Make
from tests.support.made import build
from tests.support.rings import check_as_mlx_lm

pytestmark = pytest.mark.slow

RINGS = [
    pytest.param("llama", (2,), "private", id="llama-two", marks=pytest.mark.nightly),
    pytest.param("llama", (1, 3), "forward", id="llama-three-forward"),
    pytest.param("llama", (1, 3), "reverse", id="llama-three-reverse", marks=pytest.mark.nightly),
    pytest.param("gemma3_text", (1, 3), "private", id="windows-three", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("family", "cuts", "topology"), RINGS)
def test_mlx_lm_runs_over_workers(made: Make, family: str, cuts: tuple[int, ...], topology: Topology) -> None:
    model_dir = made(family, layers=4)
    loaded: Any = mlx_lm.load(str(model_dir))
    whole, tokenizer = loaded[:2]
    with local_ring(model_dir, cuts, topology) as stages:
        check_as_mlx_lm(RingModel(stages), whole, tokenizer)


def test_more_tokens_than_a_frame_carries_go_round_in_parts(made: Make) -> None:
    model_dir = made("llama", layers=3, hidden=32, intermediate=32, head_dim=8, vocab=260)
    whole: Any = mlx_lm.load(str(model_dir))[0]
    tokens = mx.random.randint(4, 260, (64, MAX_ROWS // 64 + 9), key=mx.random.key(1))
    with local_ring(model_dir, (1, 2)) as stages:
        np.testing.assert_allclose(np.array(RingModel(stages)(tokens)), np.array(whole(tokens)), rtol=0, atol=1e-4)


@pytest.mark.nightly
def test_mlx_lm_runs_over_workers_that_keep_states(tmp_path: Path) -> None:
    """Layers with states, which can't be trimmed, between layers with keys."""
    write(tmp_path, "qwen3_next")
    loaded: Any = load_model(tmp_path)
    with local_ring(tmp_path, (3,)) as stages:
        check_as_mlx_lm(RingModel(stages), loaded[0])


def test_the_example_in_the_docstring_runs_as_written(tmp_path: Path) -> None:
    assert macluster.__doc__
    example = "\n".join(line[4:] for line in macluster.__doc__.splitlines() if line.startswith("    "))
    ran = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert "contiguous" in ran.stdout


def write(directory: Path, variant: str) -> None:
    """Write a variant of the atlas as a model on disk, without a tokenizer."""
    (directory / "config.json").write_text(json.dumps(config_of(variant)))
    write_weights(directory, dict(tree_flatten(build(variant).parameters())))
