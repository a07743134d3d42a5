"""Bytes of each token, from tokenizer.json, without running its rules."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from core.errors import UnsupportedModel
from core.models.files.checked_files import judged, name_of, read_json

_SPACE: Final = "▁"


class Vocabulary(NamedTuple):
    """`tokens`: bytes of each id, empty for ids without text. `special`: ids of control tokens."""

    tokens: list[bytes]
    special: frozenset[int]


def read_vocabulary(directory: Path, size: int) -> Vocabulary:
    """The vocabulary in `directory`, for ids below `size`. Raises BadModel, UnsupportedModel for other tokens."""
    content = read_json(directory, "tokenizer.json")
    with judged(directory):
        decoders = set(_types(content.get("decoder"))) if content else set()
        if content is None or not decoders & {"ByteLevel", "ByteFallback", "Metaspace"}:
            what = f"The tokens of {name_of(directory)} aren't listed as pieces of text, so no shape can be enforced."
            raise UnsupportedModel(what, "Ask without a shape, or load another model.")
        bytes_of = byte_level if "ByteLevel" in decoders else byte_fallback
        tokens, special = [b""] * size, set()
        for text, token in _words(content["model"]):
            if 0 <= token < size:
                tokens[token] = bytes_of(text)
        for added in content.get("added_tokens") or ():
            if 0 <= (token := added["id"]) < size:
                tokens[token] = added["content"].encode()
                if added["special"]:
                    special.add(token)
        return Vocabulary(tokens, frozenset(special))


def ids_fingerprint(directory: Path) -> str:
    """Hex SHA-256 of all tokens; models with equal ones can share ids. Raises BadModel, UnsupportedModel."""
    content = read_json(directory, "tokenizer.json")
    with judged(directory):
        if content is None:
            what = f"{name_of(directory)} has no tokenizer.json, so its tokens cannot be compared with another model's."
            raise UnsupportedModel(what, "Load the model without --draft.")
        words = {token: text for text, token in _words(content["model"])}
        words |= {added["id"]: added["content"] for added in content.get("added_tokens") or ()}
        return hashlib.sha256(json.dumps(sorted(words.items())).encode()).hexdigest()


def _words(model: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        yield from vocab.items()
    else:  # pieces with their log probabilities
        yield from ((piece[0], token) for token, piece in enumerate(vocab))


def _types(decoder: Any) -> Iterator[str]:
    if decoder:
        yield decoder["type"]
        for each in decoder.get("decoders", ()):
            yield from _types(each)


def _letters() -> dict[str, int]:
    """GPT-2's byte alphabet: visible bytes stand for themselves, the others for letters from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + n): byte for n, byte in enumerate(rest)}


_BYTES: Final = _letters()


def byte_level(text: str) -> bytes:
    """Bytes of a token whose letters stand for bytes."""
    try:
        return bytes(_BYTES[letter] for letter in text)
    except KeyError:  # the decoder also keeps it unchanged
        return text.encode()


def byte_fallback(text: str) -> bytes:
    """Bytes of a token that is text, with ▁ for a space, or the name of a byte."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        return bytes([int(text[3:5], 16)])
    return text.replace(_SPACE, " ").encode()
