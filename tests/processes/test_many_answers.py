"""Many people ask one cluster at the same time: real nodes, real workers, clients that come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from core.errors import Busy
from core.events import RequestStarted
from core.sampling_options import Sampling
from core.settings import DEFAULT_ROWS, QUEUE_LIMIT
from tests.support.cluster import ANSWER_S, Make, ask, begin, finish, reference, running_demo, tokens_seen
from tui.cli.demo import Demo
from tui.cli.pair_bench import PairWays
from tui.cli.watch import Watch

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

TOKENS: Final = 16
MOST: Final = DEFAULT_ROWS + QUEUE_LIMIT
WARM: Final = Sampling(temperature=0.9, top_k=40, seed=5)
PROMPTS: Final = [f"Tell me about hop {n} " * (1 + n % 4) for n in range(MOST)]


@pytest.fixture(scope="module")
def model(made: Make) -> Path:
    return made("llama")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(model: Path) -> AsyncIterator[Demo]:
    async with running_demo(model, (64, 32, 16)) as running:
        yield running


@pytest.fixture
def head(demo: Demo) -> Watch:
    return demo.head


async def test_as_many_as_are_taken_say_at_the_same_time_what_each_says_alone(head: Watch, model: Path) -> None:
    asked = [(prompt, WARM if number % 2 else Sampling()) for number, prompt in enumerate(PROMPTS)]
    greedy = reference(model, PROMPTS[::2], TOKENS)
    warm = reference(model, PROMPTS[1::2], TOKENS, sampling=WARM)
    expected = [(warm if number % 2 else greedy)[number // 2] for number in range(MOST)]
    assert sum(len(set(tokens)) for tokens in expected) >= MOST * TOKENS // 2
    ids = [await begin(head, prompt, TOKENS, sampling=sampling) for prompt, sampling in asked]
    assert [(await finish(head, request_id)).tokens for request_id in ids] == expected


async def test_one_more_is_refused_until_another_one_is_done(head: Watch) -> None:
    ids = [await begin(head, "a long one", 2000) for _ in range(MOST)]
    with pytest.raises(Busy):
        await begin(head, "one too many", TOKENS)
    await head.client.cancel(ids[3])
    ids.append(await begin(head, "not any more", 2000))
    for request_id in ids:
        await head.client.cancel(request_id)
        assert (await finish(head, request_id)).done.finish_reason == "cancelled"
    assert (await ask(head, "drained", 4)).done.finish_reason == "length"


async def test_a_stop_text_ends_its_own_answer_wherever_its_tokens_begin(head: Watch, model: Path) -> None:
    whole, other = await ask(head, "stop me", 48), await ask(head, "do not stop me", 48)
    stop = whole.text[len(whole.text) // 2 :][:5]
    assert len(stop) == 5
    stopped = await begin(head, "stop me", 48, stop=[stop])
    going_on = await begin(head, "do not stop me", 48)
    answer = await finish(head, stopped)
    assert answer.text == whole.text[: whole.text.index(stop)]
    assert answer.done.finish_reason == "stop"
    assert (await finish(head, going_on)).tokens == other.tokens


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGINT, id="ctrl-c")]
)
async def test_an_answer_whose_client_is_lost_is_not_written_for_nobody(
    demo: Demo, head: Watch, model: Path, number: signal.Signals
) -> None:
    (expected,) = reference(model, ["and the others go on"], 48)
    before = len(head.seen)
    environment = {**os.environ, "MACLUSTER_HOME": str(demo.home.root)}
    command = [sys.executable, "-m", "tui.cli.main", "run", str(model), "-p", "for nobody", "--max-tokens", "3000"]
    client = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )

    def lonely(watch: Watch) -> set[str]:
        return {e.request_id for e in watch.seen[before:] if isinstance(e, RequestStarted)}

    await head.until(lambda w: len(lonely(w)) == 1, ANSWER_S, "Asking")
    (request_id,) = lonely(head)
    await tokens_seen(head, request_id, 7)
    other = await begin(head, "and the others go on", 48)
    client.send_signal(number)
    done = (await finish(head, request_id)).done
    assert done.finish_reason == "cancelled"
    assert done.tokens < 3000
    assert (await finish(head, other)).tokens == expected
    await client.wait()


async def test_the_bench_of_pairs_runs_and_answers_are_the_same_at_a_time(demo: Demo) -> None:
    turn = await PairWays(demo.head, rows=2, tokens=4).run(0)
    assert turn.same_tokens
    assert min(turn.one_by_one_tokens_per_s, turn.together_tokens_per_s) > 0
