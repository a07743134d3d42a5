"""Makes tiny models with random weights for tests and rehearsals: real files of a real family, meaningless answers.

`python -m core.models.made.maker DIR --family llama --layers 12`. Equal arguments make equal bytes. Weights are scaled
so that greedy answers vary; a model that repeats one token would hide most faults.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
from collections.abc import Iterator
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import msgspec
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import _get_classes
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from core.errors import UsageError
from core.models.files.safetensors import INDEX_NAME
from core.models.made.made_configs import FAMILIES, Shape

_GROUP: Final = 32
_DTYPES: Final = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
# parameters of query and key projections, also when fused with values
_SEEKS: Final = re.compile(
    r"^(c_q|c_k|w?[qk]|q_b|[qk]_weight|embed_q|attn_(query|key))(_proj)?$|qkv|c_attn|query_key|W_pack"
)
_NAMES: Final = {mx.float32: "F32", mx.bfloat16: "BF16", mx.float16: "F16", mx.uint32: "U32", mx.uint8: "U8"}

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


def write_tokenizer(directory: Path, vocab: int, *, chat: bool) -> None:
    """Write tokenizer.json and tokenizer_config.json with exactly `vocab` tokens; ids 0 to 3 are the special ones.

    Raises UsageError for a vocabulary too small for the 256 bytes and the special tokens.
    """
    if vocab < 256 + len(SPECIALS):
        raise UsageError(f"A vocabulary of {vocab} tokens is too small.", f"Take at least {256 + len(SPECIALS)}.")
    (directory / "tokenizer.json").write_text(_trained(vocab), "utf-8")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
    }
    if chat:
        config["chat_template"] = CHAT_TEMPLATE
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


def make_model(
    directory: Path,
    family: str,
    *,
    seed: int = 0,
    dtype: str = "float32",
    bits: int | None = None,
    files: int = 3,
    chat: bool = True,
    **sizes: int,
) -> None:
    """Write a model into `directory` (created if missing): config, tokenizer, `files` safetensors and their index.

    `sizes` are fields of `Shape`. `bits` quantises in groups of 32 with scales of `dtype`. Special tokens have zeros in
    an untied head, so answers never end by themselves. Raises UsageError for an unsupported family, dtype or size.
    """
    if family not in FAMILIES or dtype not in _DTYPES:
        raise UsageError(f"No made model of {family!r} in {dtype!r} exists.", f"Families: {', '.join(FAMILIES)}.")
    shape = Shape(**sizes)
    directory.mkdir(parents=True, exist_ok=True)
    write_tokenizer(directory, shape.vocab, chat=chat)
    config = FAMILIES[family](shape)
    eos = SPECIALS.index(EOS)
    config |= {"eos_token_id": eos, "dtype": dtype}
    model = random_model(config, seed, _DTYPES[dtype])
    if bits:
        config["quantization"] = _quantise(model, bits)
    write_weights(directory, model, files)
    (directory / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    (directory / "generation_config.json").write_text(json.dumps({"do_sample": False, "eos_token_id": eos}), "utf-8")


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


def _quantise(model: nn.Module, bits: int) -> dict[str, Any]:
    """Quantise in place; returns the `quantization` entry of the config."""

    def wanted(_: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % _GROUP == 0

    nn.quantize(model, group_size=_GROUP, bits=bits, class_predicate=wanted)
    return {"group_size": _GROUP, "bits": bits, "mode": "affine"}


def write_weights(directory: Path, model: nn.Module, files: int) -> None:
    """Write the weights as `files` safetensors files with an index."""
    weights = _in_order(model)
    total = sum(array.nbytes for _, array in weights)
    parts: list[list[tuple[str, mx.array]]] = [[]]
    filled = 0
    for name, array in weights:
        if filled >= total * len(parts) / files and parts[-1]:
            parts.append([])
        parts[-1].append((name, array))
        filled += array.nbytes
    weight_map: dict[str, str] = {}
    for number, part in enumerate(parts, 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        weight_map |= {name: file for name, _ in part}
        _write_safetensors(directory / file, part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / INDEX_NAME).write_text(json.dumps(index, indent=1), "utf-8")


def _in_order(model: nn.Module) -> list[tuple[str, mx.array]]:
    """Parameters in checkpoint order: embedding, layers, norm, head."""
    layers = [f"{path}." for path, m in model.named_modules() for layer in model.layers if m is layer]

    def rank(item: tuple[int, tuple[str, mx.array]]) -> tuple[int, int]:
        position, (path, _) = item
        inside = any(path.startswith(layer) for layer in layers)
        return (1 if inside else 0 if "embed" in path else 2, position)

    return [item for _, item in sorted(enumerate(tree_flatten(model.parameters())), key=rank)]


def _write_safetensors(file: Path, tensors: list[tuple[str, mx.array]]) -> None:
    # mlx writes the header in hash table order, which differs between runs
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    offset = 0
    for name, array in tensors:
        end = offset + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for data in _data(tensors):
            f.write(data)


def _data(tensors: list[tuple[str, mx.array]]) -> Iterator[Any]:
    for _, array in tensors:
        raw: Any = mx.contiguous(array).reshape(-1).view(mx.uint8)
        yield memoryview(raw)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m core.models.made.maker", description="Make a model of random weights."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="llama")
    for option, default in {**msgspec.structs.asdict(Shape()), "seed": 0}.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--dtype", choices=sorted(_DTYPES), default="float32")
    make_model(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
