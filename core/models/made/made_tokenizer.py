"""A small tokenizer for made models: byte-level BPE, chat tokens, a chat template."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from core.errors import UsageError

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
