"""Answers over real nodes and workers equal those of mlx-lm in one process, token for token, however many ask."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from core.demo import DEMO_MODEL
from core.errors import Busy
from core.events import RequestStarted
from core.sampling_options import Sampling
from core.settings import DEFAULT_ROWS, PREFILL_CHUNK, QUEUE_LIMIT
from tests.support.borrowing import borrowing
from tests.support.cluster import ANSWER_S, Make, ask, begin, finish, reference, running_demo, tokens_seen
from tests.support.command import macluster
from tests.support.maker import make_model
from tui.cli.demo import Demo
from tui.cli.pair_bench import PairWays
from tui.cli.parser import DEMO_PROMPT
from tui.cli.watch import Watch

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

PROMPTS: Final = ["Hello there, how are you?", "which layers does a stage hold " * 36]
BUDGETS: Final = (64.0, 32.0, 16.0, 24.0)
TOKENS: Final = 24
SHORT: Final = 16
MOST: Final = DEFAULT_ROWS + QUEUE_LIMIT
WARM: Final = Sampling(temperature=0.9, top_k=40, seed=5)
CROWD: Final = [f"Tell me about hop {n} " * (1 + n % 4) for n in range(MOST)]


@pytest.fixture(scope="module")
def shelf(made: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models that every Mac has."""
    folder = tmp_path_factory.mktemp("shelf")
    make_model(folder / "llama", "llama", layers=4, head_dim=64)
    borrowing(made("gemma4_text"), folder / "borrowing")
    shutil.copytree(DEMO_MODEL, folder / "demo")
    return folder


@pytest.fixture(scope="module")
def model(shelf: Path) -> Path:
    return shelf / "llama"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(shelf: Path, model: Path) -> AsyncIterator[Demo]:
    async with running_demo(shelf, BUDGETS[:3], load=None) as running:
        running.model = str(model)
        await running.load()
        yield running


@pytest.fixture
def head(demo: Demo) -> Watch:
    return demo.head


async def check(head: Watch, model: Path) -> None:
    expected = reference(model, PROMPTS, TOKENS)
    assert all(len(tokens) == TOKENS for tokens in expected)
    assert len(set(expected[0])) >= TOKENS // 2, "a reference that repeats one token proves nothing"
    answers = [await ask(head, prompt, TOKENS) for prompt in PROMPTS]
    assert max(a.done.prompt_tokens for a in answers) > PREFILL_CHUNK
    assert [a.tokens for a in answers] == expected


async def test_a_split_model_gives_the_tokens_of_mlx_lm(head: Watch, model: Path) -> None:
    await check(head, model)


@pytest.mark.nightly
@pytest.mark.parametrize(("family", "macs"), [("gpt_oss", 3), ("gemma4_text", 2), ("deepseek_v3", 4)])
async def test_a_split_model_of_another_family_gives_the_tokens_of_mlx_lm(made: Make, family: str, macs: int) -> None:
    async with running_demo(made(family), BUDGETS[:macs]) as demo:
        await check(demo.head, made(family))


async def test_as_many_as_are_taken_say_at_the_same_time_what_each_says_alone(head: Watch, model: Path) -> None:
    asked = [(prompt, WARM if number % 2 else Sampling()) for number, prompt in enumerate(CROWD)]
    greedy = reference(model, CROWD[::2], SHORT)
    warm = reference(model, CROWD[1::2], SHORT, sampling=WARM)
    expected = [(warm if number % 2 else greedy)[number // 2] for number in range(MOST)]
    assert sum(len(set(tokens)) for tokens in expected) >= MOST * SHORT // 2
    ids = [await begin(head, prompt, SHORT, sampling=sampling) for prompt, sampling in asked]
    assert [(await finish(head, request_id)).tokens for request_id in ids] == expected


async def test_one_more_is_refused_until_another_one_is_done(head: Watch) -> None:
    ids = [await begin(head, "a long one", 2000) for _ in range(MOST)]
    with pytest.raises(Busy):
        await begin(head, "one too many", SHORT)
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


async def run(demo: Demo, *words: str) -> Any:
    """The object that a command prints on the head."""
    ran = await macluster(demo.home.root, *words, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


async def test_quantised_caches_give_the_tokens_of_mlx_lm(demo: Demo, model: Path) -> None:
    """Also where the same model is loaded with whole caches."""
    (expected,) = reference(model, [PROMPTS[0]], 24, kv_bits=4)
    assert len(set(expected)) >= 12
    assert not (await run(demo, "load", str(model), "--kv-bits", "4"))["plan"]["batched"]
    answer = await ask(demo.head, PROMPTS[0], 24)
    assert answer.tokens == expected
    assert answer.tokens != reference(model, [PROMPTS[0]], 24)[0]


async def test_a_moved_cut_is_said_and_the_answer_stays_that_of_one_process(demo: Demo, shelf: Path) -> None:
    restricted = shelf / "borrowing"
    (expected,) = reference(restricted, ["a hop is"], SHORT)
    assert len(set(expected)) > SHORT // 2
    told = await run(demo, "load", str(restricted), "--verify")
    assert "mbp starts at layer 1 instead of 5" in told["plan"]["notes"][0]
    assert told["proof"].startswith("Proved against mlx_lm")
    assert (await ask(demo.head, "a hop is", SHORT)).tokens == expected


async def test_ranks_say_what_the_model_says(demo: Demo, shelf: Path) -> None:
    told = await run(demo, "load", str(shelf / "demo"), "--parallelism", "tp", "--without", "mini")
    assert told["plan"]["topology"] == "tensor"
    how = {"choice": "tp", "strategy": "tp", "reason": "your choice", "group": "sealed"}
    assert told["plan"]["parallelism"] == how
    assert told["proof"].startswith("Proved against mlx_lm")
    answer = await run(demo, "run", str(shelf / "demo"), "-p", DEMO_PROMPT, "--max-tokens", "12")
    assert "contiguous" in answer["text"]


# ---- the demo command, with weights that are large enough to be seen in a worker's memory


@pytest.fixture(scope="module")
def large(made: Make) -> Path:
    return made("llama", hidden=768, intermediate=1920, layers=4, heads=6, kv_heads=6, head_dim=128)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def facts(large: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The object that a demo of three Macs prints; only the head has the model on its disk."""
    words = ("--prompt", PROMPTS[0], "--max-tokens", "8", "--memory", "8,7,7", "--weights", "remote")
    home = tmp_path_factory.mktemp("home")
    ran = await macluster(home, "demo", "--model", str(large), "--json", "--no-multicast", *words)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


async def test_the_demo_command_prints_one_object(facts: Any, large: Path) -> None:
    (expected,) = reference(large, [PROMPTS[0]], 8)
    assert facts["tokens"] == expected
    assert facts["finish_reason"] == "length"
    assert [(s["peer"], s["start"], s["stop"]) for s in facts["plan"]["stages"]] == [
        ("studio", 0, 2),
        ("mbp", 2, 3),
        ("mini", 3, 4),
    ]
    assert facts["plan"]["topology"] == "private"
    assert facts["plan"]["output"] == "studio"
    assert [(h["from"], h["to"]) for h in facts["hops"]] == [("studio", "mbp"), ("mbp", "mini"), ("mini", "studio")]
    assert all(h["frames"] > 8 and h["bytes"] > 0 and h["compute_s"] > 0 for h in facts["hops"])
    assert facts["trust"]["level"] == "paired"
    assert len({w["pid"] for w in facts["workers"]}) == 3


def weights_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


async def test_only_the_heads_disk_has_the_model_and_the_others_fetch_their_part(facts: Any, large: Path) -> None:
    head, *others = facts["workers"]
    whole = weights_of(large)
    assert (head["fetched_bytes"], head["disk_bytes"] >= whole) == (0, True)
    for worker in others:
        assert 0.2 * whole < worker["fetched_bytes"] < 0.45 * whole
        assert 0.2 * whole < worker["disk_bytes"] < 0.45 * whole


async def test_a_worker_holds_its_slice_and_little_more(facts: Any) -> None:
    weights = sum(worker["weight_bytes"] for worker in facts["workers"])
    assert weights >= 100_000_000, "a whole model in memory must be seen"
    for worker in facts["workers"]:
        assert worker["rss_bytes"] <= 1.1 * worker["weight_bytes"] + 125 * 1024 * 1024, worker
