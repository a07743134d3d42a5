"""What one of several ranks loads of a model: its part of every layer, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from core.engine.ring_work import New
from core.errors import UnsupportedModel
from core.models.made.maker import make_model
from core.models.slicing.loading import load_slice
from core.models.slicing.ranks import Rank
from core.models.slicing.slots import Slice
from core.worker.stage import LoadedStage
from core.worker.telemetry import StageMeter

LAYERS = 2
COUNTED = Path("/proc/self/io")


def make(directory: Path, family: str = "llama", **more: Any) -> Path:
    sizes: dict[str, Any] = {"layers": LAYERS, "hidden": 128, "intermediate": 256, "heads": 8, "kv_heads": 4}
    make_model(directory, family, **(sizes | more))
    return directory


def load(directory: Path, rank: Rank | None = None, *, output: bool = True, layers: int = LAYERS) -> Slice:
    return load_slice(directory, 0, layers, embed=True, output=output, rank=rank)


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


@pytest.mark.parametrize("family", ["llama", "deepseek_v3", "gpt_oss"])
@pytest.mark.parametrize("is_head", [True, False])
def test_a_rank_whose_sums_need_no_python_builds_what_comes_next_meanwhile(
    family: str, is_head: bool, tmp_path: Path
) -> None:
    """A group of one rank adds up nothing, and goes the same way."""
    directory = make(tmp_path, family)
    alone, rank = (LoadedStage(load(directory, which), StageMeter(0)) for which in (None, Rank(0, 1)))
    rank.layers.join(mx.distributed.init(), builds_ahead=True)

    def step(stage: LoadedStage, tokens: mx.array) -> mx.array:
        logits = stage.whole(1, tokens) if is_head else stage.output(1, stage.embed(1, tokens))
        return mx.argmax(logits, axis=-1)[None]

    said: list[list[Any]] = []
    for stage in (alone, rank):
        stage.compose([New(1)])
        tokens, answer = mx.array([[5, 6, 7]]), []
        for _ in range(24):
            tokens = step(stage, tokens)
            answer.append(tokens.item())
        said.append(answer)
    assert len(set(said[0])) >= 12, "a reference that repeats one token proves nothing"
    assert said[1] == said[0]

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("It was to be built before.")

    rank.layers.embed = rank.layers.whole = refuse  # type: ignore[method-assign, assignment]
    rank.whole(1, tokens) if is_head else rank.embed(1, tokens)


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
