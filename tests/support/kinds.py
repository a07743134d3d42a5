"""Models by the kind of their caches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import mlx.core as mx
from mlx.utils import tree_flatten

from core.models.made.maker import random_model
from tests.support.atlas import config_of
from tests.support.checkpoints import write_weights
from tests.support.cluster import Make


class Kind(NamedTuple):
    """A model and the kind of its caches."""

    family: str
    kv_bits: int | None = None
    head_dim: int = 32


def model_of(kind: Kind, made: Make) -> Path:
    if kind.family in ("llama", "gemma3_text"):
        return made(kind.family, head_dim=kind.head_dim)
    return of_atlas(kind.family, made)


def of_atlas(variant: str, made: Make, **changes: int) -> Path:
    """A variant of the atlas with other settings of its language model."""
    plain = made("llama")
    directory = plain.with_name("-".join([variant, *(f"{name}{value}" for name, value in changes.items())]))
    if not directory.exists():
        shutil.copytree(plain, directory)
        config = {**config_of(variant), "eos_token_id": 2}
        config.get("text_config", config).update(changes)
        weights = dict(tree_flatten(random_model(config, 0, mx.float32).parameters()))
        write_weights(directory, weights)
        (directory / "config.json").write_text(json.dumps(config))
    return directory
