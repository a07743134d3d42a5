"""Answers of a model, read by the parsers of every family: the result does not depend on how the text is cut."""

from __future__ import annotations

import json
from collections.abc import Callable

from core.answer_parts import AnswerPart, Tool, ToolCall
from core.models.text.answer_reader import AnswerReader
from core.models.text.harmony import HarmonyReader
from core.models.text.text_messages import Parts
from core.pipe_messages import pack
from tests.fuzz.target import Target
from tests.support.families import FAMILIES, Family, written

_OWN = {
    "apriel": '<tool_calls>[{"name": "look_up"}]</tool_calls>',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
    "look_up<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "dsml": '<｜DSML｜function_calls><｜DSML｜invoke name="look_up"></｜DSML｜invoke></｜DSML｜function_calls>',
    "llama": '{"name": "look_up", "parameters": {}}; <|python_tag|>{"name": "look_up"}',
    "mistral_ids": "[TOOL_CALLS]look_up[CALL_ID]abcdefghi[ARGS]{}",
    "harmony": "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant to=functions.look_up<|channel|>commentary"
    " <|constrain|>json<|message|>{}<|call|>",
}
Reads = Callable[[tuple[Tool, ...]], AnswerReader]
_NAMES = (*FAMILIES, *_OWN)
_READERS: tuple[Reads, ...] = (*(Family(name).reader for name in _NAMES if name != "harmony"), HarmonyReader)
_SCHEMA = '{"type": "object", "properties": {"word": {"type": "string"}}}'
_TOOLS = (Tool(name="look_up", parameters=_SCHEMA),)


def attack(data: bytes) -> None:
    """Read text; the first byte chooses the family, the second one the size of the pieces."""
    number = data[0] % len(_NAMES) if data else 0
    family = _READERS[number]
    size = 1 + (data[1] if len(data) > 1 else 0) % 16
    text = data[2:].decode("utf-8", "replace")
    for is_whole in (True, False):
        at_once = _told(family, [text], is_whole)
        assert at_once == _told(family, [text[at : at + size] for at in range(0, len(text), size)], is_whole)
        if _NAMES[number] != "harmony" and not any(kind == "ToolCall" for kind, _ in at_once):
            assert _bare("".join(said for _, said in at_once)) == _bare(text), "but for marks and white space"


def _bare(text: str) -> str:
    for mark in (Family.think_start, Family.think_end):
        text = text.replace(mark, "")
    return "".join(text.split())


def _told(family: Reads, pieces: list[str], is_whole: bool) -> list[tuple[str, str]]:
    """The parts of an answer, with neighbours of the same kind joined."""
    reader = family(_TOOLS)
    parts: list[AnswerPart] = [part for piece in pieces for part in reader.read(piece)] + reader.end(is_whole)
    pack(Parts(parts=tuple(parts)))
    told: list[tuple[str, str]] = []
    for part in parts:
        kind = type(part).__name__
        if isinstance(part, ToolCall):
            assert isinstance(json.loads(part.arguments), dict)
            told.append((kind, f"{part.name} {part.arguments}"))
        elif told and told[-1][0] == kind:
            told[-1] = (kind, told[-1][1] + part.text)
        else:
            told.append((kind, part.text))
    return told


def target() -> Target:
    """Calls of each family, after a thought."""
    seeds = [bytes([len(FAMILIES) + number, 3]) + text.encode() for number, text in enumerate(_OWN.values())]
    for number, name in enumerate(FAMILIES):
        call = FAMILIES[name].call
        seeds.append(bytes([number, 3]) + f"<think>\nhm </think>\n\n{written(name, call, call)}\n".encode())
    return Target("answer", attack, seeds)
