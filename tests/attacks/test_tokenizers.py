"""Tokenizers and chat templates made to do harm: their rules stop no node, and the client gets the reason."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import psutil
import pytest
import pytest_asyncio

from core.answer_parts import TextPart
from core.errors import BadModel, NodeError
from core.models.text.text_messages import Decode, Decoded, Refused
from core.models.text.tokenizer import Tokens
from core.node.answers import tokenizer_process
from core.node.answers.tokenizer import Tokenizer
from core.node.answers.tokenizer_process import TokenizerProcess
from core.requests.answers import Message
from core.settings import MIB
from tests.support.maker import make_model
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = (Message(role="user", content="hello"),)
Start = Callable[[Path], Awaitable[Tokenizer]]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    make_model(made, "llama", layers=1)
    return made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(good: Path) -> AsyncIterator[Tokenizer]:
    """One for all tests after which it goes on."""
    tokenizer = await Tokenizer.start(good)
    yield tokenizer
    assert not tokenizer.is_over
    await tokenizer.end()


@pytest_asyncio.fixture(loop_scope="module")
async def start() -> AsyncIterator[Start]:
    started, others = list[Tokenizer](), set(psutil.Process().children())

    async def begin(directory: Path) -> Tokenizer:
        started.append(await Tokenizer.start(directory))
        return started[-1]

    yield begin
    for each in started:
        await each.end()
    assert set(psutil.Process().children()) <= others


def bent(good: Path, folder: Path, **parts: Any) -> Path:
    """A model with other parts in its tokenizer."""
    copy = Path(shutil.copytree(good, folder / "bent"))
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    (copy / "tokenizer.json").write_text(json.dumps({**tokenizer, **parts}))
    return copy


def part(model: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((model / "tokenizer.json").read_text())[name]
    return found


def swelling(count: int) -> list[dict[str, Any]]:
    """`count` rules; each replaces a letter by ten of the next one, from q on."""
    letters = "qrstuvwxyz"
    return [
        {"type": "Replace", "pattern": {"String": letters[n]}, "content": letters[n + 1] * 10} for n in range(count)
    ]


def endless(rule: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": rule}, "behavior": "Isolated", "invert": False}


async def test_long_prompts_are_encoded_apart_and_no_other_waits_for_them(
    lasting: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(psutil.Process().children())
    held, begun, begin = asyncio.Event(), list[Path](), TokenizerProcess.start

    async def late(directory: Path) -> TokenizerProcess:
        begun.append(directory)
        await held.wait()
        return await begin(directory)

    monkeypatch.setattr(TokenizerProcess, "start", late)
    monkeypatch.setattr("core.node.answers.tokenizer.LONG_PROMPT", 10)
    asked = [Message(role="user", content="a hop " * 10)]
    long = [asyncio.create_task(lasting.encode(asked, raw=True)) for _ in range(2)]
    assert await lasting.encode(HELLO, raw=True)
    assert len(begun) == 2
    held.set()
    assert all(len(prompt) > 10 for prompt in await asyncio.gather(*long))
    assert set(psutil.Process().children()) <= before


@pytest.mark.promise("T11")
async def test_decoding_that_swells_ends_the_answer_and_not_the_node(
    good: Path, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_process, "MAX_RSS_BYTES", 250 * MIB)
    rules = [part(good, "decoder"), {"type": "Fuse"}, *swelling(9)]
    tokenizer = await start(bent(good, tmp_path, decoder={"type": "Sequence", "decoders": rules}))
    tokens = await tokenizer.encode((Message(role="user", content="quite"),), raw=True)
    with pytest.raises(BadModel, match=r"^The tokenizer of bent (takes more than 250 MiB|takes too long|ends its)"):
        await tokenizer.stream("answer").add_all(tokens)
    with pytest.raises(BadModel, match="The tokenizer of bent "):
        await tokenizer.stream("answer").add_all(tokens)
    harmless = await tokenizer.encode(HELLO, raw=True)
    assert (await tokenizer.stream("another").add_all(harmless)).text == "hello"


async def test_a_prompt_that_swells_is_refused(
    good: Path, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_process, "MAX_RSS_BYTES", 250 * MIB)
    swollen = bent(good, tmp_path, normalizer={"type": "Sequence", "normalizers": swelling(9)})
    with pytest.raises(BadModel, match=r"^The tokenizer of bent "):
        await (await start(swollen)).encode((Message(role="user", content="quite " * 20),), raw=True)


@pytest.mark.promise("T11")
async def test_a_rule_that_meets_the_limit_of_its_library_is_refused_and_the_next_prompt_is_not(
    good: Path, tmp_path: Path, start: Start
) -> None:
    rules = [endless("(?:a|a?)+$|(a+)+b"), part(good, "pre_tokenizer")]
    tokenizer = await start(bent(good, tmp_path, pre_tokenizer={"type": "Sequence", "pretokenizers": rules}))
    with pytest.raises(BadModel, match=r"The tokenizer (fails|of bent)"):
        await tokenizer.encode((Message(role="user", content="a" * 60 + "!"),), raw=True)
    assert await tokenizer.encode(HELLO, raw=True)


BOMBS = {  # constants would be computed while the template compiles
    "loops without end": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "string times": "{{ 'a' * (4000000000 * messages | length) }}",
    "doubling": "{% set ns = namespace(s='aaaaaaa') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "output": "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
}


@pytest.mark.parametrize(
    "names",
    [("loops without end", "doubling"), pytest.param(("string times", "output"), marks=pytest.mark.nightly)],
    ids=" and ".join,
)
@pytest.mark.promise("T11")
async def test_a_template_bomb_ends_no_other_prompt_and_holds_up_no_text(
    good: Path, tmp_path: Path, start: Start, names: Sequence[str]
) -> None:
    copy = Path(shutil.copytree(good, tmp_path / "bent"))
    cases = [f"{{% if messages[0].content == {name!r} %}}{bomb}{{% endif %}}" for name, bomb in BOMBS.items()]
    (copy / "chat_template.jinja").write_text("{{ messages[0].content }}" + "".join(cases))
    tokenizer = await start(copy)
    expected = await tokenizer.encode(HELLO, raw=False)
    for name in names:
        bomb = asyncio.ensure_future(tokenizer.encode((Message(role="user", content=name),), raw=False))
        others = asyncio.gather(*(tokenizer.encode(HELLO, raw=False) for _ in range(3)))
        said = await tokenizer.stream(name).add_all(expected)
        assert said.text + said.held == "hello"
        assert not bomb.done()
        with pytest.raises(BadModel, match=r"^The chat template (of bent takes too long|or the .* than \d+ MiB of)"):
            await bomb
        assert await others == [expected] * 3
    assert not tokenizer.is_over


async def test_what_takes_too_long_is_ended_and_the_others_go_on(
    good: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, told = await start(good), list[Decoded | Refused]()
    texts = tokenizer._texts.process
    here = await tokenizer.stream("another").add_all([1])
    os.kill(texts._process.get_pid(), signal.SIGSTOP)
    monkeypatch.setattr(Decode, "wall_s", 0.1)
    for name in ("answer", "another"):
        tokenizer.stream(name).add([1], [], told.append)
    await texts._end.wait()
    monkeypatch.undo()
    await until(lambda: len(told) == 2)
    refused, other = told
    assert isinstance(refused, Refused)
    assert refused.problem.what == f"The tokenizer of {good.name} takes too long."
    assert other == here
    assert await tokenizer.encode(HELLO, raw=True)


async def test_answers_go_on_exactly_after_the_death_of_the_text_process(lasting: Tokenizer) -> None:
    tokenizer = lasting
    text = "Zwei Flüsse, 日本, and a 🐢 end of it. " * 4
    tokens = await tokenizer.encode((Message(role="user", content=text),), raw=True)
    streams = [tokenizer.stream(str(n), is_chat=True) for n in range(3)]
    readers = [stream.reader((), ()) for stream in streams]
    said, parts = [""] * 3, [""] * 3
    for at, token in enumerate(tokens):
        if at % 40 == 20:
            os.kill(tokenizer._texts.process._process.get_pid(), signal.SIGKILL)
        for n, decoded in enumerate(await asyncio.gather(*(stream.add_all([token]) for stream in streams))):
            said[n] += decoded.text
            parts[n] += "".join(part.text for part in await readers[n].read(decoded.text) if isinstance(part, TextPart))
    for n, reader in enumerate(readers):
        parts[n] += "".join(part.text for part in await reader.end("", is_whole=True) if isinstance(part, TextPart))
        streams[n].end()
    assert said == parts == [text] * 3
    await until(lambda: not tokenizer._texts._streams)


async def test_a_request_goes_on_that_finds_the_pipe_closed_before_the_end_was_told(lasting: Tokenizer) -> None:
    tokenizer = lasting
    (token, *_) = await tokenizer.encode((Message(role="user", content="Zwei"),), raw=True)
    tokenizer._texts.process._pipe.abort()
    assert (await tokenizer.stream("answer").add_all([token])).text


async def test_an_answer_is_told_when_no_other_text_process_can_start(
    good: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = await start(good)
    monkeypatch.setattr(tokenizer._texts, "_start", AsyncMock(side_effect=OSError(35, "Resource unavailable")))
    os.kill(tokenizer._texts.process._process.get_pid(), signal.SIGKILL)
    with pytest.raises(NodeError, match="Resource unavailable"):
        await tokenizer.stream("answer").add_all([1])
    assert tokenizer.is_over


async def test_text_comes_in_the_order_of_tokens_as_from_the_library_itself_and_it_ends_with_its_node(
    good: Path, lasting: Tokenizer
) -> None:
    here, tokenizer = Tokens.load(good), lasting
    text = "Zwei Flüsse, 日本, and a 🐢 end of it."
    tokens = await tokenizer.encode((Message(role="user", content=text),), raw=True)
    assert (tokens, tokenizer.eos) == (here.encode([Message(role="user", content=text)], raw=True), here.eos)
    streams, told = [tokenizer.stream(str(n)) for n in range(3)], [list[Decoded]() for _ in range(3)]
    for token in tokens:
        for stream, heard in zip(streams, told, strict=True):
            stream.add([token], [], heard.append)  # type: ignore[arg-type]
    await until(lambda: all(len(heard) == len(tokens) for heard in told))
    expected = here.stream()
    for n, token in enumerate(tokens):
        added = (expected.add(token), expected.held)
        assert [(heard[n].text, heard[n].held) for heard in told] == [added] * 3
    assert (await tokenizer.stream("all").add_all(tokens)).text == text
    texts = tokenizer._texts.process
    texts._pipe.close()
    await until(lambda: texts.is_over)
