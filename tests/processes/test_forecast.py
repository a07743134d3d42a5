"""Real Macs answer once; the forecast then uses that answer. And Macs can be left out of a plan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from core.errors import LinkTimeout, UsageError
from core.events import Plan, PlanLoaded
from core.models.files.model_folder import read_folder
from core.node.ring.throughput_history import write_curves
from core.plan.cost_curve import Point, curve_name
from core.plan.forecast import CLEARLY_FASTER, kept_advice
from core.requests.plans import Forecast, LoadRequest, PreviewRequest
from tests.support.cluster import Make, ask, running_demo
from tests.support.command import macluster
from tests.support.restarting import kill_head, start_head
from tui.cli.demo import Demo
from tui.cli.watch import Watch

LEARNED_S = 120.0
UNITS = 100.0  # far beyond what a busy machine does: only mistaken units are so far off

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    """Nodes that have answered nothing; the tests end one after the other."""
    async with running_demo(made("llama"), (64, 32, 16)) as running:
        yield running


async def foretold(demo: Demo, **how: Any) -> Forecast:
    told = (await demo.head.client.plan(PreviewRequest(model=demo.model, **how))).forecast
    assert told
    return told


async def learned(demo: Demo) -> Forecast:
    """The forecast after the answer is evaluated, soon after its end."""
    deadline = monotonic() + LEARNED_S
    while not (told := await foretold(demo)).measured:
        assert monotonic() < deadline, demo.home.throughput.read_text()
        await asyncio.sleep(0.05)
    return told


async def test_after_an_answer_the_forecast_is_measured_and_near_it(demo: Demo) -> None:
    before = await foretold(demo)
    assert (before.measured, before.prompt_s) == (False, None), "a processor reads it, and no M2 Ultra"
    assert "faster there" in before.advice, "by their chips, the head alone by far"
    await demo.head.until(lambda w: w.now.advice != "", LEARNED_S, "What is said of the plan")
    said_before = demo.head.now.advice  # with the round trips of that moment
    answer = await ask(demo.head, " ".join(["one two three four"] * 12), 48)
    now = await learned(demo)
    assert answer.done.decode_tokens_per_s
    ratio = now.tokens_per_s / answer.done.decode_tokens_per_s
    print(f"foretold {now.tokens_per_s:.1f} tokens/s, {ratio:.2f} of the measured rate")
    assert 1 / UNITS < ratio < UNITS
    assert (len(now.stages_s), len(now.hops_s)) == (3, 3)
    assert now.alone_tokens_per_s
    assert ("faster there" in now.advice) == (now.alone_tokens_per_s * now.token_s >= CLEARLY_FASTER)
    advice = kept_advice(now, said_before)  # the running plan gets the same with the next evaluation
    await demo.head.until(lambda w: w.now.advice == advice, LEARNED_S, "What is said of the plan then")

    forward = await foretold(demo, topology="forward")
    assert forward.measured, "the same Macs in another order of work"
    single = await foretold(demo, topology="single")
    assert (single.hops_s, single.alone_tokens_per_s, single.advice) == ((), None, "")

    said = await macluster(demo.home.root, "plan", demo.model, "--json")
    assert json.loads(said.stdout)["forecast"]["tokens_per_s"] == pytest.approx(now.tokens_per_s)
    assert demo.home.throughput.stat().st_mode & 0o777 == 0o600
    assert demo.head.now.advice == advice, "it stays said"


async def test_layers_move_to_faster_macs_between_two_answers(demo: Demo) -> None:
    alone = await ask(demo.head, "one two three", 12)
    await kill_head(demo)
    # from earlier days: whatever the head needs, the others need less
    whole = read_folder(Path(demo.model)).layout().total_bytes
    others = [mac.device_id for mac in demo.head.now.peers if not mac.is_self]
    write_curves(demo.home.throughput, {curve_name("token", other): (Point(whole, 1e-6),) for other in others})
    await start_head(demo)
    await demo.head.client.load(LoadRequest(model=demo.model, balance="auto"))
    await demo.head.until(lambda w: w.now.plan_status == "ready" and is_divided(w.now.plan), 240, "Loading")
    before = demo.head.now.plan
    assert before
    for _ in range(4):  # the last request comes while layers move
        assert (await ask(demo.head, "one two three", 12)).tokens == alone.tokens
    for _ in range(20):  # looks for better splits after each answer, unless the next one has begun
        with suppress(LinkTimeout):
            await demo.head.until(moved, 12, "Moving")
            break
        assert (await ask(demo.head, "one two three", 12)).tokens == alone.tokens
    plan = demo.head.now.plan
    assert plan
    assert moved(demo.head), plan.notes
    assert plan.head.stop < before.head.stop


def moved(watch: Watch) -> bool:
    return watch.now.plan_status == "ready" and is_divided(watch.now.plan, "speed")


def is_divided(plan: Plan | None, by: str = "") -> bool:
    return plan is not None and any(note.startswith(f"Divided by {by}") for note in plan.notes)


async def test_macs_are_left_out_also_of_the_plan_that_follows_a_loss(demo: Demo) -> None:
    client, names = demo.head.client, {p.name: p.device_id for p in demo.head.now.peers}
    with pytest.raises(UsageError, match="studio leads this plan"):
        await client.plan(PreviewRequest(model=demo.model, without=(names["studio"],)))

    planned = await macluster(demo.home.root, "plan", demo.model, "--without", "mbp", "--json")
    stages = json.loads(planned.stdout)["plan"]["stages"]
    assert [stage["peer"] for stage in stages] == ["studio", "mini"]
    unknown = await macluster(demo.home.root, "plan", demo.model, "--without", "nobody")
    assert (unknown.returncode, "No Mac is called 'nobody'" in unknown.stderr) == (2, True)

    run = ("run", demo.model, "-p", "a hop is", "--max-tokens", "8", "--without", names["mini"][:8], "--json")
    told = json.loads((await macluster(demo.home.root, *run)).stdout)
    assert [stage["peer"] for stage in told["plan"]["stages"]] == ["studio", "mbp"]

    request = LoadRequest(model=demo.model, without=(names["mini"],))
    mark = len(demo.head.seen)
    await client.load(request)  # its events may come after its reply, and the plan before is ready, too
    await demo.head.until(lambda w: any(isinstance(e, PlanLoaded) for e in w.seen[mark:]), 240, "Loading")
    mark = len(demo.head.seen)
    demo._nodes[1].kill()
    await demo.head.until(lambda w: any(_is_single(e) for e in w.seen[mark:]), 240, "Going on without it")


def _is_single(event: object) -> bool:
    plan = getattr(event, "plan", None)
    return isinstance(event, msgspec.Struct) and plan is not None and [s.peer for s in plan.stages] == ["studio"]
