"""Each family's text: two turns, reasoning, calls as it writes them, forced and strict calls, and JSON schemas.

The answers are random tokens that the grammar allows, over the family's real vocabulary and in its real template.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import jsonschema
import numpy as np
import pytest
from tokenizers import Tokenizer

from core.answer_parts import AnswerPart, CallRules, ReasoningPart, TextPart, Tool, ToolCall
from core.constraint import Constraint
from core.engine.constraints import Grammars, RowGrammar
from core.engine.requests import Admit
from core.errors import UnsupportedModel
from core.models.text.tokenizer import Tokens
from core.models.text.vocabulary import read_vocabulary
from core.requests.answers import Message
from core.sampling_options import Sampling
from tests.real.families import FAMILIES, MORE_FAMILIES, Family, write_tokenizer
from tests.real.packages import Unreachable

pytestmark = pytest.mark.real

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "its name"},
        "unit": {"enum": ["°C", "°F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "height": {"type": "number"},
        "now": {"type": "boolean"},
        "hours": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
        "place": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["name"],
            "additionalProperties": False,
        },
    },
    "required": ["city", "days", "place"],
    "additionalProperties": False,
}
WEATHER: Final = Tool(name="get_weather", description="The weather of a city.", parameters=json.dumps(SCHEMA))
TIME: Final = Tool(name="get_time", description="The time.", parameters='{"type": "object", "properties": {}}')
TOOLS: Final = (WEATHER, TIME)
HELLO: Final = Message(role="user", content="How is the weather?")
# ends of values and parts, which random tokens would hardly ever write
ENDS: Final = (
    *('"', "}", "]", "\n", "</parameter>", "</arg_value>", "</｜DSML｜parameter>", '<|"|>', "<|end|>", "<|eom|>"),
    *("true", "1", '{"', ", ", "</tool_call>"),
)
TOKENS: Final = 600
SEEDS: Final = range(3)


class Spoken:
    """A family's text as the product makes and reads it."""

    def __init__(self, family: Family, folder: Path) -> None:
        ids = write_tokenizer(family, folder)
        self.family, self.tokens = family, Tokens.load(folder)
        self.tokens._checks = lambda job, request: (0, b"")  # the child that compiles a client's schema first
        self._library = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._ends = [self.ids(end) for end in ENDS]
        self.eos = tuple(sorted(self.tokens.eos))
        size = max(ids.values()) + 1
        self._grammars = Grammars(lambda: read_vocabulary(folder, size), size)

    def ids(self, text: str) -> list[int]:
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def prompt(self, *messages: Message, tools: Sequence[Tool] = (), **options: Any) -> list[int]:
        return self.tokens.encode(messages, False, tools, options)

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._library.decode(tokens, skip_special_tokens=False))

    def read(self, prompt: Sequence[int], answer: Sequence[int], tools: Sequence[Tool] = ()) -> list[AnswerPart]:
        """The parts of an answer, with neighbours joined."""
        stream, reader = self.tokens.stream(is_chat=True), self.tokens.reader(prompt, tools)
        parts = [part for token in answer for part in reader.read(stream.add(token))]
        parts += [*reader.read(stream.held), *reader.end(True)]
        return list(_joined(parts))

    def constraint(self, asked: Constraint | None, rules: CallRules, prompt: Sequence[int]) -> Constraint:
        """The constraint of an answer to the prompt; skips a family for which it is refused in words that say why."""
        if not self.family.is_enforced:
            with pytest.raises(UnsupportedModel, match="marks the parts of its answers"):
                self.tokens.constrain(asked, rules, prompt, raw=False)
            pytest.skip("its answers can't be enforced")
        return self.tokens.constrain(asked, rules, prompt, raw=False)

    def row(self, constraint: Constraint) -> RowGrammar:
        row = self._grammars.of(Admit(bytes(16), Sampling(), eos=self.eos, constraint=constraint))
        assert row
        return row

    def takes(self, constraint: Constraint, tokens: Sequence[int]) -> bool:
        """Whether an answer may be these tokens."""
        row = self.row(constraint)
        for token in tokens:
            if not np.array(row.allowed())[token]:
                return False
            row.take(token)
        return bool(np.array(row.allowed())[list(self.eos)].any())

    def answer(self, constraint: Constraint, dice: random.Random) -> list[int]:
        """Random tokens that the constraint allows, until it is fulfilled; reasoning that it leaves free is short."""
        row, eos = self.row(constraint), self.eos
        said: list[int] = []
        if constraint.think_end and not (constraint.think_start and dice.random() < 0.5):
            said += [*constraint.think_start, *self.ids("Hm."), *constraint.think_end]
        for token in said:
            assert np.array(row.allowed())[token]
            row.take(token)
        while len(said) < TOKENS:
            marks = np.array(row.allowed())
            assert not row.problem, row.problem
            if any(marks[end] for end in eos) and dice.random() < 0.5:
                return said
            marks[[*eos, *constraint.think_start]] = False
            ends = [end for end in self._ends if row.allows(end) == len(end)]
            may = np.flatnonzero(marks)
            if not len(may):
                return said
            for token in dice.choice(ends) if ends and dice.random() < 0.5 else [int(dice.choice(may))]:
                row.take(token)
                said.append(token)
        raise AssertionError(self.text(said))


def _joined(parts: Sequence[AnswerPart]) -> Iterator[AnswerPart]:
    before: AnswerPart | None = None
    for part in parts:
        if isinstance(part, TextPart) and isinstance(before, TextPart):
            before = TextPart(before.text + part.text)
        elif isinstance(part, ReasoningPart) and isinstance(before, ReasoningPart):
            before = ReasoningPart(before.text + part.text)
        else:
            if before:
                yield before
            before = part
    if before:
        yield before


@pytest.fixture(scope="module", params=[*FAMILIES, *MORE_FAMILIES], ids=lambda family: family.name)
def spoken(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    try:
        return Spoken(request.param, tmp_path_factory.mktemp("model"))
    except Unreachable as error:
        pytest.skip(str(error))


def test_a_second_turn_follows_an_answer(spoken: Spoken) -> None:
    prompt = spoken.prompt(HELLO)
    parts = spoken.read(prompt, spoken.ids(spoken.family.answer))
    thoughts = [ReasoningPart("Hm.")] if "Hm." in spoken.family.answer else []
    assert parts == [*thoughts, TextPart("Hello!")]
    answer = Message(role="assistant", content="Hello!", reasoning="Hm." if thoughts else "")
    again = spoken.text(spoken.prompt(HELLO, answer, Message(role="user", content="And tomorrow?")))
    assert again.index(HELLO.content) < again.index("Hello!") < again.index("And tomorrow?")


def test_a_call_is_read_and_its_result_reaches_the_model(spoken: Spoken) -> None:
    prompt = spoken.prompt(HELLO, tools=TOOLS)
    assert "The weather of a city." in spoken.text(prompt)
    thought = spoken.family.answer.partition("Hello!")[0] if "Hm.</" in spoken.family.answer else ""
    *_, call = spoken.read(prompt, spoken.ids(thought + spoken.family.call), TOOLS)
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    called = Message(role="assistant", content="", tool_calls=(call,), reasoning="Hm.")
    result = Message(role="tool", content="light rain", tool_call_id=call.id)
    _, _, told = spoken.text(spoken.prompt(HELLO, called, result, tools=TOOLS)).rpartition(HELLO.content)
    assert told.index("Paris") < told.index("light rain")


@pytest.mark.parametrize(
    ("must", "strict"),
    [(("get_weather",), False), (("get_weather", "get_time"), True)],
    ids=["named", "required-strict"],
)
def test_a_forced_call_is_read_back_as_it_must_be(spoken: Spoken, must: tuple[str, ...], strict: bool) -> None:
    tools = tuple(Tool(name=t.name, description=t.description, parameters=t.parameters, strict=strict) for t in TOOLS)
    prompt, rules = spoken.prompt(HELLO, tools=tools), CallRules(tools=tools, must_call=must, one_call=True)
    constraint = spoken.constraint(None, rules, prompt)
    for seed in SEEDS:
        answer = spoken.answer(constraint, random.Random(seed))
        parts = spoken.read(prompt, answer, tools)
        calls = [part for part in parts if isinstance(part, ToolCall)]
        assert len(calls) == 1, (spoken.text(answer), parts)
        assert not any(isinstance(part, TextPart) for part in parts), (spoken.text(answer), parts)
        assert calls[0].name in must
        if calls[0].name == "get_weather":
            jsonschema.validate(json.loads(calls[0].arguments), SCHEMA)


def test_strict_calls_follow_their_schema_where_text_is_free(spoken: Spoken) -> None:
    tools = tuple(Tool(name=tool.name, parameters=tool.parameters, strict=True) for tool in TOOLS)
    prompt = spoken.prompt(HELLO, tools=tools)
    constraint = spoken.constraint(None, CallRules(tools=tools), prompt)
    thought, text, _ = spoken.family.answer.partition("Hello!")
    thought = thought.removesuffix("<|START_RESPONSE|>")
    assert spoken.takes(constraint, spoken.ids(thought + text))
    thought = "" if spoken.family.name == "gptoss" else thought  # the mark of its answers
    assert not spoken.takes(constraint, spoken.ids(thought + spoken.family.call)), "it lacks arguments"


def test_a_schema_is_kept(spoken: Spoken) -> None:
    prompt, shape = spoken.prompt(HELLO), Constraint(kind="json_schema", source=json.dumps(SCHEMA))
    constraint = spoken.constraint(shape, CallRules(), prompt)
    for seed in SEEDS:
        answer = spoken.answer(constraint, random.Random(seed))
        *thoughts, text = spoken.read(prompt, answer)
        assert isinstance(text, TextPart), spoken.text(answer)
        assert all(isinstance(part, ReasoningPart) for part in thoughts)
        jsonschema.validate(json.loads(text.text), SCHEMA)
