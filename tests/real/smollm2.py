"""SmolLM2-135M-Instruct, a real chat model of 30 layers, from the GGUF file in a package of PyPI."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from tests.real.packages import kept, package

GROUP: Final = 32
NAMES: Final = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL_TOKENS: Final = (3, 4)  # GGUF's types of tokens that are no text


def smollm2() -> Path:
    """The model in float32, which a CPU computes three times as fast as 4 bits. Raises Unreachable."""
    source = package("smollm2")
    return kept("SmolLM2-135M-Instruct", lambda folder: _convert(source, folder, is_quantised=False))


def smollm2_4bit() -> Path:
    """The model in 4 bits, as in the package. Raises Unreachable."""
    source = package("smollm2")
    return kept("SmolLM2-135M-Instruct-4bit", lambda folder: _convert(source, folder, is_quantised=True))


def _convert(source: Path, folder: Path, *, is_quantised: bool) -> None:
    (file,) = source.glob("*.gguf")
    loaded: Any = mx.load(str(file), return_metadata=True)
    weights, facts = loaded
    named = {_name(name): array for name, array in weights.items()}
    config = _config(facts)
    if is_quantised:
        embedding = {"group_size": GROUP, "bits": 8}
        config["quantization"] = {"group_size": GROUP, "bits": 4, "model.embed_tokens": embedding}
    else:
        named = _dequantised(named)
    mx.save_safetensors(str(folder / "model.safetensors"), named, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(facts, folder)


def _name(gguf: str) -> str:
    """MLX's name of a tensor: "blk.3.attn_q.weight" is "model.layers.3.self_attn.q_proj.weight"."""
    found = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(\w+)", gguf)
    assert found, gguf
    layer, module, kind = found.groups()
    return f"{f'model.layers.{layer}.' if layer else ''}{NAMES[module]}.{kind}"


def _dequantised(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    whole = {}
    for name, array in weights.items():
        module = name.removesuffix(".weight")
        if name.endswith(".weight") and (scales := weights.get(f"{module}.scales")) is not None:
            bits = array.shape[-1] * 32 // (scales.shape[-1] * GROUP)
            array = mx.dequantize(array, scales, weights[f"{module}.biases"], group_size=GROUP, bits=bits)
        if name.endswith(".weight"):
            whole[name] = array.astype(mx.float32)
    return whole


def _config(facts: dict[str, Any]) -> dict[str, Any]:
    def number(key: str) -> Any:
        return facts[f"llama.{key}"].item()

    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": number("embedding_length"),
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "rms_norm_eps": number("attention.layer_norm_rms_epsilon"),
        "rope_theta": number("rope.freq_base"),
        "rope_traditional": True,  # GGUF files of llamas have the rows of queries and keys in this order
        "max_position_embeddings": number("context_length"),
        "vocab_size": number("vocab_size"),
        "tie_word_embeddings": True,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"].item(),
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"].item(),
    }


def _write_tokenizer(facts: dict[str, Any], folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    types = facts["tokenizer.ggml.token_type"].tolist()
    control = [word for word, kind in zip(words, types, strict=True) if kind in CONTROL_TOKENS]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": words[facts["tokenizer.ggml.bos_token_id"].item()],
        "eos_token": words[facts["tokenizer.ggml.eos_token_id"].item()],
        "clean_up_tokenization_spaces": False,
        "chat_template": facts["tokenizer.chat_template"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
