"""How model families write tool calls, and the readers of the forms that mlx-lm reads wrongly or not at all.

`form_of` chooses a model's form once, from its chat template and its vocabulary, never from its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

# a call as its family's reader finds it: name, arguments, perhaps an id
Found = Mapping[str, Any]
Parse = Callable[[str, list[dict[str, Any]]], list[Found]]


class CallForm(NamedTuple):
    """A family's form of calls."""

    name: str  # of the grammar that enforces it
    openings: tuple[str, ...]
    closing: str  # "": the end of the answer
    parse: Parse  # raises any error for text that is no call
    is_json: bool = False  # what follows an opening is JSON, so a closing inside a string is part of it
    is_bare: bool = False  # an answer that begins like a call is one, without an opening
    is_single: bool = False  # the template takes one call per message


def json_calls(written: str, *, arguments: tuple[str, ...] = ("arguments",)) -> list[Found]:
    """Calls written as JSON objects or lists of them, one after the other. Raises ValueError."""
    decoder, text = json.JSONDecoder(strict=False), _repaired(written)
    calls: list[Found] = []
    at = _skip(text, 0)
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        calls += [_named(each, arguments) for each in (value if isinstance(value, list) else [value])]
        at = _skip(text, at)
    return calls


def _named(found: Any, keys: tuple[str, ...]) -> Found:
    """Name and arguments of an object. Raises ValueError or TypeError."""
    inner = found.get("function")
    found = inner if isinstance(inner, dict) else found
    key = next((key for key in keys if key in found), None)
    if key is None and found.keys() - {"name", "type", "id"}:
        raise ValueError("not a call")
    return {"name": found["name"], "arguments": found[key] if key else {}, "id": found.get("id")}


_BACKSLASH: Final = re.compile(r"\\(.)", re.DOTALL)
_COMMA: Final = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])', re.DOTALL)
_STRING: Final = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)


def _repaired(written: str) -> str:
    r"""The text with the mistakes corrected that models make in JSON: `\d` in a string, and a comma before an end."""
    text = _BACKSLASH.sub(lambda found: found[0] if found[1] in '"\\/bfnrtu' else f"\\{found[0]}", written)
    return _COMMA.sub(lambda found: found[1] or "", text)


def _skip(text: str, at: int) -> int:
    """The first index from `at` that isn't between two calls."""
    return len(text) - len(text[at:].lstrip(" \t\r\n;,"))


def is_closed(written: str) -> bool:
    """Whether JSON ends outside a string."""
    return '"' not in _STRING.sub("", written)


def _tags(written: str, _: object) -> list[Found]:
    return json_calls(written)


def _llama(written: str, _: object) -> list[Found]:
    return json_calls(written, arguments=("parameters", "arguments"))


_CALL_ID: Final = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*(\w+)\s*)?\[ARGS\]\s*")


def _mistral(written: str, _: object) -> list[Found]:
    """`name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}`, each perhaps after another opening, or a JSON list."""
    decoder, calls = json.JSONDecoder(strict=False), []
    for text in filter(str.strip, written.split("[TOOL_CALLS]")):
        if text.lstrip().startswith("["):
            calls += json_calls(text)
            continue
        text, at = _repaired(text), 0
        while text[at:].strip():
            if not (head := _CALL_ID.match(text, at)):
                raise ValueError("not a call")
            arguments, at = decoder.raw_decode(text, head.end())
            calls.append({"name": head[1], "arguments": arguments, "id": head[2]})
    return calls


_CALL: Final = re.compile(r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)<｜tool▁call▁end｜>", re.DOTALL)
_FENCED: Final = re.compile(r"\s*([^\n]*?)\s*\n```(?:json)?\n(.*?)\s*```\s*", re.DOTALL)


def _deepseek(written: str, _: object) -> list[Found]:
    """V3 and R1 write the name after the separator and fence the arguments, V3.1 writes the name before it."""
    calls: list[Found] = []
    for head, body in _CALL.findall(written):
        fenced = _FENCED.fullmatch(body)
        name, arguments = fenced.groups() if fenced else (head.strip(), body)
        calls.append({"name": name, "arguments": json.loads(_repaired(arguments), strict=False)})
    if _CALL.sub("", written).strip():
        raise ValueError("not only calls")
    return calls


_INVOKE: Final = re.compile(r'<｜DSML｜invoke name="([^"]*)">(.*?)</｜DSML｜invoke>', re.DOTALL)
_PARAMETER: Final = re.compile(
    r'<｜DSML｜parameter name="([^"]*)" string="(true|false)">(.*?)</｜DSML｜parameter>', re.DOTALL
)


def _dsml(written: str, _: object) -> list[Found]:
    """DeepSeek V3.2 and V4: each argument between tags, as text or as JSON."""
    if _INVOKE.sub("", written).strip():
        raise ValueError("not only calls")
    return [
        {
            "name": name,
            "arguments": {key: text if is_text == "true" else json.loads(text) for key, is_text, text in arguments},
        }
        for name, body in _INVOKE.findall(written)
        for arguments in [_PARAMETER.findall(body)]
    ]


_JSON_FORMS: Final = (
    CallForm("json_tools", ("<tool_call>",), "</tool_call>", _tags, is_json=True),
    CallForm("phi", ("<|tool_call|>",), "<|/tool_call|>", _tags, is_json=True),
    CallForm("nemotron", ("<TOOLCALL>",), "</TOOLCALL>", _tags, is_json=True),
    CallForm("apriel", ("<tool_calls>",), "</tool_calls>", _tags, is_json=True),
)
JSON_TAGS: Final = _JSON_FORMS[0]
_LLAMA: Final = CallForm("llama", ("<|python_tag|>",), "", _llama, is_json=True, is_bare=True, is_single=True)
_DEEPSEEK: Final = CallForm("deepseek", ("<｜tool▁calls▁begin｜>",), "<｜tool▁calls▁end｜>", _deepseek)
_DSML: Final = CallForm("dsml", ("<｜DSML｜function_calls>",), "</｜DSML｜function_calls>", _dsml)
_MISTRAL: Final = CallForm("mistral", ("[TOOL_CALLS]",), "", _mistral)
# calls by form, and what stands between two of them; NAME, ARGUMENTS and CALLID are a call's own
EXAMPLES: Final = {
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "deepseek_31": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "apriel": ('<tool_calls>[{"name": "NAME", "arguments": ARGUMENTS}]</tool_calls>',),
    "json_tools": ('<tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>',),
    "llama": ('{"name": "NAME", "parameters": ARGUMENTS}',),
    "mistral": ("[TOOL_CALLS]NAME[ARGS]ARGUMENTS", ""),
    "mistral_list": ('[TOOL_CALLS][{"name": "NAME", "arguments": ARGUMENTS}]', ""),
    "mistral_ids": ("[TOOL_CALLS]NAME[CALL_ID]CALLID[ARGS]ARGUMENTS", ""),
    "nemotron": ('<TOOLCALL>[{"name": "NAME", "arguments": ARGUMENTS}]</TOOLCALL>',),
    "phi": ('<|tool_call|>[{"name": "NAME", "arguments": ARGUMENTS}]<|/tool_call|>',),
}
# their calls are read with the parsers above
_OWN: Final = ("json_tools", "mistral")


def template_of(wrapper: Any) -> str:
    """A model's chat template; several, such as one for tools, as one text."""
    template = wrapper._tokenizer.chat_template or ""
    return template if isinstance(template, str) else "\n".join(template.values())


def form_of(wrapper: Any) -> CallForm:
    """The form of a model; that of tags for one whose template knows no calls."""
    template = template_of(wrapper)
    if wrapper.tool_parser and (parser := wrapper.tool_parser.__module__.rpartition(".")[2]) not in _OWN:
        return foreign(parser, wrapper.tool_call_start, wrapper.tool_call_end, wrapper.tool_parser)
    if "[TOOL_CALLS]" in template:
        names = {"[CALL_ID]": "mistral_ids", "[ARGS]": "mistral"}
        return _MISTRAL._replace(name=next((names[mark] for mark in names if mark in template), "mistral_list"))
    if "<｜tool▁call▁begin｜>" in template:
        return _DEEPSEEK if "```json" in template else _DEEPSEEK._replace(name="deepseek_31")
    if "｜DSML｜" in template or "deepseek" in getattr(wrapper._chat_template, "__module__", ""):
        named = "tool_calls" if "dsml_token + 'tool_calls" in template else "function_calls"
        return _DSML._replace(openings=(f"<｜DSML｜{named}>",), closing=f"</｜DSML｜{named}>")
    if '"parameters": ' in template and "ipython" in template and "<tool_call" not in template:
        return _LLAMA
    return next((form for form in _JSON_FORMS if form.openings[0] in template), JSON_TAGS)


# start of each call, for parsers of mlx-lm that skip calls they don't understand
_OPENERS: Final = {
    "function_gemma": "call:",
    "gemma4": "call:",
    "kimi_k2": "<|tool_call_begin|>",
    "kimi_k3": "<|open|>call",
    "minimax_m2": "<invoke",
    "muse_spark": "<atem:invoke",
    "qwen3_coder": "<function=",
}


def foreign(name: str, opening: str, closing: str, parser: Callable[..., Any]) -> CallForm:
    """A form that a parser of mlx-lm reads."""

    def parse(written: str, tools: list[dict[str, Any]]) -> list[Found]:
        found = parser(written, tools)
        calls = found if isinstance(found, list) else [found]
        if (opener := _OPENERS.get(name)) and written.count(opener) > len(calls):
            raise ValueError("a call was skipped")
        return calls

    return CallForm(name, (opening,), closing, parse)


def pieces(example: str) -> Iterator[str]:
    """The parts of an example: text, and the words that a call replaces."""
    yield from filter(None, re.split("(NAME|ARGUMENTS|CALLID)", example))
