"""The head's node dies in the middle of an answer, or its disk is full: the written part is kept, and continues."""

from __future__ import annotations

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
COUNT = 160
KILLED_AT = 20
CLI_S = 120.0
WARM = Sampling(temperature=0.8, logit_bias={2: -100.0})  # no eos


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama", layers=4), (64, 32)) as running:
        yield running


@pytest.fixture(scope="module")
def expected(made: Make) -> list[int]:
    """The answer of mlx-lm."""
    (tokens,) = reference(made("llama", layers=4), [PROMPT], COUNT)
    assert len(set(tokens)) >= COUNT // 2, "a reference that repeats one token proves nothing"
    return tokens


async def printed(demo: Demo, *words: str) -> str:
    """Output of a command, which must succeed."""
    said = await macluster(demo.home.root, *words)
    assert said.returncode == 0, said.stderr
    return said.stdout


async def test_answers_go_on_after_the_heads_node_was_killed(demo: Demo, expected: list[int]) -> None:
    head = demo.head
    greedy, warm = [await begin(head, PROMPT, COUNT, sampling=sampling) for sampling in (GREEDY, WARM)]
    for request in (greedy, warm):
        await tokens_seen(head, request, KILLED_AT)
    await kill_head(demo)
    seen = [e for e in head.seen if isinstance(e, TokenEvent)]

    head = await start_head(demo)
    unfinished = {begun.request_id: begun for begun in await head.client.unfinished()}
    assert unfinished.keys() == {greedy, warm}
    status = await printed(demo, "status")
    assert f"Unfinished answers: 2. `macluster run {unfinished[greedy].model} --continue`" in status
    for request, begun in unfinished.items():
        shown = [event for event in seen if event.request_id == request]
        assert len(shown) < COUNT, "it was killed too late"
        assert (begun.max_tokens, begun.messages[0].content) == (COUNT, PROMPT)
        assert begun.tokens >= len(shown)
        assert begun.text.startswith("".join(event.text for event in shown))
        facts = json.loads(await printed(demo, "run", demo.model, "--continue", request, "--json"))
        assert facts["finish_reason"] == "length"
        assert len(facts["tokens"]) == COUNT - begun.tokens
        assert facts["text"].startswith(begun.text)
        if request == greedy:
            assert facts["tokens"] == expected[begun.tokens :]
            stream = Tokens.load(Path(demo.model)).stream(is_chat=True)
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


async def test_a_full_disk_ends_the_answer_and_costs_nothing_that_was_written(demo: Demo, expected: list[int]) -> None:
    folder = demo.home.root / "token-logs"
    with small_disk(folder):
        earlier = await ask(demo.head, PROMPT, 20)
        (log,) = folder.iterdir()
        before = log.read_bytes()
        fill(folder / "something else", pages_left=1)
        cut = await ask(demo.head, PROMPT, COUNT)
        assert cut.done.problem
        assert cut.done.problem.what == "The answer can't be saved on this Mac's disk: No space left on device."
        assert "Free some space" in cut.done.problem.fix
        assert 0 < len(cut.tokens) < COUNT
        assert cut.tokens == expected[: len(cut.tokens)]
        assert log.read_bytes() == before
        (folder / "something else").unlink()
        (begun,) = await demo.head.client.unfinished()
        assert begun.tokens == len(cut.tokens)
        facts = json.loads(await printed(demo, "run", begun.model, "--continue", "--json"))
        assert facts["tokens"] == expected[begun.tokens :]
        assert (await ask(demo.head, PROMPT, 20)).tokens == earlier.tokens
