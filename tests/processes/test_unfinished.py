"""The head's node dies in the middle of an answer, or its disk is full: the written part is kept, and continues."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from core.events import TokenEvent
from core.models.text.tokenizer import Tokens
from core.sampling_options import Sampling
from tests.support.cluster import GREEDY, Make, ask, begin, reference, running_demo, tokens_seen
from tests.support.command import macluster
from tests.support.restarting import kill_head, start_head
from tui.cli.demo import Demo

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "tell me about hops"
COUNT = 240
KILLED_AT = 40
LONG = 300
CLI_S = 120.0
WARM = Sampling(temperature=0.8, logit_bias={2: -100.0})  # no eos


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama"), (64, 32)) as running:
        yield running


async def printed(demo: Demo, *words: str) -> str:
    """Output of a command, which must succeed."""
    said = await macluster(demo.home.root, *words)
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.parametrize("sampling", [pytest.param(GREEDY, id="greedy"), pytest.param(WARM, id="warm")])
async def test_an_answer_goes_on_after_the_heads_node_was_killed(demo: Demo, made: Make, sampling: Sampling) -> None:
    (expected,) = await asyncio.to_thread(reference, made("llama"), [PROMPT], COUNT)
    assert len(set(expected)) >= COUNT // 2, "a reference that repeats one token proves nothing"
    head = demo.head
    request = await begin(head, PROMPT, COUNT, sampling=sampling)
    await tokens_seen(head, request, KILLED_AT)
    await kill_head(demo)
    shown = [e for e in head.seen if isinstance(e, TokenEvent) and e.request_id == request]
    assert len(shown) < COUNT, "it was killed too late"

    head = await start_head(demo)
    (begun,) = await head.client.unfinished()
    assert (begun.request_id, begun.max_tokens, begun.messages[0].content) == (request, COUNT, PROMPT)
    assert begun.tokens >= len(shown)
    assert begun.text.startswith("".join(event.text for event in shown))
    status = await printed(demo, "status")
    assert f"Unfinished answers: 1. `macluster run {begun.model} --continue`" in status

    facts = json.loads(await printed(demo, "run", demo.model, "--continue", "--json"))
    assert facts["finish_reason"] == "length"
    assert len(facts["tokens"]) == COUNT - begun.tokens
    assert facts["text"].startswith(begun.text)
    if sampling is GREEDY:
        assert facts["tokens"] == expected[begun.tokens :]
        stream = Tokens.load(made("llama")).stream(trims=True)
        assert facts["text"] == "".join(map(stream.add, expected)) + stream.held
    assert await head.client.unfinished() == []


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A disk of 256 KiB, almost full."""
    folder.mkdir(mode=0o700, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(path: Path, pages_left: int) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            file.truncate(file.tell() - pages_left * 4096)


async def test_a_full_disk_ends_the_answer_and_costs_nothing_that_was_written(made: Make) -> None:
    (expected,) = await asyncio.to_thread(reference, made("llama"), [PROMPT], LONG)
    async with running_demo(made("llama"), (64,)) as demo:
        folder = demo.home.root / "token-logs"
        with small_disk(folder):
            earlier = await ask(demo.head, PROMPT, 20)
            (log,) = folder.iterdir()
            before = log.read_bytes()
            fill(folder / "something else", pages_left=2)
            cut = await ask(demo.head, PROMPT, LONG)
            assert cut.done.problem
            assert cut.done.problem.what == "The answer can't be saved on this Mac's disk: No space left on device."
            assert "Free some space" in cut.done.problem.fix
            assert 0 < len(cut.tokens) < LONG
            assert cut.tokens == expected[: len(cut.tokens)]
            assert log.read_bytes() == before
            (folder / "something else").unlink()
            (begun,) = await demo.head.client.unfinished()
            assert begun.tokens == len(cut.tokens)
            facts = json.loads(await printed(demo, "run", begun.model, "--continue", "--json"))
            assert facts["tokens"] == expected[begun.tokens :]
            assert (await ask(demo.head, PROMPT, 20)).tokens == earlier.tokens
