"""Text that would control a terminal, and a model that writes nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import pre_tokenizers

from tests.support.maker import make_model


def payloads(marker: str) -> tuple[str, ...]:
    """Texts that would each change a terminal; `marker` is the part that may be read."""
    return (
        f"\x1b]52;c;{marker}\x07",
        f"\x1b]0;{marker}\x1b\\",
        f"\x1b[2J\x1b[6n{marker}",
        f"\x1bP+q{marker}\x1b\\",
        f"\x1b_{marker}\x1b\\",
        f"\x9b31m{marker}\x9d0;x\x9c",
        f"\u202e{marker}\u2066\u200f",
        f"\x1b[31;8;66m{marker}\x1bc\x08\x0b\x0c\x7f\0",
    )


def hostile_model(directory: Path, marker: str) -> None:
    """A tiny model; every token except the single bytes is one of the payloads, with its number in it."""
    make_model(directory, "llama", layers=4)
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    spell = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words: dict[str, int] = tokenizer["model"]["vocab"]
    special = {token["content"] for token in tokenizer["added_tokens"]}
    made = {}
    for word, number in words.items():
        if len(word) > 1 and word not in special:
            text = payloads(f"{marker} ")[number % len(payloads(""))] + f"{number} "
            word = "".join(piece for piece, _ in spell.pre_tokenize_str(text))
        made[word] = number
    tokenizer["model"] |= {"vocab": made, "merges": []}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
