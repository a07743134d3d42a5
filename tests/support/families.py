"""Tool calls as the families of mlx-lm write them, with the attributes that the reader of answers needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

from core.answer_parts import AnswerPart, Tool
from core.models.text.answer_reader import AnswerReader, edges_of
from core.models.text.call_forms import JSON_TAGS, form_of
from core.models.text.harmony import EDGES, as_tags

# for each form of our own: the part of a chat template that shows it
TEMPLATES: Final = {
    "deepseek": "<｜tool▁call▁begin｜>function<｜tool▁sep｜> ```json",
    "dsml": "<｜DSML｜invoke",
    "dsml_4": "<｜DSML｜ dsml_token + 'tool_calls",
    "apertus": "<|tools_prefix|>",
    "cohere": "<|START_ACTION|>",
    "minimax_m3": "]<]minimax[>[",
    "gigachat": "<|role_sep|>",
    "gigachat_31": "<|role_sep|> <|function_call|>",
    "seed": "<seed:tool_call>",
    "deepseek_31": "<｜tool▁call▁begin｜>{{ name }}<｜tool▁sep｜>",
    "llama": """ipython '"parameters": '""",
    "mistral_list": "[TOOL_CALLS][",
    "mistral_ids": "[TOOL_CALLS]{{ name }}[CALL_ID]",
    "apriel": "<tool_calls>",
    "nemotron": "<TOOLCALL>",
    "phi": "<|tool_call|>",
}


class Family:
    """The part of a wrapped tokenizer that the reader of answers needs, for the family with that parser or form."""

    think_start, think_end = "<think>", "</think>"
    has_thinking = True
    structural_markers: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.response_transitions: dict[str, Any] = {}
        self.tool_parser: Any = None
        self.chat_template = TEMPLATES.get(name, "")
        self._tokenizer, self._chat_template = self, None
        if not self.chat_template:
            module = import_module(f"mlx_lm.tool_parsers.{name}")
            self.tool_parser = module.parse_tool_call
            self.tool_call_start: str = module.tool_call_start
            self.tool_call_end: str = module.tool_call_end
            self.chat_template = f"{module.tool_call_start}[ARGS]"
        self.form = form_of(self)

    def reader(self, tools: tuple[Tool, ...]) -> AnswerReader:
        return AnswerReader(edges_of(self, self.form, bool(tools)), self.form, "normal", tools)


class Harmony:
    """Reads text with harmony's marks; each mark is one token."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._reader, self._written = AnswerReader(EDGES, JSON_TAGS, "normal", tools), ""

    def read(self, text: str) -> list[AnswerPart]:
        self._written += text
        return []

    def end(self, is_whole: bool) -> list[AnswerPart]:
        return self._reader.read(as_tags(self._written)) + self._reader.end(is_whole)


class Written(NamedTuple):
    """A call of look_up with the word "hop", the text between two calls, and the text around all of them."""

    call: str
    between: str = ""
    around: str = ""


_JSON: Final = '{"name": "look_up", "arguments": {"word": "hop"}}'
FAMILIES: Final = {
    "function_gemma": Written("call:look_up{word:<escape>hop<escape>}", "<end_function_call><start_function_call>"),
    "gemma4": Written('call:look_up{word:<|"|>hop<|"|>}'),
    "glm47": Written("look_up<arg_key>word</arg_key><arg_value>hop</arg_value>", "</tool_call>\n<tool_call>"),
    "json_tools": Written(_JSON, "</tool_call><tool_call>"),
    "kimi_k2": Written(
        '<|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>{"word": "hop"}<|tool_call_end|>'
    ),
    "kimi_k3": Written(
        '<|open|>call tool="look_up"<|sep|><|open|>argument key="word"<|sep|>hop<|close|>argument<|sep|>'
        "<|close|>call<|sep|>"
    ),
    "longcat": Written(_JSON, "</longcat_tool_call><longcat_tool_call>"),
    "minicpm5": Written('"look_up"><param name="word">hop</param>', "</function><function name="),
    "minimax_m2": Written('<invoke name="look_up"><parameter name="word">hop</parameter></invoke>', "\n"),
    "mistral": Written('look_up[ARGS]{"word": "hop"}'),
    "muse_spark": Written('<atem:invoke name="look_up"><atem:parameter name="word">hop</atem:parameter></atem:invoke>'),
    "pythonic": Written('look_up(word="hop")', ", ", "[]"),
    "qwen3_coder": Written(
        "<function=look_up>\n<parameter=word>\nhop\n</parameter>\n</function>", "</tool_call>\n<tool_call>"
    ),
}


def written(parser: str, *calls: str) -> str:
    """An answer with tool calls in that form."""
    family, (_, between, around) = Family(parser), FAMILIES[parser]
    inside = f"{around[:1]}{between.join(calls)}{around[1:]}"
    return f"So: {family.tool_call_start}{inside}{family.tool_call_end}"
