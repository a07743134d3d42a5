"""The tokenizer of the demo model: byte-level BPE over its own corpus, three special tokens, a chat template."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

END: Final = "<|end|>"
USER: Final = "<|user|>"
ASSISTANT: Final = "<|assistant|>"
SPECIALS: Final = (END, USER, ASSISTANT)
CONTEXT: Final = 4096

# training saw conversations of some hundred tokens: of a longer one the model gets the last turns
TEMPLATE: Final = (
    "{% set turns = messages | rejectattr('role', 'equalto', 'system') | list %}"
    "{% for message in turns[-11:] %}"
    "{{ '<|user|>' if message['role'] == 'user' else '<|assistant|>' }}{{ message['content'] | trim }}"
    "{% if message['role'] != 'user' %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def conversation_text(turns: Iterable[tuple[str, str]]) -> str:
    """What the chat template makes of a finished conversation."""
    return "".join(f"{USER}{question.strip()}{ASSISTANT}{answer.strip()}{END}" for question, answer in turns)


def train_tokenizer(texts: Iterable[str], vocab: int) -> Any:
    """A tokenizer of exactly `vocab` tokens, learned from `texts`; each digit is a token, for the sake of sums."""
    tokenizer = Tokenizer(BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"The corpus yields {tokenizer.get_vocab_size()} tokens, not {vocab}.")
    return tokenizer


def read_tokenizer(file: Path, vocab: int) -> Any:
    """The tokenizer in `file`, which must have `vocab` tokens."""
    tokenizer = Tokenizer.from_file(str(file))
    if tokenizer.get_vocab_size() != vocab:
        raise ValueError(f"The tokenizer in {file} has {tokenizer.get_vocab_size()} tokens, not {vocab}.")
    return tokenizer


def write_tokenizer_files(directory: Path, tokenizer_json: str) -> None:
    """tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json."""
    end = SPECIALS.index(END)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    }
    (directory / "tokenizer.json").write_text(tokenizer_json, "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": end}) + "\n", "utf-8")
