"""A made model with noise on its weights; less noise makes its guesses right more often."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlx.core as mx


def noisy(model: Path, folder: Path, noise: float) -> Path:
    """Copy `model` into `folder` with noise, in parts of the standard deviation of its weights."""
    directory = folder / f"{model.name}-draft"
    shutil.copytree(model, directory)
    for number, file in enumerate(sorted(directory.glob("*.safetensors"))):
        weights: dict[str, mx.array] = mx.load(str(file))  # type: ignore[assignment]
        keys = mx.random.split(mx.random.key(number), len(weights))
        changed = {
            name: array + noise * mx.std(array) * mx.random.normal(array.shape, array.dtype, key=key)
            for (name, array), key in zip(sorted(weights.items()), keys, strict=True)
        }
        mx.eval(changed)  # the file can't be read while it is written
        mx.save_safetensors(str(file), changed, {"format": "mlx"})
    return directory
