"""A slice costs a process only its own bytes: no more is read from the files, and no more memory is used."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.models.files.model_folder import read_folder
from core.models.slicing.loading import slice_parts
from core.settings import MIB
from tests.processes.reader import LAYERS
from tests.support.checkpoints import blocks_of_mxfp4, mixed_bits, one_tensor_per_expert
from tests.support.maker import make_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="only Linux counts what a process reads"),
]

WIDE: dict[str, Any] = {
    "layers": LAYERS, "hidden": 1024, "heads": 8, "kv_heads": 8, "head_dim": 128, "dtype": "bfloat16", "vocab": 4096,
}  # fmt: skip
MODELS: dict[str, tuple[str, int, Callable[[Path], None] | None]] = {
    "llama": ("llama", 4096, None),
    "tied embeddings": ("llama_tied", 4096, None),
    "experts stacked": ("qwen3_moe", 2048, None),
    "experts apart": ("qwen3_moe", 2048, one_tensor_per_expert),
    "gpt_oss": ("gpt_oss", 1024, None),
    "gpt_oss in mxfp4 blocks": ("gpt_oss", 4096, blocks_of_mxfp4),
    "gemma3": ("gemma3_text", 4096, None),
    "mixed bits": ("llama", 8192, mixed_bits),
}

VARIANTS = ("experts stacked", "tied embeddings", "gpt_oss", "gpt_oss in mxfp4 blocks", "gemma3", "mixed bits")


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.nightly] * (name in VARIANTS)) for name in MODELS],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("wide") / "model"
    family, intermediate, rewrite = MODELS[request.param]
    make_model(directory, family, intermediate=intermediate, files=5, **WIDE)
    if rewrite:
        rewrite(directory)
    yield directory
    for file in directory.iterdir():
        file.unlink()


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (2, LAYERS)])
def test_a_slice_costs_its_own_bytes(model: Path, start: int, stop: int) -> None:
    files = [file.stat().st_size for file in model.glob("*.safetensors")]
    assert len(files) >= 3
    assert sum(files) >= 100_000_000
    parts = sum(
        part.nbytes for part in slice_parts(read_folder(model), start, stop, embed=start == 0, output=stop == LAYERS)
    )
    assert parts < 0.6 * sum(files)
    cost = load_elsewhere(model, start, stop)
    # the headers are read once to be checked and once by mlx; the JSON files come on top
    assert parts <= cost["read_bytes"] <= 1.01 * parts + MIB, cost
    assert cost["weight_bytes"] <= cost["rss_bytes"] + MIB, "a slice that is not in memory proves nothing"
    assert cost["rss_bytes"] <= 1.1 * cost["weight_bytes"] + 16 * MIB, cost
    # a stack of experts and its tensors exist at the same time while it is made
    assert cost["peak_bytes"] <= 1.1 * cost["weight_bytes"] + 64 * MIB, cost


def load_elsewhere(model: Path, start: int, stop: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.processes.reader", str(model), str(start), str(stop)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    costs: dict[str, int] = json.loads(ran.stdout)
    return costs
