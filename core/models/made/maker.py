"""Makes tiny models with random weights for benches: real files of a real family, meaningless answers.

`python -m core.models.made.maker DIR --family llama --layers 12`. Weights are scaled so that greedy answers vary, as a
model that repeats one token would be drafted too easily.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any, Final, Literal, get_args

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import _get_classes
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

Family = Literal["llama", "llama_sliding"]

DTYPES: Final = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
# parameters of query and key projections, also when fused with values
_SEEKS: Final = re.compile(
    r"^(c_q|c_k|w?[qk]|q_b|[qk]_weight|embed_q|attn_(query|key))(_proj)?$|qkv|c_attn|query_key|W_pack"
)

SIZES: Final = {
    **{"layers": 8, "hidden": 96, "vocab": 512, "intermediate": 128},
    **{"heads": 4, "kv_heads": 2, "head_dim": 32, "context": 4096},
}

BOS: Final = "<|begin|>"
EOS: Final = "<|end|>"
TURN: Final = "<|turn|>"
PAD: Final = "<|pad|>"
SPECIALS: Final = (PAD, BOS, EOS, TURN)

CHAT_TEMPLATE: Final = (
    "{{ bos_token }}{% for message in messages %}"
    "<|turn|>{{ message['role'] }}\n{{ message['content'] | trim }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)

_SENTENCES: Final = (
    "Three small machines sit on a shelf and share the work of one large model.",
    "The first machine reads the question and keeps it to itself.",
    "It hands a row of numbers to the second machine, which hands another row to the third.",
    "When the numbers come back, the first machine picks the next word and the round begins again.",
    "A quiet kitchen, a warm lamp, a cup of tea: the answer arrives word by word.",
    "If one machine goes to sleep, the others wait, and then they go on without it.",
    "Who is there? What do you need? How many layers fit into the memory of this Mac?",
    "Zero, one, two, three, four, five, six, seven, eight, nine: 0123456789.",
    "Der Fluss fließt ruhig durch die Stadt, und über den Dächern zieht ein Vogel seine Kreise.",
    "def add(left, right):\n    return left + right\n",
)


def write_tokenizer(directory: Path, vocab: int) -> None:
    """Write tokenizer.json and tokenizer_config.json with exactly `vocab` tokens; ids 0 to 3 are the special ones."""
    (directory / "tokenizer.json").write_text(_trained(vocab), "utf-8")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1), "utf-8")


@cache
def _trained(vocab: int) -> str:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES, trainer)
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    ids: dict[str, int] = content["model"]["vocab"]
    # the sentences yield only a few hundred merges; the remaining ids still need texts
    for spare in range(len(ids), vocab):
        ids[f"~{spare}"] = spare
    return json.dumps(content, ensure_ascii=False)


def make_model(directory: Path, family: Family, *, seed: int, dtype: str, **sizes: int) -> None:
    """Write a model of `sizes` (see `SIZES`) into `directory`; its answers never end by themselves."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory, sizes["vocab"])
    config = _config(sizes) | (_sliding(sizes["layers"]) if family == "llama_sliding" else {})
    config |= {"eos_token_id": SPECIALS.index(EOS), "dtype": dtype}
    weights = dict(tree_flatten(random_model(config, seed, DTYPES[dtype]).parameters()))
    mx.save_safetensors(str(directory / "model.safetensors"), weights, {"format": "mlx"})
    (directory / "config.json").write_text(json.dumps(config, indent=1), "utf-8")


def _config(sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": sizes["hidden"],
        "intermediate_size": sizes["intermediate"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "num_key_value_heads": sizes["kv_heads"],
        "head_dim": sizes["head_dim"],
        "max_position_embeddings": sizes["context"],
        "rms_norm_eps": 1e-5,
        "vocab_size": sizes["vocab"],
        "tie_word_embeddings": False,
    }


def _sliding(layers: int) -> dict[str, Any]:
    """Full attention in every fourth layer, in the others a window shorter than even a short prompt."""
    kinds = ["sliding_attention" if (layer + 1) % 4 else "full_attention" for layer in range(layers)]
    return {"layer_types": kinds, "sliding_window": 8}


def random_model(config: dict[str, Any], seed: int, dtype: mx.Dtype) -> nn.Module:
    """Make a model from any family's config with random weights of `dtype`, scaled so that its greedy answers vary."""
    model_class, args_class = _get_classes(config)
    model: nn.Module = model_class(args_class.from_dict(config))
    tables = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    names = sorted(path for path, _ in tree_flatten(model.parameters()))
    keys = dict(zip(names, mx.random.split(mx.random.key(seed), len(names)), strict=True))
    weights = []
    for path, like in tree_flatten(model.parameters()):
        value = _table(like.shape, keys[path]) if path in tables else _weight(path, like.shape, keys[path])
        weights.append((path, value.astype(dtype)))
    model.update(tree_unflatten(weights))
    model.eval()
    return model


def _table(shape: tuple[int, ...], key: mx.array) -> mx.array:
    """Embedding, small compared with the layers' results, so that answers depend on more than the last token."""
    reach = 0.03 * sqrt(3.0)
    return mx.random.uniform(-reach, reach, shape, key=key)


def _weight(path: str, shape: tuple[int, ...], key: mx.array) -> mx.array:
    """Uniform random values for one parameter, scaled to keep a layer's stream near one."""
    *_, module, leaf = ("", *path.split("."))
    if len(shape) < 2 or module.endswith("norm"):
        sharp = re.fullmatch("(q|k|query|key)_(layer)?norm", module)
        is_factor = leaf in ("layer_scalar", "D") or leaf.endswith(("weight", "scale", "_g"))  # of the stream
        middle = 2.0 if sharp else 1.0 if is_factor else 0.0
        return middle + mx.random.uniform(-0.1, 0.1, shape, key=key)
    # sharp attention makes the answer depend on many tokens
    spread = 2.0 if _SEEKS.search(module) or _SEEKS.search(leaf) else 1.0
    reach = spread * sqrt(3.0 / shape[-1])
    values = mx.random.uniform(-reach, reach, shape, key=key)
    if module == "lm_head":
        values[: len(SPECIALS)] = 0.0
    return values


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m core.models.made.maker", description="Make a model of random weights."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--family", choices=get_args(Family), default="llama")
    for option, default in {**SIZES, "seed": 0}.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    make_model(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
