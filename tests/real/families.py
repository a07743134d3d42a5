"""Model folders with the real tokenizers and chat templates of six families, and small random weights."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

import mlx.core as mx

from core.models.made.made_configs import Shape, config_of
from core.models.made.maker import random_model, write_weights
from tests.real.packages import kept, package

ROWS: Final = 128  # checkpoints round the size of a vocabulary up to a multiple


class Family(NamedTuple):
    """A family: where its files come from, and how it writes a call of get_weather for Paris."""

    name: str
    call: str
    ends: tuple[str, ...]  # tokens that end an answer
    template: str = ""  # file of the package of templates, for a tokenizer that has none or an old one


_ARGUMENTS: Final = '{"city": "Paris"}'
_TAGGED: Final = f'<tool_call>\n{{"name": "get_weather", "arguments": {_ARGUMENTS}}}\n</tool_call>'
FAMILIES: Final = (
    Family("qwen3", _TAGGED, ("<|im_end|>", "<|endoftext|>")),
    Family("gemma3", _TAGGED, ("<eos>", "<end_of_turn>")),
    Family(
        "llama31",
        f'{{"name": "get_weather", "parameters": {_ARGUMENTS}}}',
        ("<|eot_id|>", "<|end_of_text|>"),
        "meta-llama-Llama-3.1-8B-Instruct.jinja",
    ),
    Family(
        "gptoss",
        f"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{_ARGUMENTS}<|call|>",
        ("<|return|>", "<|call|>"),
        "openai-gpt-oss-120b.jinja",
    ),
    Family(
        "deepseek",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        f"```json\n{_ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("<｜end▁of▁sentence｜>",),
    ),
    Family(
        "mistral",
        f"[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{_ARGUMENTS}",
        ("</s>",),
        "Mistral-Small-3.2-24B-Instruct-2506.jinja",
    ),
)


def make_family(family: Family, folder: Path) -> None:
    """Write the model into `folder`, which must exist. Raises Unreachable."""
    if family.name == "mistral":
        source = package("mistral") / "tekken_240911.json"
        made = kept("mistral-tokenizer", lambda place: _write_tekken(source, place))
        shutil.copytree(made, folder, dirs_exist_ok=True)
    else:
        shutil.copytree(package(family.name), folder, dirs_exist_ok=True)
    if family.template:
        shutil.copy(package("templates") / family.template, folder / "chat_template.jinja")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = tokenizer["model"]["vocab"] | {each["content"]: each["id"] for each in tokenizer["added_tokens"]}
    shape = Shape(
        layers=3,
        hidden=64,
        intermediate=128,
        vocab=-(-(max(ids.values()) + 1) // ROWS) * ROWS,
        heads=4,
        kv_heads=2,
        head_dim=16,
        context=8192,
    )
    config = config_of("llama", shape) | {"eos_token_id": [ids[end] for end in family.ends]}
    write_weights(folder, random_model(config, 1, mx.float32), 1)
    (folder / "config.json").write_text(json.dumps(config))


# control tokens of Mistral's tokenizers of this version by their ids; the other ids below 1000 are unused
_CONTROL: Final = {
    **dict(enumerate(("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"))),
    **dict(enumerate(("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]"), 7)),
    **dict(enumerate(("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"), 17)),
    **dict(enumerate(("[ARGS]", "[CALL_ID]"), 32)),
}


def _write_tekken(file: Path, folder: Path) -> None:
    """Write Mistral's tekken.json as a tokenizer.json."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tekken = json.loads(file.read_text())
    facts = tekken["config"]
    control = facts["default_num_special_tokens"]
    pieces = [base64.b64decode(e["token_bytes"]) for e in tekken["vocab"][: facts["default_vocab_size"] - control]]
    letters: dict[int, str] = bytes_to_unicode()

    def word(piece: bytes) -> str:
        return "".join(letters[byte] for byte in piece)

    ranks = {piece: rank for rank, piece in enumerate(pieces)}
    names = [_CONTROL.get(at, f"<SPECIAL_{at}>") for at in range(control)]
    vocabulary = {name: at for at, name in enumerate(names)} | {word(p): control + at for p, at in ranks.items()}
    merges = [(word(left), word(right)) for piece in pieces for left, right in _halves(piece, ranks)]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(facts["pattern"]), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _halves(piece: bytes, ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """The pairs of tokens that merge into a token, the most frequent first."""
    pairs = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
    known = [(left, right) for left, right in pairs if left in ranks and right in ranks]
    return sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
