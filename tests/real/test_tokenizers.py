"""Real tokenizers and chat templates through the API and the command line, with small random weights."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from core.answer_parts import Tool, ToolCall
from core.events import RequestDone, TokenEvent
from core.models.text.tokenizer import Tokens
from core.requests.answers import Message
from tests.real.conftest import or_skip
from tests.real.families import FAMILIES, MORE_FAMILIES, Family, make_family
from tests.real.served import KEY, Served, served

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="module")]

TEXTS = (
    "The capital of France is",
    "  two spaces,\ttabs\n\nand lines\r\n",
    "Zwei Flüsse, 日本語, Ελληνικά, עברית",
    "🐢🏳️‍🌈 e\u0301 \u200b",
    "def f(x: int) -> str:\n    return f'{x:>10}'",
    "1234567890 3.14159 0x1F",
    "",
)
CITY: Any = {
    "type": "object",
    "properties": {"city": {"enum": ["London", "Paris"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER: Any = {"name": "get_weather", "description": "The weather of a city in the next days."}
HELLO: Any = [{"role": "user", "content": "Hello"}]
TOKENS = 40
SHAPED_TOKENS = 100
TRIES = 40
ALL_FAMILIES = [
    *(pytest.param(family, id=family.name) for family in FAMILIES),
    *(pytest.param(family, id=family.name, marks=pytest.mark.nightly) for family in MORE_FAMILIES),
]
# how each API is asked not to reason
CHAT: Any = {"max_tokens": SHAPED_TOKENS, "temperature": 1, "reasoning_effort": "none"}
MESSAGES: Any = {"max_tokens": SHAPED_TOKENS, "temperature": 1, "thinking": {"type": "disabled"}}
RESPONSES: Any = {"max_output_tokens": SHAPED_TOKENS, "temperature": 1, "reasoning": {"effort": "none"}}


class Case(NamedTuple):
    """A family, its model folder, and the model over two Macs."""

    family: Family
    folder: Path
    cluster: Served


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ALL_FAMILIES)
async def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Case]:
    family: Family = request.param
    folder = tmp_path_factory.mktemp("model") / family.name
    folder.mkdir()

    def make() -> Path:
        make_family(family, folder)
        return folder

    async with served(or_skip(make), (8, 8)) as cluster:
        yield Case(family, folder, cluster)


async def test_text_is_encoded_as_the_tokenizers_library_does(case: Case) -> None:
    tokens, library = Tokens.load(case.folder), Tokenizer.from_file(str(case.folder / "tokenizer.json"))
    for text in TEXTS:
        assert tokens.encode([Message(role="user", content=text)], raw=True) == library.encode(text).ids, text
    ids = library.encode(TEXTS[2]).ids
    told = await case.cluster.post("/v1/completions", prompt=TEXTS[2], max_tokens=1)
    assert told["usage"]["prompt_tokens"] == len(ids)


async def test_streamed_text_is_the_whole_text_and_the_decoded_tokens(case: Case) -> None:
    head, library = case.cluster.demo.head, Tokenizer.from_file(str(case.folder / "tokenizer.json"))
    for seed in range(4):
        asked = {"prompt": TEXTS[seed], "max_tokens": TOKENS, "temperature": 1, "seed": seed}
        mark = len(head.seen)
        whole = (await case.cluster.post("/v1/completions", **asked))["choices"][0]["text"]
        await head.until(lambda w, at=mark: any(isinstance(e, RequestDone) for e in w.seen[at:]), 60, "The end")  # type: ignore[misc]
        ids = [event.token for event in head.seen[mark:] if isinstance(event, TokenEvent)]
        streamed = await case.cluster.stream("/v1/completions", **asked)
        assert "".join(choice["text"] for event in streamed for choice in event["choices"]) == whole
        assert whole.endswith(_text_of(library, ids)), "after an end token nothing is shown"


def _text_of(library: Tokenizer, ids: list[int]) -> str:
    """The text of an answer in the middle of a text, where a first space counts."""
    before = library.encode("a", add_special_tokens=False).ids
    text: str = library.decode([*before, *ids], skip_special_tokens=False)
    return text.removeprefix("a")


async def test_a_chat_goes_on(case: Case) -> None:
    asked = {"max_tokens": 12, "temperature": 0}
    first = await case.cluster.post("/v1/chat/completions", messages=HELLO, **asked)
    answer = first["choices"][0]["message"]
    streamed = await case.cluster.stream("/v1/chat/completions", messages=HELLO, **asked)
    deltas = [choice["delta"] for event in streamed for choice in event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == (answer["content"] or "")
    history = [*HELLO, {"role": "assistant", "content": answer["content"] or "Hi"}, {"role": "user", "content": "And?"}]
    second = await case.cluster.post("/v1/chat/completions", messages=history, **asked)
    assert second["usage"]["prompt_tokens"] > first["usage"]["prompt_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    said = (await case.cluster.post("/v1/messages", messages=history, **asked))["usage"]
    assert said["input_tokens"] + said["cache_read_input_tokens"] == second["usage"]["prompt_tokens"]
    said = (await case.cluster.post("/v1/responses", input=history, max_output_tokens=12, temperature=0))["usage"]
    assert said["input_tokens"] == second["usage"]["prompt_tokens"]


async def test_tools_reach_the_prompt(case: Case) -> None:
    tools = [{"type": "function", "function": {**WEATHER, "parameters": CITY}}]
    plain, told = [
        (await case.cluster.post("/v1/chat/completions", messages=HELLO, max_tokens=1, **more))["usage"]
        for more in ({}, {"tools": tools})
    ]
    library = Tokenizer.from_file(str(case.folder / "tokenizer.json"))
    words = library.encode(WEATHER["description"], add_special_tokens=False).ids
    assert told["prompt_tokens"] > plain["prompt_tokens"] + len(words)


async def test_a_call_in_the_familys_own_form_is_read(case: Case) -> None:
    tokens, library = Tokens.load(case.folder), Tokenizer.from_file(str(case.folder / "tokenizer.json"))
    tools = (Tool(name="get_weather", parameters=json.dumps(CITY)),)
    prompt = tokens.encode([Message(role="user", content="Hello")], False, tools)
    stream, reader = tokens.stream(is_chat=True), tokens.reader(prompt, tools)
    ids = library.encode(case.family.call, add_special_tokens=False).ids
    parts = [part for token in ids for part in reader.read(stream.add(token))]
    parts += [*reader.read(stream.held), *reader.end(True)]
    (call,) = [part for part in parts if isinstance(part, ToolCall)]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


async def test_a_forced_call_is_valid_through_each_api(case: Case) -> None:
    _skip_if_nothing_can_be_seen(case)
    function = {**WEATHER, "parameters": CITY}

    async def chat(hello: str) -> list[Any]:
        tools = [{"type": "function", "function": function}]
        asked = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, **CHAT}
        said = await case.cluster.chat(_says(hello), **asked)
        return [(call["function"]["name"], call["function"]["arguments"]) for call in said.get("tool_calls", ())]

    async def messages(hello: str) -> list[Any]:
        tools = [{**WEATHER, "input_schema": CITY}]
        choice = {"type": "any", "disable_parallel_tool_use": True}
        asked = {"tools": tools, "tool_choice": choice, **MESSAGES}
        reply = await case.cluster.post("/v1/messages", messages=_says(hello), **asked)
        return [(b["name"], json.dumps(b["input"])) for b in reply["content"] if b["type"] == "tool_use"]

    async def responses(hello: str) -> list[Any]:
        tools = [{"type": "function", **function}]
        asked = {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False, **RESPONSES}
        reply = await case.cluster.post("/v1/responses", input=hello, **asked)
        return [(i["name"], i["arguments"]) for i in reply["output"] if i["type"] == "function_call"]

    for api in (chat, messages, responses):
        name, arguments = await _whole(api)
        assert name == "get_weather"
        jsonschema.validate(json.loads(arguments), CITY)


async def test_a_schema_is_followed_through_each_api(case: Case) -> None:
    _skip_if_nothing_can_be_seen(case)
    named = {"name": "city", "schema": CITY, "strict": True}
    shape = {"type": "json_schema", "json_schema": named}

    async def chat(hello: str) -> list[Any]:
        return [(await case.cluster.chat(_says(hello), response_format=shape, **CHAT))["content"]]

    async def completions(hello: str) -> list[Any]:
        asked = {"max_tokens": SHAPED_TOKENS, "temperature": 1, "response_format": shape}
        return [(await case.cluster.post("/v1/completions", prompt=hello, **asked))["choices"][0]["text"]]

    async def messages(hello: str) -> list[Any]:
        form = {"format": {"type": "json_schema", "schema": CITY}}
        reply = await case.cluster.post("/v1/messages", messages=_says(hello), output_config=form, **MESSAGES)
        return [block["text"] for block in reply["content"] if block["type"] == "text"]

    async def responses(hello: str) -> list[Any]:
        form = {"format": {"type": "json_schema", **named}}
        reply = await case.cluster.post("/v1/responses", input=hello, text=form, **RESPONSES)
        return [item["content"][0]["text"] for item in reply["output"] if item["type"] == "message"]

    for api in (chat, completions, messages, responses):
        jsonschema.validate(json.loads(await _whole(api)), CITY)


async def _whole(ask: Callable[[str], Awaitable[list[Any]]]) -> Any:
    """The first answer with more than reasoning, in which random weights can spend all their tokens."""
    for at in range(TRIES):
        if found := list(filter(None, await ask(f"Hello {at}"))):
            return found[0]
    raise AssertionError("no answer ended its reasoning")


def _skip_if_nothing_can_be_seen(case: Case) -> None:
    if not case.family.is_enforced:
        pytest.skip("its answers can't be enforced, and the API says so")
    if case.family.name == "minimax-m2":
        pytest.skip("its prompts open the reasoning whatever is asked, and random weights hardly ever end it")


def _says(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def test_the_command_chats_by_the_node_and_by_the_api_alike(case: Case) -> None:
    if case.family.answer.startswith("Hm.") or not case.family.is_enforced:
        pytest.skip("all of it is reasoning, which the API sends apart and a node's own chat shows")
    home, lines = case.cluster.demo.home.root, "/set max_tokens 12\nHello\nAnd?\n"
    run = (sys.executable, "-m", "tui.cli.main", "--home", str(home), "run", case.folder.name)
    own = await _piped(*run, lines=lines)
    assert len(own.split("\n\n")) >= 3
    assert await _piped(*run, "--url", case.cluster.url, "--key", KEY, lines=lines) == own


async def _piped(*command: str, lines: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate(lines.encode())
    assert (process.returncode, err) == (0, b"")
    return out.decode()
