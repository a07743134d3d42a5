"""kill -9 of any process: the answer continues if possible, and the other processes live on and report the fault."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import jsonschema
import psutil
import pytest
import pytest_asyncio

from core.constraint import Constraint
from core.errors import LinkError, MaclusterError
from core.events import Recovery
from core.requests.plans import LoadRequest
from core.settings import GB
from tests.conftest import our_children
from tests.support.clocks import JUMP_S, jumping_clocks
from tests.support.cluster import Answer, Make, ask, begin, finish, running_demo, tokens_seen
from tests.support.processes import GONE_S, gone
from tests.support.waiting import undisturbed
from tui.cli.demo import Demo

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "tell me about hops"
TOKENS = 64


FAILING_GPU = Path(__file__).parents[1] / "support" / "failing_gpu" / "sitecustomize.py"


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder; where a file `now` is in it, one worker's GPU gives up its next step."""
    return tmp_path_factory.mktemp("gpu")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(made: Make, gpu: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    """Three nodes; no process of theirs keeps the same wall time for long, and a GPU may give up."""
    folder = tmp_path_factory.mktemp("site")
    with jumping_clocks(folder, FAILING_GPU.read_text()), pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_FAILS_BY", str(gpu / "now"))
        async with running_demo(made("llama", layers=4), (64, 32, 16)) as running:
            yield running


@pytest_asyncio.fixture(loop_scope="module")
async def demo(nodes: Demo) -> Demo:
    """The model loaded over three nodes; only the last tests here may end one."""
    if nodes.head.now.plan_status != "ready":
        await reload(nodes)
    return nodes


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(nodes: Demo) -> Answer:
    """The undisturbed answer to the prompt."""
    answer = await ask(nodes.head, PROMPT, TOKENS)
    assert len(set(answer.tokens)) > TOKENS / 2
    return answer


async def reload(demo: Demo) -> None:
    """Load again until it succeeds, as a person does."""
    deadline = time.monotonic() + GONE_S
    while True:
        try:
            await demo.load()
            return
        except MaclusterError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.3)


def worker_of(demo: Demo, name: str) -> int:
    return next(p.worker_pid or 0 for p in demo.head.now.peers if p.name == name)


@pytest.mark.parametrize("name", ["mini", pytest.param("mbp", marks=pytest.mark.nightly), "studio"])
async def test_an_answer_outlives_each_worker(demo: Demo, whole: Answer, name: str) -> None:
    async def is_told_of() -> bool:
        """Whether the restart is reported; on a busy machine, neighbours may notice the loss first and report that."""
        request = await begin(demo.head, PROMPT, TOKENS)
        await tokens_seen(demo.head, request, 5)
        os.kill(worker_of(demo, name), signal.SIGKILL)
        answer = await finish(demo.head, request)
        assert (answer.tokens, answer.text) == (whole.tokens, whole.text)
        assert answer.done.finish_reason == "length"
        told = [event for event in demo.head.seen if isinstance(event, Recovery) and request in event.requests]
        assert told[-1].state == "running"
        assert demo.head.now.recovery is None
        return any(f"The worker of {name} was restarted" in event.text for event in told)

    await undisturbed(is_told_of)


async def test_a_document_that_a_schema_asks_for_outlives_a_worker_and_is_whole(demo: Demo) -> None:
    text = {"type": "string", "minLength": 16, "maxLength": 20}
    schema = {"type": "array", "prefixItems": [text, {"enum": [1, 2]}], "minItems": 3, "maxItems": 3, "items": text}
    shape = Constraint(kind="json_schema", source=json.dumps(schema))
    expected = await finish(demo.head, await begin(demo.head, PROMPT, 400, constraint=shape))
    assert len(set(expected.tokens)) > len(expected.tokens) / 2
    jsonschema.validate(json.loads(expected.text), schema)
    request = await begin(demo.head, PROMPT, 400, constraint=shape)
    await tokens_seen(demo.head, request, 5)
    os.kill(worker_of(demo, "mini"), signal.SIGKILL)
    answer = await finish(demo.head, request)
    assert (answer.tokens, answer.text) == (expected.tokens, expected.text)
    assert (answer.done.finish_reason, answer.done.is_valid) == ("stop", True)
    told = [event for event in demo.head.seen if isinstance(event, Recovery) and request in event.requests]
    assert told[-1].state == "running"
    cut_off = await finish(demo.head, await begin(demo.head, PROMPT, 5, constraint=shape))
    assert (cut_off.done.finish_reason, cut_off.done.is_valid) == ("length", False)


async def test_a_cancel_keeps_what_is_written_and_frees_the_ring(demo: Demo) -> None:
    request = await begin(demo.head, PROMPT, 3000)
    await tokens_seen(demo.head, request, 5)
    await demo.head.client.cancel(request)
    answer = await finish(demo.head, request)
    assert answer.done.finish_reason == "cancelled"
    assert 5 <= len(answer.tokens) < 3000
    assert (await ask(demo.head, PROMPT, 8)).done.finish_reason == "length"


# test_public_api.py sends SIGTERM, test_dead_ring.py SIGKILL
@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.nightly), signal.SIGINT])
async def test_the_demo_leaves_nothing_however_it_ends(made: Make, number: signal.Signals) -> None:
    model = str(made("llama", layers=4))
    command = [sys.executable, "-m", "tui.cli.main", "demo", "--model", model, "--macs", "1", "--no-multicast"]
    with subprocess.Popen(  # noqa: ASYNC220 - started at once; every wait on it is in a thread
        [*command, "--max-tokens", "100000", "--prompt", "go on"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as demo:
        assert demo.stdout
        await asyncio.to_thread(read_until, demo.stdout.readline, b"> go on")
        await asyncio.to_thread(demo.stdout.read, 20)
        below = [c.pid for c in psutil.Process(demo.pid).children(recursive=True)]
        assert len(below) == 4, "a node, its worker, its tokenizer, and what its templates run in"
        demo.send_signal(number)
        await asyncio.to_thread(gone, below)
        assert await asyncio.to_thread(demo.wait, GONE_S) in (-number, 128 + number)


def read_until(readline: Callable[[], bytes], wanted: bytes) -> None:
    said = b""
    while wanted not in (line := readline()):
        said += line
        assert line, f"the demo ended before it answered: {said.decode()}"


async def test_unloading_ends_every_answer_and_load_frees_the_workers_and_leaves_room_for_the_next(demo: Demo) -> None:
    before = {p.worker_pid for p in demo.head.now.peers}
    running = await begin(demo.head, PROMPT, 3000)
    waiting = await begin(demo.head, PROMPT, 3000)
    await tokens_seen(demo.head, running, 5)
    await demo.head.client.unload()
    for request in (running, waiting):
        answer = await finish(demo.head, request)
        assert answer.done.problem is not None
        assert answer.done.problem.kind == "NotLoaded"
    await demo.head.until(lambda w: w.now.plan is None, GONE_S, "Unloading")
    await asyncio.to_thread(gone, [p for p in before if p])
    with pytest.raises(MaclusterError, match="No model is loaded") as refused:
        await begin(demo.head, PROMPT, 8)
    assert "macluster load" in refused.value.fix
    assert not isinstance(refused.value, LinkError)
    loading = asyncio.create_task(demo.head.client.load(LoadRequest(model=demo.model)))
    await demo.head.until(lambda w: w.now.plan_status == "loading", GONE_S, "Beginning to load")
    await demo.head.client.unload()
    await asyncio.gather(loading, return_exceptions=True)
    await demo.head.until(lambda w: w.now.plan is None, GONE_S, "Taking it back")
    await reload(demo)
    assert (await ask(demo.head, PROMPT, 8)).done.finish_reason == "length"
    assert len(our_children()) == 6


async def test_an_answer_outlives_a_gpu_that_gives_up_a_step(demo: Demo, whole: Answer, gpu: Path) -> None:
    """The worker ends, and its Mac is planned with less memory from then on."""
    fails_by = gpu / "now"
    request = await begin(demo.head, PROMPT, TOKENS)
    await tokens_seen(demo.head, request, 5)
    fails_by.touch()
    answer = await finish(demo.head, request)
    assert not fails_by.exists()
    assert answer.tokens == whole.tokens
    await demo.head.until(
        lambda w: sorted(p.budget_bytes // GB for p in w.now.peers) in ([16, 32, 57], [16, 28, 64], [14, 32, 64]),
        GONE_S,
        "The new budget",
    )


# ---- tests that end the shared nodes, one after the other


async def test_an_answer_outlives_a_mac_also_where_all_clocks_jump(demo: Demo, whole: Answer) -> None:
    children = [c.pid for c in psutil.Process(demo.pid_of(2)).children()]
    workers = [worker_of(demo, name) for name in ("studio", "mbp")]
    request = await begin(demo.head, PROMPT, TOKENS)
    await tokens_seen(demo.head, request, 5)
    await demo.pull("mini")
    answer = await finish(demo.head, request)
    assert answer.tokens == whole.tokens
    await asyncio.to_thread(gone, children)
    await demo.head.until(lambda w: any(p.state == "lost" for p in w.now.peers), GONE_S, "Seeing mini lost")
    assert [stage.peer for stage in demo.head.now.plan.stages] == ["studio", "mbp"]  # type: ignore[union-attr]
    told = [event.text for event in demo.head.seen if isinstance(event, Recovery) and event.state == "running"]
    assert told[-1].startswith("mini dropped out; continued on studio + mbp after")
    read = [line.at for line in demo.head.now.logs]
    assert max(read) - min(read) > JUMP_S / 2, "they did jump"
    assert [worker_of(demo, name) for name in ("studio", "mbp")] == workers, "what they hold of it stays in memory"
    assert (await ask(demo.head, PROMPT, TOKENS)).tokens == whole.tokens
    demo._nodes[2].communicate()  # its pipe is closed
    await demo.plug("mini")
    await demo.watches[1].until(
        lambda w: all(p.state == "connected" and p.budget_bytes for p in w.now.peers), GONE_S, "Its return"
    )


async def test_kill_of_the_heads_node(demo: Demo, whole: Answer) -> None:
    node = psutil.Process(demo.pid_of(0))
    children = [c.pid for c in node.children()]
    node.kill()
    await asyncio.to_thread(gone, children)
    other = demo.watches[1]
    await other.until(lambda w: any(p.state == "lost" for p in w.now.peers), GONE_S, "Seeing studio lost")
    await other.until(
        lambda w: any("that leads the plan is gone" in line.text for line in w.now.logs), GONE_S, "Saying so"
    )
    await other.client.load(LoadRequest(model=demo.model))
    await other.until(lambda w: w.now.plan_status == "ready", GONE_S, "Loading on the two that are left")
    assert other.now.plan
    assert [stage.peer for stage in other.now.plan.stages] == ["mbp", "mini"]
    assert (await ask(other, PROMPT, 24)).tokens == whole.tokens[:24]


async def test_a_head_that_quits_leaves_no_layers_behind(nodes: Demo) -> None:
    node = psutil.Process(nodes.pid_of(2))
    workers = [child.pid for child in node.children()]
    assert workers
    psutil.Process(nodes.pid_of(1)).terminate()
    await asyncio.to_thread(gone, workers)
    assert node.is_running()
