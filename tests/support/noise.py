"""A made model with noise on its weights, which guesses what the model says more often the less noise there is."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlx.core as mx


def noisy(model: Path, folder: Path, noise: float) -> Path:
    """A copy of `model` in a folder of its own inside `folder`; `noise` is in parts of how far the weights spread."""
    directory = folder / f"{model.name}-draft"
    shutil.copytree(model, directory)
    for number, file in enumerate(sorted(directory.glob("*.safetensors"))):
        weights: dict[str, mx.array] = mx.load(str(file))  # type: ignore[assignment]
        keys = mx.random.split(mx.random.key(number), len(weights))
        changed = {
            name: array + noise * mx.std(array) * mx.random.normal(array.shape, array.dtype, key=key)
            for (name, array), key in zip(sorted(weights.items()), keys, strict=True)
        }
        mx.eval(changed)  # a file that is written anew can no longer be read
        mx.save_safetensors(str(file), changed, {"format": "mlx"})
    return directory
