"""Models by how their caches are kept."""

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
    """A model, and how its caches are kept."""

    family: str
    kv_bits: int | None = None
    head_dim: int = 32


def model_of(kind: Kind, made: Make) -> Path:
    if kind.family in ("llama", "gemma3_text"):
        return made(kind.family, head_dim=kind.head_dim)
    plain = made("llama")
    directory = plain.with_name(kind.family)
    if not directory.exists():
        shutil.copytree(plain, directory)
        config = {**config_of(kind.family), "eos_token_id": 2}
        weights = dict(tree_flatten(random_model(config, 0, mx.float32).parameters()))
        write_weights(directory, weights)
        (directory / "config.json").write_text(json.dumps(config))
    return directory
