"""How model families write tool calls, and the readers of the forms that mlx-lm reads wrongly or not at all.

`form_of` chooses a model's form once, from its chat template and its vocabulary, never from its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from mlx_lm.tool_parsers import qwen3_coder

# a call as its family's reader finds it: name, arguments, perhaps an id
Found = Mapping[str, Any]
Parse = Callable[[str, list[dict[str, Any]]], list[Found]]


class CallForm(NamedTuple):
    """A family's form of calls."""

    name: str
    opening: str
    closing: str  # "": the end of the answer
    parse: Parse  # raises any error for text that is no call
    body: str = ""  # a call between them, with NAME, ARGUMENTS, CALLID, INDEX for its own; "" if it isn't in JSON
    between: str = "\n"  # two calls
    is_json: bool = False  # what follows an opening is JSON, so a closing inside a string is part of it
    is_bare: bool = False  # an answer that begins like a call is one, without an opening
    is_single: bool = False  # the template takes one call per message


def json_calls(
    written: str, _: object = None, *, name: str = "name", arguments: tuple[str, ...] = ("arguments",)
) -> list[Found]:
    """Calls written as JSON objects or lists of them, one after the other, with these keys. Raises ValueError."""
    decoder, text = json.JSONDecoder(strict=False), _repaired(written)
    calls: list[Found] = []
    at = _skip(text, 0)
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        calls += [_named(each, name, arguments) for each in (value if isinstance(value, list) else [value])]
        at = _skip(text, at)
    return calls


def _named(found: Any, name: str, keys: tuple[str, ...]) -> Found:
    """Name and arguments of an object. Raises ValueError or TypeError."""
    inner = found.get("function")
    found = inner if isinstance(inner, dict) else found
    key = next((key for key in keys if key in found), None)
    if key is None and found.keys() - {"name", "type", "id"}:
        raise ValueError("not a call")
    return {"name": found[name], "arguments": found[key] if key else {}, "id": found.get("id")}


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


_CALL_ID: Final = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*(?P<id>\w+)\s*)?\[ARGS\]\s*")


def _mistral(written: str, _: object) -> list[Found]:
    """`name[ARGS]{…}`, `name[CALL_ID]id[ARGS]{…}`, each perhaps after another opening, or a JSON list."""
    calls: list[Found] = []
    for text in filter(str.strip, written.split("[TOOL_CALLS]")):
        calls += json_calls(text) if text.lstrip().startswith("[") else _headed(_CALL_ID, text)
    return calls


def _headed(head: re.Pattern[str], written: str) -> list[Found]:
    """Calls one after the other, each a head with its name and a JSON object. Raises ValueError."""
    decoder, text, at = json.JSONDecoder(strict=False), _repaired(written), 0
    calls: list[Found] = []
    while text[at:].strip():
        if not (found := head.match(text, at)):
            raise ValueError("not a call")
        arguments, at = decoder.raw_decode(text, found.end())
        calls.append({**found.groupdict(), "arguments": arguments})
    return calls


_GEMMA_HEAD: Final = re.compile(r"\s*call:(?P<name>[^\s{]+)")
_GEMMA_TEXT: Final = re.compile(r'<\|"\|>(.*?)<\|"\|>|"(?:\\.|[^"\\])*"|([{,]\s*)([^\s"{}\[\],:<]+)(?=\s*:)', re.DOTALL)


def _gemma(written: str, _: object) -> list[Found]:
    """`call:name{key:<|"|>text<|"|>}`: JSON without quotes around keys, and with marks around text."""

    def quoted(found: re.Match[str]) -> str:
        text, before, key = found.groups()
        return f'{before}"{key}"' if key else found[0] if text is None else json.dumps(text)

    return _headed(_GEMMA_HEAD, _GEMMA_TEXT.sub(quoted, written))


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


_INVOKE: Final = re.compile(
    r'<｜DSML｜invoke name="([^"]*)">((?>\s|<｜DSML｜parameter .*?</｜DSML｜parameter>)*+)</｜DSML｜invoke>', re.DOTALL
)
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


_M3: Final = "]<]minimax[>["  # before each tag


def _minimax_m3(written: str, tools: list[dict[str, Any]]) -> list[Found]:
    """Arguments as XML, also those in objects and lists."""
    if _M3 not in written:
        return json_calls(written)
    pieces = [piece.partition(">") for piece in written.split(_M3)[1:]]
    calls = ElementTree.fromstring(f"<calls>{''.join(f'{tag}>{escape(text)}' for tag, _, text in pieces)}</calls>")
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    named = [(call.attrib["name"], call) for call in calls]
    return [{"name": name, "arguments": _by_type(call, {**schemas[name], "type": "object"})} for name, call in named]


def _by_type(found: ElementTree.Element, schema: Any) -> Any:
    """Value of an element, by the type that the schema gives it."""
    schema = schema if isinstance(schema, dict) else {}
    kind, known, text = schema.get("type"), schema.get("properties") or {}, found.text or ""
    if kind == "array":
        return [_by_type(each, schema.get("items")) for each in found]
    if kind == "object" or len(found):
        return {each.tag: _by_type(each, known.get(each.tag)) for each in found}
    with suppress(ValueError):
        return text if kind == "string" else json.loads(text)
    return text


def _apertus(written: str, _: object) -> list[Found]:
    calls = json.loads(_repaired(written), strict=False)
    return [{"name": name, "arguments": arguments} for call in calls for name, arguments in call.items()]


# start of each call, for parsers of mlx-lm that skip calls they don't understand
_OPENERS: Final = {
    "function_gemma": "call:",
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

    return CallForm(name, opening, closing, parse)


_OBJECT: Final = '{"name": "NAME", "arguments": ARGUMENTS}'
_cohere: Final = partial(json_calls, name="tool_name", arguments=("parameters",))
_COHERE_BODY: Final = '[\n    {"tool_call_id": "0", "tool_name": "NAME", "parameters": ARGUMENTS}\n]'
_FORMS: Final = (
    CallForm("json_tools", "<tool_call>", "</tool_call>", json_calls, f"\n{_OBJECT}\n", is_json=True),
    CallForm("phi", "<|tool_call|>", "<|/tool_call|>", json_calls, f"[{_OBJECT}]", is_json=True),
    CallForm("nemotron", "<TOOLCALL>", "</TOOLCALL>", json_calls, f"[{_OBJECT}]", is_json=True),
    CallForm("apriel", "<tool_calls>", "</tool_calls>", json_calls, f"[{_OBJECT}]", is_json=True),
    CallForm("gemma4", "<|tool_call>", "<tool_call|>", _gemma, between=""),
    foreign("seed", "<seed:tool_call>", "</seed:tool_call>", qwen3_coder.parse_tool_call),
    CallForm("apertus", "<|tools_prefix|>", "<|tools_suffix|>", _apertus, '[{"NAME": ARGUMENTS}]', is_json=True),
    CallForm("cohere", "<|START_ACTION|>", "<|END_ACTION|>", _cohere, _COHERE_BODY, is_json=True),
    CallForm("gigachat", "<|function_call|>", "", json_calls, _OBJECT, is_json=True, is_single=True),
)
JSON_TAGS: Final = _FORMS[0]
_MINIMAX_M3: Final = JSON_TAGS._replace(
    name="minimax_m3", opening=f"{_M3}<tool_call>", closing=f"{_M3}</tool_call>", parse=_minimax_m3, is_json=False
)
_GIGACHAT_3: Final = _FORMS[-1]._replace(opening="<|message_sep|>\n\nfunction call<|role_sep|>\n")
_llama: Final = partial(json_calls, arguments=("parameters", "arguments"))
_LLAMA_BODY: Final = '{"name": "NAME", "parameters": ARGUMENTS}'
_LLAMA: Final = CallForm("llama", "<|python_tag|>", "", _llama, _LLAMA_BODY, is_json=True, is_bare=True, is_single=True)
_DEEPSEEK: Final = CallForm(
    "deepseek", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", _deepseek,
    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\nARGUMENTS\n```<｜tool▁call▁end｜>",
)  # fmt: skip
_DEEPSEEK_31: Final = "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>ARGUMENTS<｜tool▁call▁end｜>"
_DSML: Final = CallForm("dsml", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>", _dsml)
_MISTRAL: Final = CallForm("mistral", "[TOOL_CALLS]", "", _mistral, "NAME[ARGS]ARGUMENTS", between="")
_MISTRAL_IDS: Final = "NAME[CALL_ID]CALLID[ARGS]ARGUMENTS"
_KIMI: Final = "<|tool_call_begin|>functions.NAME:INDEX<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|>"
# their calls are read with the parsers above
_OWN: Final = ("json_tools", "mistral", "gemma4")


def template_of(wrapper: Any) -> str:
    """A model's chat template; several, such as one for tools, as one text."""
    template = wrapper._tokenizer.chat_template or ""
    return template if isinstance(template, str) else "\n".join(template.values())


def form_of(wrapper: Any) -> CallForm:
    """The form of a model; that of tags for one whose template knows no calls."""
    template = template_of(wrapper)
    if wrapper.tool_parser and (parser := wrapper.tool_parser.__module__.rpartition(".")[2]) not in _OWN:
        form = foreign(parser, wrapper.tool_call_start, wrapper.tool_call_end, wrapper.tool_parser)
        return form._replace(body=_KIMI, between="") if parser == "kimi_k2" else form
    if "[TOOL_CALLS]" in template:
        if "[CALL_ID]" in template:
            return _MISTRAL._replace(body=_MISTRAL_IDS)
        return _MISTRAL if "[ARGS]" in template else _MISTRAL._replace(body=f"[{_OBJECT}]")
    if "<｜tool▁call▁begin｜>" in template:
        return _DEEPSEEK if "```json" in template else _DEEPSEEK._replace(body=_DEEPSEEK_31)
    if "｜DSML｜" in template or "deepseek" in getattr(wrapper._chat_template, "__module__", ""):
        if "dsml_token + 'tool_calls" in template:
            return _DSML._replace(opening="<｜DSML｜tool_calls>", closing="</｜DSML｜tool_calls>")
        return _DSML
    if _M3 in template:
        return _MINIMAX_M3
    if "<|role_sep|>" in template and "<|function_call|>" not in template:
        return _GIGACHAT_3
    if '"parameters": ' in template and "ipython" in template and "<tool_call" not in template:
        return _LLAMA
    return next((form for form in _FORMS if form.opening in template), JSON_TAGS)
