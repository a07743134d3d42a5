"""Writes trained weights as an MLX model: `python -m tests.demo_model.export WEIGHTS MODEL`.

The tokenizer files of the model stay as they are.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten
from mlx_lm.models import llama

from tests.demo_model.network import Size
from tests.demo_model.train import read_weights
from tests.support.maker import write_weights

CONTEXT: Final = 4096
# two ranks can share the inputs of every matrix by groups of this size; each has the whole embedding
GROUP: Final = 32
EMBEDDING_GROUP: Final = 64


def export(weights: Path, out: Path, size: Size, files: int = 2) -> None:
    """Write config.json and 8-bit weights in `files` files into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = size.config(eos=0, context=CONTEXT)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    arrays = read_weights(weights, size)
    model.update(tree_unflatten([(name, mx.array(array)) for name, array in arrays.items()]))
    # float32 scales: activations stay float32, which every device computes alike and a CPU fastest
    others, embedding = ({"group_size": group, "bits": 8, "mode": "affine"} for group in (GROUP, EMBEDDING_GROUP))
    own = {"model.embed_tokens": embedding}
    nn.quantize(model, class_predicate=lambda path, m: own.get(path, others) if hasattr(m, "to_quantized") else False)
    config["quantization"] = others | own
    for old in out.glob("*.safetensors"):
        old.unlink()
    write_weights(out, model, files)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.demo_model.export", description="Export the demo model.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("model", type=Path)
    args = parser.parse_args()
    export(args.weights, args.model, Size())
