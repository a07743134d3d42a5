"""A slice loads its own tensors and no other, and an unloadable directory gets a clear reason."""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import psutil
import pytest
from mlx_lm.models.cache import make_prompt_cache

from core.errors import BadModel, IllegalCut, ModelNotFound, UnsupportedModel
from core.models.files.model_folder import read_folder
from core.models.made.maker import random_model
from core.models.slicing.building import build
from core.models.slicing.loading import load_slice, slice_parts
from core.models.slicing.slots import Slice
from tests.support.atlas import config_of
from tests.support.checkpoints import REWRITES, change_config, read_weights, write_weights
from tests.support.made_families import MADE
from tests.support.maker import make_model
from tests.support.maker import write_weights as write_model
from tests.support.waiting import until

LAYERS = 4
STAGES = ((0, 1), (1, 3), (3, LAYERS))
TOKENS = mx.array([[5, 17, 300, 41, 8, 99, 250, 6, 77, 123]])


def load(directory: Path, start: int, stop: int) -> Slice:
    return load_slice(read_folder(directory), start, stop, embed=start == 0, output=stop == LAYERS)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "little-llama"
    make_model(directory, "llama", layers=LAYERS)
    return directory


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "little-llama"))


@pytest.mark.slow
@pytest.mark.parametrize("family", MADE)
@pytest.mark.parametrize("bits", [None, 4])
def test_a_slice_weighs_what_the_layout_says(family: str, bits: int | None, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=LAYERS, bits=bits)
    layout = read_folder(tmp_path).layout()
    for start, stop in STAGES:
        expected = layout.stage_bytes(start, stop, embed=start == 0, output=stop == LAYERS)
        assert load(tmp_path, start, stop).weight_bytes == expected


def test_progress_counts_to_the_end(original: Path) -> None:
    seen: list[tuple[int, int]] = []
    stage = load_slice(
        read_folder(original),
        1,
        3,
        embed=False,
        output=False,
        on_progress=lambda a, b: seen.append((a, b)),
    )
    done = [a for a, _ in seen]
    assert done == sorted(done)
    assert seen[-1] == (stage.weight_bytes, stage.weight_bytes)


def poison(directory: Path, spared: tuple[str, ...]) -> None:
    """Overwrite every tensor with NaN, except those with one of `spared` in their name."""
    for file in directory.glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        length = struct.unpack("<Q", data[:8])[0]
        for name, tensor in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__" and not any(part in name for part in spared):
                begin, end = (8 + length + offset for offset in tensor["data_offsets"])
                data[begin:end] = b"\xff" * (end - begin)
        file.write_bytes(data)


def test_other_tensors_play_no_part(original: Path, model: Path) -> None:
    poison(model, (".layers.1.", ".layers.2."))
    hidden = mx.random.normal((1, 5, 96), key=mx.random.key(1))
    results = []
    for directory in (original, model):
        stage = load(directory, 1, 3)
        [out] = stage.run([hidden], stage.caches.new(), 0)
        results.append(np.array(out))
    assert np.isfinite(results[0]).all()
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (2, 3), (1, LAYERS), (3, LAYERS)])
def test_what_another_slice_held_is_not_read_again(original: Path, model: Path, start: int, stop: int) -> None:
    held = dict(load(model, 1, 3).weights)
    poison(model, (".layers.0.", ".layers.3.", "embed", "norm", "lm_head"))
    seen = load_slice(read_folder(model), start, stop, embed=start == 0, output=stop == LAYERS, held=held)
    assert held == {}, "the rest is let go"
    expected = load(original, start, stop)
    assert seen.weight_bytes == expected.weight_bytes
    for path, array in expected.weights.items():
        np.testing.assert_array_equal(np.array(seen.weights[path]), np.array(array), err_msg=path)
    hidden = mx.random.normal((1, 5, 96), key=mx.random.key(1))
    if start:
        results = [stage.run([hidden], stage.caches.new(), 0) for stage in (seen, expected)]
    else:
        results = [stage.embed(TOKENS, stage.caches.new(), 0) for stage in (seen, expected)]
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(np.array(one), np.array(other))


async def test_no_file_stays_open(original: Path) -> None:
    gc.collect()  # garbage of earlier tests
    stage = load(original, 0, 2)
    # mlx's own thread may close the last one a moment after its arrays are there
    await until(lambda: not [f for f in psutil.Process().open_files() if f.path.startswith(str(original))])
    assert stage.weight_bytes


def test_a_broken_directory_is_named(model: Path) -> None:
    with pytest.raises(ModelNotFound):
        load(model / "nowhere", 0, 1)
    shard = model / "model-00002-of-00003.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(BadModel, match="cut short"):
        load(model, 0, 1)
    shard.unlink()
    with pytest.raises(BadModel, match="00002"):
        load(model, 0, 1)


def test_a_missing_tensor_is_named(model: Path) -> None:
    (model / "model.safetensors.index.json").unlink()
    (model / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(BadModel, match=r"^model-00003-of-00003\.safetensors is missing in little-llama"):
        load(model, 0, 1)


def test_code_of_a_model_never_runs(model: Path) -> None:
    (model / "evil.py").write_text("raise SystemExit('ran')")
    change_config(model, model_file="evil.py")
    with pytest.raises(UnsupportedModel, match=r"evil\.py"):
        load(model, 0, 1)


@pytest.mark.parametrize("model_type", ["no_such_family", "base", "olmo"])
def test_an_unknown_architecture_is_unsupported(model: Path, model_type: str) -> None:
    change_config(model, model_type=model_type)
    with pytest.raises(UnsupportedModel, match=model_type):
        load(model, 0, 1)


def test_an_impossible_range_is_refused_before_anything_is_read(original: Path) -> None:
    for start, stop in ((2, 2), (3, 9), (-1, 2)):
        with pytest.raises(IllegalCut):
            load(original, start, stop)
    with pytest.raises(IllegalCut, match="embedding"):
        load_slice(read_folder(original), 1, 2, embed=True, output=False)


def change_weights(model: Path, change: Callable[[dict[str, mx.array]], object]) -> None:
    weights = read_weights(model)
    change(weights)
    write_weights(model, weights, files=1)


LAST = "model.layers.3.mlp.up_proj.weight"
MISFITS: dict[str, tuple[Callable[[dict[str, mx.array]], object], str]] = {
    "missing": (lambda w: w.pop(LAST), rf"No file of little-llama holds '{LAST}', which config\.json asks for"),
    "misshapen": (
        lambda w: w.update({LAST: mx.zeros((128, 32))}),
        rf"model-00001-of-00001\.safetensors in little-llama holds '{LAST}', .*\[128, 32\].* asks for \[128, 96\]",
    ),
    "extra": (
        lambda w: w.update({"model.layers.9.x": mx.zeros(3), "model.y": mx.zeros(3)}),
        r"model-00001-of-00001\.safetensors in little-llama holds 'model\.layers\.9\.x' and 1 more, .*no place",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_tensor_that_does_not_fit_is_named_with_its_file(name: str, model: Path) -> None:
    change, sentence = MISFITS[name]
    change_weights(model, change)
    for work in (load_slice, slice_parts):
        with pytest.raises(BadModel, match=sentence) as caught:
            work(read_folder(model), 0, 1, embed=True, output=False)
        assert "download the model again" in caught.value.fix


def test_a_config_of_more_or_fewer_layers_is_refused(model: Path) -> None:
    change_config(model, num_hidden_layers=LAYERS + 1)
    with pytest.raises(BadModel, match=r"holds 'model\.layers\.4\..*' and 8 more, which config\.json asks for"):
        load(model, 0, 1)
    change_config(model, num_hidden_layers=LAYERS - 1)
    with pytest.raises(BadModel, match=r"00003\.safetensors .* holds 'model\.layers\.3\..*no place"):
        load(model, 0, 1)


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    family, change = REWRITES["experts apart"]
    make_model(tmp_path / "moe", family, layers=LAYERS)
    change(tmp_path / "moe")
    expert = "model.layers.2.mlp.experts.3.down_proj.weight"
    change_weights(tmp_path / "moe", lambda w: w.pop(expert))
    with pytest.raises(BadModel, match=rf"No file of moe holds '{expert}', which 'qwen3_moe' needs"):
        load(tmp_path / "moe", 0, 1)


def test_a_config_that_describes_no_model_is_named(model: Path) -> None:
    change_config(model, quantization={"bits": 4})
    with pytest.raises(BadModel, match=r"config\.json describes the quantisation wrongly: 'group_size'"):
        load(model, 0, 1)
    for settings in ({"hidden_size": "wide"}, {"num_attention_heads": 0, "head_dim": None}):
        change_config(model, **settings)
        with pytest.raises(BadModel, match=r"config\.json does not describe a model of the architecture 'llama': "):
            load(model, 0, 1)


def test_two_files_with_one_tensor_are_refused(model: Path) -> None:
    shutil.copy(model / "model-00001-of-00003.safetensors", model / "model.safetensors")
    with pytest.raises(BadModel, match=r"00001-of-00003.* and model\.safetensors .* both hold") as caught:
        load(model, 0, 1)
    assert "Remove" in caught.value.fix


def test_a_tensor_of_the_index_that_no_file_has_is_named(model: Path) -> None:
    index = json.loads((model / "model.safetensors.index.json").read_text())
    index["weight_map"]["ghost"] = "model-00002-of-00003.safetensors"
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadModel, match=r"00002-of-00003\.safetensors in little-llama lacks the tensor 'ghost'"):
        load(model, 0, 1)


def test_a_format_that_mlx_cannot_read_is_named(model: Path) -> None:
    text = json.dumps({"x": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    (model / "model-more.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(UnsupportedModel, match=r"model-more\.safetensors holds the tensor 'x' as F64"):
        load(model, 0, 1)


def test_a_file_that_shrinks_while_it_is_read_is_named(model: Path) -> None:
    def cut(done: int, total: int) -> None:
        for file in model.glob("*.safetensors"):
            os.truncate(file, 5000)

    with pytest.raises(BadModel, match=r"model-0000\d-of-00003\.safetensors is cut short"):
        load_slice(read_folder(model), 0, LAYERS, embed=True, output=True, on_progress=cut)


def test_a_lazily_built_model_is_the_familys_own(original: Path) -> None:
    model = build(read_folder(original)).model
    assert type(model).__module__ == "mlx_lm.models.llama"
    assert type(model).__name__ == "Model"


def test_what_a_family_remembers_of_its_first_forward_is_no_dry_run(tmp_path: Path) -> None:
    """kimi_k3 multiplies norms into projections at its first forward, once for all."""
    config = config_of("kimi_k3")
    whole = random_model(config, 0, mx.float32)
    write_model(tmp_path, whole, 1)
    (tmp_path / "config.json").write_text(json.dumps(config))
    layers = load_slice(read_folder(tmp_path), 0, len(whole.layers), embed=True, output=True)
    tokens = TOKENS % 200
    expected = whole(tokens, cache=make_prompt_cache(whole))[:, -1]
    assert mx.array_equal(layers.whole(tokens, layers.caches.new()), expected)
