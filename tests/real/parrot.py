"""A made model for agents: it takes 131,072 tokens, calls the tool that it is offered, and ends after its result.

Each token has one successor, which a row of the output head holds; attention and MLP add nothing. The chat template
opens an answer with the mark of a script.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from core.demo import DEMO_MODEL
from core.models.made.maker import random_model
from tests.support.maker import write_weights

CONTEXT: Final = 131_072
WIDE: Final = 64
LAYERS: Final = 2
END: Final = "<|end|>"
_COMMAND: Final = "cat bird.txt | tee parrot.txt"
# each piece is a token of its own; a script is named after a tool that it calls
SCRIPTS: Final = {
    "Bash": ('<tool_call>\n{"name": "Bash", "arguments": ', f'{{"command": "{_COMMAND}"}}}}', "\n</tool_call>"),
    "bash": (
        '<tool_call>\n{"name": "bash", "arguments": ',
        f'{{"command": "{_COMMAND}", "description": "Copy"}}}}',
        "\n</tool_call>",
    ),
    "exec_command": (
        '<tool_call>\n{"name": "exec_command", "arguments": ',
        f'{{"cmd": "{_COMMAND}"}}}}',
        "\n</tool_call>",
    ),
    "result": ("The bird ", "is copied."),
    "file": ("parrot.txt\n```\n", "The bird is green.\n```\n"),  # how aider writes a file
}
_CALLS: Final = [name for name in SCRIPTS if name not in ("result", "file")]
TEMPLATE: Final = (
    "{% set named = namespace(script='file') %}"
    "{% for tool in tools or [] %}{{ tool | tojson }}\n"
    f"{{% if tool.function.name in {_CALLS} %}}{{% set named.script = tool.function.name %}}{{% endif %}}{{% endfor %}}"
    "{% for message in messages %}<|user|>{{ message.role }}\n{{ message.content }}"
    "{% for tool_call in message.tool_calls or [] %}<tool_call>\n{{ tool_call.function | tojson }}\n</tool_call>"
    "{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{{ '<|script:' + ('result' if messages[-1].role == 'tool' else named.script) + '|>' }}{% endif %}"
)


def make_parrot(directory: Path) -> Path:
    """The model, with the demo model's tokenizer."""
    directory.mkdir(parents=True)
    tokenizer = json.loads((DEMO_MODEL / "tokenizer.json").read_text("utf-8"))
    added = tokenizer["added_tokens"]
    ids = {token["content"]: token["id"] for token in added}
    vocab = max(*tokenizer["model"]["vocab"].values(), *ids.values()) + 1
    followers: dict[int, int] = {}
    for name, pieces in SCRIPTS.items():
        for text in (mark := f"<|script:{name}|>", *pieces):
            if text not in ids:
                ids[text], vocab = vocab, vocab + 1
                added.append({**added[0], "id": ids[text], "content": text, "special": text == mark})
        followers |= dict(pairwise(ids[text] for text in (mark, *pieces, END)))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    settings = json.loads((DEMO_MODEL / "tokenizer_config.json").read_text())
    settings |= {"chat_template": TEMPLATE, "model_max_length": CONTEXT, "eos_token": END}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    _write_model(directory, vocab, followers, ids[END])
    return directory


def _write_model(directory: Path, vocab: int, followers: dict[int, int], end: int) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": WIDE,
        "num_hidden_layers": LAYERS,
        "intermediate_size": WIDE,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocab,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "eos_token_id": end,
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    model: Any = random_model(config, 0, mx.float32)
    for layer in model.model.layers:
        for last in (layer.self_attn.o_proj, layer.mlp.down_proj):
            last.weight = mx.zeros_like(last.weight)
    table, head = mx.zeros((vocab, WIDE)), mx.zeros((vocab, WIDE))
    table[:, 0], head[end, 0] = 1.0, 0.5
    for column, (token, follower) in enumerate(followers.items(), 1):
        table[token, column], head[follower, column] = 1.0, 3.0
    model.model.embed_tokens.weight, model.lm_head.weight = table, head
    write_weights(directory, model, 1)
