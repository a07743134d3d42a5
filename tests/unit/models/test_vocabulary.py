"""The bytes of each token equal those of its tokenizer, which does not run for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from core.errors import BadModel, UnsupportedModel
from core.models.made.maker import SPECIALS
from core.models.text.vocabulary import read_vocabulary
from tests.support.maker import make_model

TEXT = '{"Zwei Flüsse": ["日本", "🐢"], "n": -1.5e3}\n'


def written(directory: Path, tokenizer: Tokenizer) -> Path:
    (directory / "tokenizer.json").write_text(tokenizer.to_str(), "utf-8")
    return directory


def test_bytes_of_a_byte_level_tokenizer_are_its_text(tmp_path: Path) -> None:
    make_model(tmp_path, "llama", layers=1)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokens, special = read_vocabulary(tmp_path, 600)
    ids = theirs.encode(TEXT, add_special_tokens=False).ids
    assert max(map(len, (tokens[each] for each in ids))) > 1
    assert b"".join(tokens[each] for each in ids) == TEXT.encode()
    assert {tokens[each].decode() for each in special} == set(SPECIALS)
    assert tokens[512:] == [b""] * 88


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_bytes_of_a_tokenizer_that_falls_back_to_bytes_are_its_text(tmp_path: Path, kind: str) -> None:
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "▁a", "b"]
    ids = {word: number for number, word in enumerate(words)}
    unigram: Any = models.Unigram([(word, 0.0) for word in words], 0, True)
    model: Any = models.BPE(ids, [("▁", "a")], byte_fallback=True, unk_token="<unk>") if kind == "bpe" else unigram
    tokenizer = Tokenizer(model)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(parts)
    tokenizer.add_special_tokens([AddedToken("<end>")])
    tokens, special = read_vocabulary(written(tmp_path, tokenizer), len(words) + 1)
    mine = tokenizer.encode("b▁a▁日", add_special_tokens=False).ids
    assert b"".join(tokens[each] for each in mine).decode() == tokenizer.decode(mine) == "b a 日"
    assert special == {len(words)}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, UnsupportedModel),
        ({"decoder": {"type": "WordPiece"}, "model": {"vocab": {}}}, UnsupportedModel),
        ({"decoder": {"type": "ByteLevel"}, "model": {}}, BadModel),
        ({"decoder": {"type": "ByteLevel"}, "model": {"vocab": {"a": "0"}}}, BadModel),
        ({"decoder": {"type": "ByteLevel"}, "model": {"vocab": {"a": 1.5}}}, BadModel),
        ({"decoder": {"type": "ByteLevel"}, "model": {"vocab": [["\ud800"]]}}, BadModel),
        ({"decoder": {"type": "ByteFallback"}, "model": {"vocab": {"<0xZZ>": 1}}}, BadModel),
    ],
)
def test_one_that_says_no_bytes_is_refused(tmp_path: Path, content: dict[str, Any] | None, error: type) -> None:
    if content:
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(error):
        read_vocabulary(tmp_path, 10)
