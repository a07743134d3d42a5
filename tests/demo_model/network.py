"""The Llama network of the demo model in PyTorch, for training only: it computes the same as `mlx_lm.models.llama`.

Parameters are a dict by the names of mlx-lm, each a float32 tensor. The caller imports torch and passes it in, because
the project itself does not need it.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

Parameters = dict[str, Any]


class Size(NamedTuple):
    """The shape of the network; matrices have inputs of a multiple of 64, so that they can be quantised."""

    vocab: int = 3072
    layers: int = 16
    hidden: int = 192
    intermediate: int = 448
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    def config(self, *, eos: int, context: int) -> dict[str, Any]:
        """config.json of mlx-lm."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.intermediate,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_traditional": False,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "max_position_embeddings": context,
            "eos_token_id": eos,
            "torch_dtype": "float32",
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter and its shape."""
        width, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.hidden)}
        for i in range(self.layers):
            at = f"model.layers.{i}."
            shapes |= {
                f"{at}input_layernorm.weight": (self.hidden,),
                f"{at}self_attn.q_proj.weight": (width, self.hidden),
                f"{at}self_attn.k_proj.weight": (kv, self.hidden),
                f"{at}self_attn.v_proj.weight": (kv, self.hidden),
                f"{at}self_attn.o_proj.weight": (self.hidden, width),
                f"{at}post_attention_layernorm.weight": (self.hidden,),
                f"{at}mlp.gate_proj.weight": (self.intermediate, self.hidden),
                f"{at}mlp.up_proj.weight": (self.intermediate, self.hidden),
                f"{at}mlp.down_proj.weight": (self.hidden, self.intermediate),
            }
        return shapes | {"model.norm.weight": (self.hidden,)}


def new_parameters(torch: Any, size: Size, seed: int, device: str) -> Parameters:
    """Seeded initial values; matrices that add to the stream start smaller, since there are many layers."""
    random = torch.Generator().manual_seed(seed)
    parameters: Parameters = {}
    for name, shape in size.shapes().items():
        if len(shape) == 1:
            value = torch.ones(shape)
        else:
            deviation = 0.02 if "embed" in name else 1 / sqrt(shape[1])
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                deviation /= sqrt(2 * size.layers)
            value = torch.randn(shape, generator=random) * deviation
        parameters[name] = value.to(device).requires_grad_(True)
    return parameters


def rotation(torch: Any, size: Size, length: int, device: str) -> tuple[Any, Any]:
    """Cosines and sines (length, head_dim / 2) of rotary positions, the two halves of a head turned together."""
    half = size.head_dim // 2
    speeds = size.rope_theta ** (-torch.arange(half, dtype=torch.float32, device=device) / half)
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * speeds[None]
    return torch.cos(angles), torch.sin(angles)


def forward(torch: Any, parameters: Parameters, size: Size, tokens: Any, turns: tuple[Any, Any]) -> Any:
    """Logits (batch, length, vocab) of `tokens` (batch, length)."""
    x = torch.nn.functional.embedding(tokens, parameters["model.embed_tokens.weight"])
    for i in range(size.layers):
        at = f"model.layers.{i}."
        normed = _norm(torch, parameters, size, f"{at}input_layernorm", x)
        x = x + _attention(torch, parameters, size, at, normed, turns)
        normed = _norm(torch, parameters, size, f"{at}post_attention_layernorm", x)
        x = x + _mlp(torch, parameters, at, normed)
    return _norm(torch, parameters, size, "model.norm", x) @ parameters["model.embed_tokens.weight"].t()


def _norm(torch: Any, parameters: Parameters, size: Size, name: str, x: Any) -> Any:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + size.norm_eps)
    return scaled * parameters[f"{name}.weight"]


def _attention(torch: Any, parameters: Parameters, size: Size, at: str, x: Any, turns: tuple[Any, Any]) -> Any:
    batch, length, _ = x.shape

    def heads(which: str, count: int) -> Any:
        flat = x @ parameters[f"{at}self_attn.{which}_proj.weight"].t()
        return flat.view(batch, length, count, size.head_dim).transpose(1, 2)

    queries = _turned(torch, heads("q", size.heads), turns)
    keys = _turned(torch, heads("k", size.kv_heads), turns)
    repeat = size.heads // size.kv_heads
    keys, values = (a.repeat_interleave(repeat, dim=1) for a in (keys, heads("v", size.kv_heads)))
    mixed = torch.nn.functional.scaled_dot_product_attention(queries, keys.to(values.dtype), values, is_causal=True)
    flat = mixed.transpose(1, 2).reshape(batch, length, -1)
    return flat @ parameters[f"{at}self_attn.o_proj.weight"].t()


def _turned(torch: Any, x: Any, turns: tuple[Any, Any]) -> Any:
    cos, sin = (t[: x.shape[-2]] for t in turns)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1).to(x.dtype)


def _mlp(torch: Any, parameters: Parameters, at: str, x: Any) -> Any:
    gate = x @ parameters[f"{at}mlp.gate_proj.weight"].t()
    up = x @ parameters[f"{at}mlp.up_proj.weight"].t()
    return (torch.nn.functional.silu(gate) * up) @ parameters[f"{at}mlp.down_proj.weight"].t()
