"""A slice loads its own tensors and no other, and says plainly why a directory cannot be loaded."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np
import psutil
import pytest

from core.errors import BadModel, IllegalCut, ModelNotFound, UnsupportedModel
from core.models.families import FAMILIES
from core.models.layout import read_layout
from core.models.loading import load_slice
from core.models.maker import make_model
from core.models.slots import Slice

LAYERS = 4


def load(directory: Path, start: int, stop: int) -> Slice:
    return load_slice(directory, start, stop, embed=start == 0, output=stop == LAYERS, on_progress=lambda a, b: None)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "little-llama"
    make_model(directory, "llama", layers=LAYERS)
    return directory


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "little-llama"))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bits", [None, 4])
def test_a_slice_weighs_what_the_layout_says(family: str, bits: int | None, tmp_path: Path) -> None:
    make_model(tmp_path, family, layers=LAYERS, bits=bits)
    layout = read_layout(tmp_path)
    for start, stop in ((0, 1), (1, 3), (3, 4)):
        expected = layout.stage_bytes(start, stop, embed=start == 0, output=stop == LAYERS)
        assert load(tmp_path, start, stop).weight_bytes == expected


def test_progress_counts_to_the_end(original: Path) -> None:
    seen: list[tuple[int, int]] = []
    stage = load_slice(original, 1, 3, embed=False, output=False, on_progress=lambda a, b: seen.append((a, b)))
    done = [a for a, _ in seen]
    assert done == sorted(done)
    assert seen[-1] == (stage.weight_bytes, stage.weight_bytes)


def poison(directory: Path, spared: tuple[str, ...]) -> None:
    """Overwrites every tensor whose name has none of `spared` in it with NaN."""
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
        [out] = stage.run([hidden], stage.new_caches(), 0)
        results.append(np.array(out))
    assert np.isfinite(results[0]).all()
    np.testing.assert_array_equal(results[0], results[1])


def test_no_file_stays_open(original: Path) -> None:
    stage = load(original, 0, 2)
    assert not [f for f in psutil.Process().open_files() if f.path.startswith(str(original))]
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
    with pytest.raises(BadModel, match=r"cannot build|incomplete"):
        load(model, 0, 1)


def edit_config(model: Path, **changes: object) -> None:
    config = json.loads((model / "config.json").read_text()) | changes
    (model / "config.json").write_text(json.dumps(config))


def test_code_of_a_model_never_runs(model: Path) -> None:
    (model / "evil.py").write_text("raise SystemExit('ran')")
    edit_config(model, model_file="evil.py")
    with pytest.raises(UnsupportedModel, match=r"evil\.py"):
        load(model, 0, 1)


@pytest.mark.parametrize("model_type", ["no_such_family", "base", "olmo"])
def test_an_unknown_architecture_is_unsupported(model: Path, model_type: str) -> None:
    edit_config(model, model_type=model_type)
    with pytest.raises(UnsupportedModel, match=model_type):
        load(model, 0, 1)


def test_an_impossible_range_is_refused_before_anything_is_read(original: Path) -> None:
    for start, stop in ((2, 2), (3, 9), (-1, 2)):
        with pytest.raises(IllegalCut):
            load(original, start, stop)
    with pytest.raises(IllegalCut, match="embedding"):
        load_slice(original, 1, 2, embed=True, output=False, on_progress=lambda a, b: None)
