"""Model folders with real tokenizers and chat templates: six families with small random weights, more without any."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import mlx.core as mx

from core.models.made.maker import random_model
from tests.real.packages import kept, package
from tests.support.made_configs import FAMILIES as MADE
from tests.support.made_configs import Shape
from tests.support.maker import write_weights

ROWS: Final = 128  # checkpoints round the size of a vocabulary up to a multiple


class Family(NamedTuple):
    """A family: where its files come from, and how it writes a call of get_weather for Paris."""

    name: str
    call: str
    ends: tuple[str, ...]  # tokens that end an answer
    template: str = ""  # file of the package of templates, for a tokenizer that has none or an old one
    tokenizer: str = ""  # the package with the tokenizer, if another family's has to do
    added: tuple[str, ...] = ()  # tokens of the family that this tokenizer lacks
    answer: str = "Hello!"  # a greeting; with the thought "Hm.", if the family reasons
    is_enforced: bool = True  # calls and shapes can be


_ARGUMENTS: Final = '{"city": "Paris"}'
_TAGGED: Final = f'<tool_call>\n{{"name": "get_weather", "arguments": {_ARGUMENTS}}}\n</tool_call>'
_CODER: Final = "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
_DSML: Final = (
    '<｜DSML｜KIND>\n<｜DSML｜invoke name="get_weather">\n'
    '<｜DSML｜parameter name="city" string="true">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜KIND>'
)
_THOUGHT: Final = "<think>\nHm.\n</think>\n\nHello!"
_QWEN_ENDS: Final = ("<|im_end|>", "<|endoftext|>")
_GLM_TOKENS: Final = (
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
)
_COHERE_TOKENS: Final = (
    *("<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>"),
    *("<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>"),
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    *("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"),
)
_GIGACHAT_TOKENS: Final = ("<|role_sep|>", "<|message_sep|>", "<|function_call|>")
_M3: Final = "]<]minimax[>["
_LFM_TOKENS: Final = ("<|tool_list_start|>", "<|tool_list_end|>", "<|tool_call_start|>", "<|tool_call_end|>")
_LFM_CALL: Final = '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>'
FAMILIES: Final = (
    Family("qwen3", _TAGGED, _QWEN_ENDS, answer=_THOUGHT),
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
        answer="<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!",
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
# the template with another family's tokenizer, and with the tokens of its own that this tokenizer lacks
MORE_FAMILIES: Final = (
    Family("qwen2.5", _TAGGED, _QWEN_ENDS, "Qwen-Qwen2.5-7B-Instruct.jinja", "qwen3"),
    Family("qwen3-coder", _CODER, _QWEN_ENDS, "Qwen3-Coder.jinja", "qwen3"),
    Family("qwen3.5", _CODER, _QWEN_ENDS, "Qwen3.5-4B.jinja", "qwen3", answer="Hm.\n</think>\n\nHello!"),
    Family(
        *("nemotron3", _CODER, _QWEN_ENDS, "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", "qwen3"),
        answer="Hm.\n</think>\nHello!",
    ),
    Family(
        "glm4.6",
        "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        ("<|endoftext|>", "<|user|>", "<|observation|>"),
        *("GLM-4.6.jinja", "qwen3", _GLM_TOKENS),
        answer="\n<think>Hm.</think>\nHello!",
    ),
    Family(
        "glm4.7",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        ("<|endoftext|>", "<|user|>", "<|observation|>"),
        *("GLM-4.7-Flash.jinja", "qwen3", _GLM_TOKENS),
        answer="Hm.</think>Hello!",
    ),
    Family(
        "minimax-m2",
        '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
        "</minimax:tool_call>",
        ("[e~[",),
        *("MiniMax-M2.jinja", "qwen3", ("]~!b[", "]~b]", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>")),
        answer="Hm.\n</think>\n\nHello!",
    ),
    Family(
        "minimax-m3",
        '|<tool_call>\n|<invoke name="get_weather">|<city>Paris|</city>|</invoke>\n|</tool_call>'.replace("|", _M3),
        ("[e~[",),
        *("MiniMax-M3.jinja", "qwen3", ("]~!b[", "]~b]", "[e~[", _M3, "<mm:think>", "</mm:think>")),
        answer="<mm:think>Hm.</mm:think>Hello!",
    ),
    Family("gemma2", _TAGGED, ("<eos>", "<end_of_turn>"), "google-gemma-2-2b-it.jinja", "gemma3"),
    Family(
        "gemma4",
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
        ("<eos>", "<turn|>", "<|tool_response>"),
        *("google-gemma-4-31B-it.jinja", "gemma3"),
        (
            *("<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>", "<tool|>", '<|"|>'),
            *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
        ),
        answer="<|channel>thought\nHm.\n<channel|>Hello!",
    ),
    Family(
        "llama3.2",
        f'{{"name": "get_weather", "parameters": {_ARGUMENTS}}}',
        ("<|eot_id|>", "<|end_of_text|>"),
        *("meta-llama-Llama-3.2-3B-Instruct.jinja", "llama31"),
    ),
    Family(
        "deepseek-v3.1",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{_ARGUMENTS}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("<｜end▁of▁sentence｜>",),
        *("deepseek-ai-DeepSeek-V3.1.jinja", "deepseek", ("<think>", "</think>")),
        answer="Hm.</think>Hello!",
    ),
    Family(
        "deepseek-v3.2",
        _DSML.replace("KIND", "function_calls"),
        ("<｜end▁of▁sentence｜>",),
        *("deepseek_v32", "deepseek", ("<think>", "</think>", "｜DSML｜")),  # mlx-lm's own renderer
        answer="Hm.</think>Hello!",
    ),
    Family(
        "deepseek-v4",
        _DSML.replace("KIND", "tool_calls"),
        ("<｜end▁of▁sentence｜>",),
        *("deepseek-ai-DeepSeek-V4.jinja", "deepseek", ("<think>", "</think>", "｜DSML｜")),
        answer="Hm.</think>Hello!",
    ),
    Family(
        "mistral-nemo",
        f'[TOOL_CALLS][{{"name": "get_weather", "arguments": {_ARGUMENTS}, "id": "abcdefghi"}}]',
        *(("</s>",), "mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral"),
    ),
    Family(
        "ministral3",
        f"[TOOL_CALLS]get_weather[ARGS]{_ARGUMENTS}",
        *(("</s>",), "mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral", ("[THINK]", "[/THINK]")),
        answer="[THINK]Hm.[/THINK]Hello!",
    ),
    Family(
        "muse-glimmer",
        ' to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n'
        '<atem:parameter name="city">Paris</atem:parameter>\n</atem:invoke>\n</atem:function_calls>',
        ("<|eot|>",),
        *("muse-glimmer.jinja", "llama31", ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")),
        answer=" to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hello!",
        is_enforced=False,
    ),
    Family(
        "seed-oss",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n</function>\n</seed:tool_call>",
        ("<seed:eos>",),
        *("ByteDance-Seed-OSS.jinja", "qwen3"),
        (
            *("<seed:bos>", "<seed:eos>", "<seed:pad>", "<seed:think>", "</seed:think>"),
            *("<seed:tool_call>", "</seed:tool_call>"),
        ),
        answer="<seed:think>Hm.</seed:think>\nHello!",
    ),
    Family(
        "apertus",
        f'<|tools_prefix|>[{{"get_weather": {_ARGUMENTS}}}]<|tools_suffix|>',
        ("<|assistant_end|>",),
        *("Apertus-8B-Instruct.jinja", "mistral"),
        (
            *(f"<|{role}_{end}|>" for role in ("system", "developer", "user", "assistant") for end in ("start", "end")),
            *("<|inner_prefix|>", "<|inner_suffix|>", "<|tools_prefix|>", "<|tools_suffix|>"),
        ),
        answer="<|inner_prefix|>Hm.<|inner_suffix|>Hello!",
    ),
    Family(
        "command-r7b",
        f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {_ARGUMENTS}}}\n]'
        "<|END_ACTION|>",
        ("<|END_OF_TURN_TOKEN|>",),
        *("CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "qwen3", _COHERE_TOKENS),
        answer="<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hello!<|END_RESPONSE|>",
    ),
    Family(
        "gigachat3",
        f'<|message_sep|>\n\nfunction call<|role_sep|>\n{{"name": "get_weather", "arguments": {_ARGUMENTS}}}',
        *(("<|endoftext|>",), "GigaChat3-10B-A1.8B.jinja", "qwen3", _GIGACHAT_TOKENS),
    ),
    Family(
        "gigachat3.1",
        f'<|function_call|>{{"name": "get_weather", "arguments": {_ARGUMENTS}}}',
        *(("<|message_sep|>",), "GigaChat3.1-10B-A1.8B.jinja", "qwen3", _GIGACHAT_TOKENS),
    ),
    Family("lfm2", _LFM_CALL, ("<|im_end|>",), "LFM2-8B-A1B.jinja", "qwen3", _LFM_TOKENS),
    Family(
        *("lfm2.5", _LFM_CALL, ("<|im_end|>",), "LFM2.5-8B-A1B.jinja", "qwen3", _LFM_TOKENS),
        answer="<think>Hm.</think>Hello!",
    ),
)
# added tokens of these forms are no control tokens in the tokenizers of their families
_TEXT_TOKEN: Final = re.compile(r"</?(think|arg_\w+|(seed|minimax|mm):\w+)>|｜DSML｜|\[/?THINK\]")


def make_family(family: Family, folder: Path) -> None:
    """Write the model into `folder`, which must exist. Raises Unreachable."""
    ids = write_tokenizer(family, folder)
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
    config = MADE["llama"](shape) | json.loads((folder / "config.json").read_text())
    write_weights(folder, random_model(config, 1, mx.float32), 1)
    (folder / "config.json").write_text(json.dumps(config))


def write_tokenizer(family: Family, folder: Path) -> dict[str, int]:
    """Write the tokenizer, the chat template and the end tokens. Returns all tokens by their text. Raises
    Unreachable.
    """
    name = family.tokenizer or family.name
    if name == "mistral":
        source = package("mistral") / "tekken_240911.json"
        made = kept("mistral-tokenizer", lambda place: _write_tekken(source, place))
        shutil.copytree(made, folder, dirs_exist_ok=True)
    else:
        shutil.copytree(package(name), folder, dirs_exist_ok=True)
    if family.template.endswith(".jinja"):
        shutil.copy(package("templates") / family.template, folder / "chat_template.jinja")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    if family.added:  # a class of transformers would know only the tokens of its own family
        settings = {**settings, "tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": {}}
    if family.template and not family.template.endswith(".jinja"):
        settings = {**settings, "chat_template": None, "chat_template_type": family.template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids: dict[str, int] = tokenizer["model"]["vocab"] | {
        each["content"]: each["id"] for each in tokenizer["added_tokens"]
    }
    for token, at in zip(family.added, range(max(ids.values()) + 1, sys.maxsize), strict=False):
        ids[token] = at
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        is_special = not _TEXT_TOKEN.fullmatch(token)
        tokenizer["added_tokens"].append({"id": at, "content": token, **flags, "special": is_special})
    if family.added:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"model_type": "llama", "eos_token_id": [ids[end] for end in family.ends]}
    (folder / "config.json").write_text(json.dumps(config))
    return ids


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
