"""Makes the shipped model of trained weights: `python -m core.demo.training.export WEIGHTS OUT --data DATA`.

OUT becomes a model directory that `mlx_lm.load` takes: 8-bit weights in several files, or float32 with `--bits 0`.
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

from core.demo.training.train import read_size, read_weights
from core.demo.training.vocabulary import CONTEXT, END, SPECIALS, write_tokenizer_files
from core.models.made.maker import write_weights

# two ranks can share the inputs of every matrix by groups of this size; the embedding each of them has whole
GROUP: Final = 32
EMBEDDING_GROUP: Final = 64


def export(weights: Path, data: Path, out: Path, *, bits: int = 8, files: int = 2) -> int:
    """Writes the model into `out` and returns its bytes. `bits` 0 leaves the weights float32."""
    size = read_size(data)
    out.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = size.config(eos=SPECIALS.index(END), context=CONTEXT)
    model = llama.Model(llama.ModelArgs.from_dict(config))
    arrays = read_weights(weights, size)
    model.update(tree_unflatten([(name, mx.array(array)) for name, array in arrays.items()]))
    if bits:
        # float32 scales: activations stay float32, which every device computes alike and a CPU fastest
        others, embedding = ({"group_size": size, "bits": bits, "mode": "affine"} for size in (GROUP, EMBEDDING_GROUP))
        own = {"model.embed_tokens": embedding}
        nn.quantize(
            model, class_predicate=lambda path, m: own.get(path, others) if hasattr(m, "to_quantized") else False
        )
        config["quantization"] = others | own
    for old in out.glob("*.safetensors"):
        old.unlink()
    write_weights(out, model, files)
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    write_tokenizer_files(out, (data / "tokenizer.json").read_text("utf-8"))
    return sum(f.stat().st_size for f in out.iterdir() if f.suffix in (".safetensors", ".json"))


def main(arguments: list[str] | None = None) -> None:
    """The command line of the export."""
    parser = argparse.ArgumentParser(prog="python -m core.demo.training.export", description="Export the demo model.")
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="what `train prepare` wrote")
    parser.add_argument("--bits", type=int, default=8, choices=(0, 4, 8))
    parser.add_argument("--files", type=int, default=2)
    args = parser.parse_args(arguments)
    print(f"{export(args.weights, args.data, args.out, bits=args.bits, files=args.files):,} bytes in {args.out}")


if __name__ == "__main__":
    main()
