"""Real chat templates render conversations as transformers renders them, or better."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from mlx_lm.utils import load_tokenizer

from core.demo import DEMO_MODEL
from core.errors import MaclusterError
from core.models.text.tokenizer import Tokens
from core.node.public_api.chat_request import ChatCompletion
from tests.real.conftest import or_skip
from tests.real.packages import package

pytestmark = pytest.mark.real

TEMPLATES: Final = 70
Turn = dict[str, Any]


def _said(role: str, content: Any, **more: Any) -> Turn:
    return {"role": role, "content": content, **more}


def _call(number: int, city: str) -> Turn:
    """A call with an id as Mistral's templates want it, which we give to all calls there."""
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"id": f"{number:09d}", "type": "function", "function": function}


def _result(number: int, text: str) -> Turn:
    return _said("tool", text, tool_call_id=f"{number:09d}", name="get_weather")


TOOLS: Final[list[Turn]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
SYSTEM: Final = _said("system", "Be brief.")
USER: Final = _said("user", "What is the weather in Paris?")
ANSWER: Final = _said("assistant", "It rains there.")
MORE: Final = _said("user", "And in Rome?")
CALL: Final = _said("assistant", "", tool_calls=[_call(0, "Oslo")])
CALLED: Final = [USER, CALL, _result(0, "light rain")]
PARTS: Final = [{"type": "text", "text": "What is "}, {"type": "text", "text": "the weather?"}]
# each with and without what agents send besides text
CONVERSATIONS: Final[dict[str, tuple[list[Turn], list[Turn]]]] = {
    "question": ([USER], []),
    "system": ([SYSTEM, USER], []),
    "two turns": ([USER, ANSWER, MORE], []),
    "system and two turns": ([SYSTEM, USER, ANSWER, MORE], []),
    "other alphabets": ([_said("user", "Zwei Flüsse, 日本語, 🐢 & <b>\"'\\n</b>")], []),
    "lines and spaces": ([_said("user", "one\n\n\ttwo  three"), ANSWER, MORE], []),
    "reasoning": ([USER, _said("assistant", "It rains.", reasoning_content="Look outside."), MORE], []),
    "tools": ([USER], TOOLS),
    "system and tools": ([SYSTEM, USER], TOOLS),
    "call": (CALLED, TOOLS),
    "call, then a question": ([*CALLED, ANSWER, MORE], TOOLS),
    "call after system": ([SYSTEM, *CALLED], TOOLS),
    "text and call": ([USER, _said("assistant", "Let me see.", tool_calls=CALL["tool_calls"]), CALLED[2]], TOOLS),
    "two calls": (
        [
            USER,
            _said("assistant", "", tool_calls=[_call(0, "Oslo"), _call(1, "Bergen")]),
            _result(0, "light rain"),
            _result(1, "sunny"),
        ],
        TOOLS,
    ),
    "developer": ([_said("developer", "Be brief."), USER], []),
    "parts": ([_said("user", PARTS)], []),
    "call without content": ([USER, _said("assistant", None, tool_calls=CALL["tool_calls"]), CALLED[2]], TOOLS),
}


def _as_transformers_takes_it(turns: Sequence[Turn]) -> Iterator[Turn]:
    """The deliberate differences: developers are the system, parts are one text, and no content is "".

    Arguments of calls are objects, as transformers documents it; the API has them as text.
    """
    for turn in deepcopy(list(turns)):
        turn["role"] = {"developer": "system"}.get(turn["role"], turn["role"])
        if isinstance(turn["content"], list):
            turn["content"] = "".join(part["text"] for part in turn["content"])
        turn["content"] = turn["content"] or ""
        if reasoning := turn.get("reasoning_content"):
            turn["reasoning"] = reasoning  # templates know one of the two names
        for call in turn.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        yield turn


def _words(turns: Sequence[Turn], tools: Sequence[Turn]) -> list[str]:
    """Texts that a prompt must contain: all contents, the tools, and the arguments of calls."""
    told = list(_as_transformers_takes_it(turns))
    texts = [turn["content"].strip() for turn in told if turn["content"]]
    calls = [call["function"]["arguments"]["city"] for turn in told for call in turn.get("tool_calls", ())]
    return [*texts, *calls, *(tool["function"]["description"] for tool in tools)]


class Template:
    """A template with the demo model's tokenizer, as we and as transformers render it."""

    def __init__(self, template: Path, folder: Path) -> None:
        shutil.copytree(DEMO_MODEL, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        shutil.copy(template, folder / "chat_template.jinja")
        file = folder / "tokenizer_config.json"
        config = json.loads(file.read_text())
        del config["chat_template"]
        file.write_text(json.dumps(config))
        self._ours, self._theirs = Tokens.load(folder), load_tokenizer(folder)

    def ours(self, turns: Sequence[Turn], tools: Sequence[Turn]) -> str | None:
        """The prompt of the API; None if it refuses the conversation."""
        body = msgspec.json.encode({"messages": turns, **({"tools": tools} if tools else {})})
        request = msgspec.json.decode(body, type=ChatCompletion).request()
        try:
            ids = self._ours.encode(request.messages, False, request.tools, request.template_options)
        except MaclusterError:
            return None
        return str(self._theirs.decode(ids))

    def theirs(self, turns: Sequence[Turn], tools: Sequence[Turn]) -> str | None:
        """The prompt of transformers; None if the template raises an error."""
        told = list(_as_transformers_takes_it(turns))
        try:
            text = self._theirs.apply_chat_template(
                told, tools=tools or None, add_generation_prompt=True, tokenize=False
            )
        except Exception:  # a template can raise anything
            return None
        return str(self._theirs.decode(self._theirs.encode(text, add_special_tokens=False)))


def test_templates_render_as_in_transformers(tmp_path: Path) -> None:
    """Where transformers raises an error or leaves something out, we render all of it, or refuse."""
    files = sorted(or_skip(lambda: package("templates")).glob("*.jinja"))
    assert len(files) == TEMPLATES
    wrong, equal = [], 0
    for file in files:
        template = Template(file, tmp_path / file.stem)
        for name, (turns, tools) in CONVERSATIONS.items():
            ours, theirs, words = template.ours(turns, tools), template.theirs(turns, tools), _words(turns, tools)
            lacks = theirs is None or not all(word in theirs for word in words)
            if ours == theirs:
                equal += 1
            elif not lacks or (ours is not None and not all(word in ours for word in words)):
                wrong.append((file.stem, name, ours, theirs))
    assert wrong == []
    assert equal > TEMPLATES * len(CONVERSATIONS) / 2
