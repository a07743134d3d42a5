"""A rank loads its part of every layer of a model, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from core.errors import UnsupportedModel
from core.models.files.model_folder import read_folder
from core.models.slicing.loading import load_slice
from core.models.slicing.ranks import Rank
from core.models.slicing.slots import Slice
from tests.support.maker import make_model

pytestmark = pytest.mark.slow

LAYERS = 2
COUNTED = Path("/proc/self/io")


def make(directory: Path, family: str = "llama", **more: Any) -> Path:
    sizes: dict[str, Any] = {"layers": LAYERS, "hidden": 128, "intermediate": 256, "heads": 8, "kv_heads": 4}
    make_model(directory, family, **(sizes | more))
    return directory


def load(directory: Path, rank: Rank | None = None, *, output: bool = True, layers: int = LAYERS) -> Slice:
    return load_slice(read_folder(directory), 0, layers, embed=True, output=output, rank=rank)


@pytest.mark.parametrize(("family", "bits"), [("llama", None), ("llama", 4), ("deepseek_v3", 4), ("gpt_oss", None)])
def test_the_parts_of_the_ranks_are_the_model(family: str, bits: int | None, tmp_path: Path) -> None:
    directory = make(tmp_path, family, bits=bits)
    whole = load(directory).weights
    ranks = [load(directory, Rank(index, 2)).weights for index in range(2)]
    cut = 0
    for path, weight in whole.items():
        parts = [rank[path] for rank in ranks]
        if parts[0].shape == weight.shape:
            assert path.endswith("down_proj.bias") or all(mx.array_equal(part, weight) for part in parts)
            continue
        (axis,) = [a for a in range(weight.ndim) if parts[0].shape[a] != weight.shape[a]]
        assert mx.array_equal(mx.concatenate(parts, axis=axis), weight)
        cut += weight.nbytes
    total = sum(weight.nbytes for weight in whole.values())
    assert cut > total / 2
    assert [sum(part.nbytes for part in rank.values()) for rank in ranks] == [total - cut // 2] * 2


@pytest.mark.skipif(not COUNTED.exists(), reason="only Linux counts what a process reads")
@pytest.mark.parametrize("family", ["llama", "gpt_oss"])
def test_little_more_is_read_than_is_kept(family: str, tmp_path: Path) -> None:
    """Rows of a down projection that are long enough to be read in parts, too."""
    directory = make(tmp_path, family, intermediate=8192)
    whole, before = load(directory), read_so_far()
    rank = load(directory, Rank(1, 2))
    read = read_so_far() - before
    assert rank.weight_bytes < 0.55 * whole.weight_bytes
    assert read < 1.1 * rank.weight_bytes
    for path, weight in whole.weights.items():
        part = rank.weights[path]
        if path.endswith(("up_proj.weight", "o_proj.weight", "q_proj.weight", "down_proj.weight")):
            axis = next(a for a in range(weight.ndim) if part.shape[a] != weight.shape[a])
            assert mx.array_equal(part, mx.split(weight, 2, axis)[1])


def test_token_ids_from_the_group_never_lead_beyond_the_vocabulary(tmp_path: Path) -> None:
    """Another rank may add any numbers: MLX reads beyond its arrays if a token id is too large."""
    rank = load(make(tmp_path), Rank(0, 1))
    rank.join(mx.distributed.init(), shares_tokens=True)
    told: Any = rank.shared(mx.array([[-7, 0, 5, rank.vocab_size - 1, rank.vocab_size, 1 << 30]])).tolist()
    assert told == [[0, 0, 5, rank.vocab_size - 1, rank.vocab_size - 1, rank.vocab_size - 1]]


def read_so_far() -> int:
    """Bytes that this process has read."""
    return int(next(line for line in COUNTED.read_text().splitlines() if line.startswith("rchar")).split()[1])


def test_norm_and_head_are_with_the_head_alone(tmp_path: Path) -> None:
    directory = make(tmp_path)
    head, other = load(directory, Rank(0, 2)), load(directory, Rank(1, 2), output=False)
    assert head.weights.keys() - other.weights.keys() == {"model.norm.weight", "lm_head.weight"}


@pytest.mark.parametrize(
    ("family", "ranks", "why"),
    [("gemma3_text", 2, "family gemma3_text"), ("llama", 3, "divided over 3 Macs: .*across 3")],
)
def test_what_cannot_be_divided_is_refused(family: str, ranks: int, why: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=why) as refused:
        load(make(tmp_path, family, layers=4), Rank(0, ranks), layers=4)
    assert "--parallelism pp" in refused.value.fix
