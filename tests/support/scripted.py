"""A made model that wanders, except where its chat template opens an answer with the mark of a script.

It then writes that script token for token. So an answer can think, call tools, and end by itself.
"""

from __future__ import annotations

import json
from math import sqrt
from pathlib import Path
from typing import Any, Final

import mlx.core as mx

from core.models.made.maker import EOS, SPECIALS, random_model
from tests.support.maker import make_model, write_weights

VOCAB: Final = 640
_LOUD: Final = 50.0  # an embedding so large that the layers add little to it
_SURE: Final = 0.6  # above the logit of any other row of the head, below it where no embedding is loud

# each piece is its own token, so each has one successor
SCRIPTS: Final = {
    "<|script:tools|>": (
        "<think>", "\nI look ", "it up.\n", "</think>", "\n\nLet me", " see.", "\n<tool_",
        'call>\n{"name": "look_up", ', '"arguments": {"word": "h', 'öp"}}\n</tool',
        '_call>\n<tool_call>\n{"name": "look_up", "arg',
        'uments": {"word": "ring", "deep": true}}\n', "</tool_call>",
    ),
    "<|script:result|>": ("It is", " a step of", " the ring."),
    "<|script:torn|>": ("Well: ", "<tool_call", ">{torn</tool_", "call> then."),
}  # fmt: skip

TEMPLATE: Final = (
    "{{ bos_token }}{% if tools %}<|turn|>system\n{{ tools | tojson }}{{ eos_token }}\n{% endif %}"
    "{% for message in messages %}<|turn|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message.content | trim }}"
    "{% for tool_call in message.tool_calls or [] %}{% set tool_call = tool_call.function %}"
    '<tool_call>{"name": "{{ tool_call.name }}", "arguments": {{ tool_call.arguments | tojson }}}</tool_call>'
    "{% endfor %}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% set last = messages[-1] %}"
    "{% if last.role == 'tool' %}<|script:result|>{% elif tools and 'torn' in last.content %}<|script:torn|>"
    "{% elif tools %}<|script:tools|>{% endif %}{% endif %}"
)


def make_scripted(directory: Path) -> Path:
    """The model `llama` of `make_model`, with the scripts."""
    make_model(directory, "llama", vocab=VOCAB, layers=3)
    ids = _write_tokenizer(directory)
    model: Any = random_model(json.loads((directory / "config.json").read_text()), 0, mx.float32)
    table, head = model.model.embed_tokens, model.lm_head
    hidden = table.weight.shape[1]
    ends = SPECIALS.index(EOS)
    for script in (_tokens(name) for name in SCRIPTS):
        head.weight[ids[script[0]]] = 0.0  # only the template opens a script
        for piece, follower in zip(script, [*script[1:], None], strict=True):
            then = ends if follower is None else ids[follower]
            towards = mx.random.normal((hidden,), key=mx.random.key(then))
            towards /= mx.linalg.norm(towards)
            table.weight[ids[piece]] = _LOUD * sqrt(hidden) * towards
            head.weight[then] = _SURE * towards
    write_weights(directory, model, 3)
    return directory


def _tokens(name: str) -> list[str]:
    return [name, *SCRIPTS[name]]


def _write_tokenizer(directory: Path) -> dict[str, int]:
    """Give the spare tokens the texts of the scripts; returns their ids by text."""
    path = directory / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    vocab = content["model"]["vocab"]
    spare = [name for name in vocab if name.startswith("~") and len(name) > 2]
    ids = {}
    for name, text in zip(spare, [piece for script in SCRIPTS for piece in _tokens(script)], strict=False):
        ids[text] = vocab.pop(name)
        if text.startswith(("<|script", "<think", "</think")):
            mark = {"id": ids[text], "content": text, "special": False, "normalized": False}
            content["added_tokens"].append({**mark, "single_word": False, "lstrip": False, "rstrip": False})
        vocab[_as_bytes(text)] = ids[text]
    assert len(ids) == sum(len(_tokens(script)) for script in SCRIPTS)
    path.write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    config = json.loads((directory / "tokenizer_config.json").read_text())
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": TEMPLATE}), "utf-8")
    return ids


def _as_bytes(text: str) -> str:
    """The text as a byte-level vocabulary writes it."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + at) for at, byte in enumerate(other)}
    return "".join(letters[byte] for byte in text.encode())
