"""Over a ring a person saves a conversation and continues it over another split, or chooses who has which layers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from core.events import Topology
from core.requests.trace import PHASES, STEP_TOTAL
from core.sampling_options import Sampling
from core.trust.identity import load_or_create
from core.trust.sealed_files import write_sealed
from tests.support.cluster import Make, ask, begin, reference, running_demo, tokens_seen
from tests.support.command import macluster
from tests.support.processes import IDLE_SHARE, shares
from tests.support.viewers import opened
from tui.cli.demo import Demo

FIRST, SECOND = "a hop is", "and a lane"
TOKENS = 16
WARM = Sampling(temperature=1.0, seed=7)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama"), (64, 32, 16)) as running:
        yield running


async def test_requests_do_not_show_through_and_seeds_repeat(demo: Demo) -> None:
    (warm,) = reference(Path(demo.model), ["tell me"], 24, sampling=WARM)
    first, other, again = [await ask(demo.head, p, 16) for p in ("hello", FIRST, "hello")]
    sampled = await ask(demo.head, "tell me", 24, sampling=WARM)
    assert first.tokens == again.tokens != other.tokens
    assert len(set(first.tokens)) >= 8
    assert sampled.tokens == warm


async def test_a_ring_that_nobody_asks_sleeps(demo: Demo) -> None:
    nodes = [demo.pid_of(index) for index in range(3)]
    workers = [peer.worker_pid or 0 for peer in demo.head.now.peers]
    found = await asyncio.to_thread(shares, [*nodes, *workers])
    print("idle nodes, idle workers:", ", ".join(f"{100 * share:.2f} %" for share in found))
    assert max(found[3:]) < IDLE_SHARE


async def facts(home: Path, *words: str) -> Any:
    ran = await macluster(home, *words, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


async def test_what_every_stage_does_is_traced_into_a_file_for_viewers(demo: Demo, tmp_path: Path) -> None:
    asked, file = await begin(demo.head, FIRST, 3000), tmp_path / "trace.json"
    await tokens_seen(demo.head, asked, 1)
    told = await facts(demo.home.root, "trace", "-o", str(file), "--seconds", "1")
    await demo.head.client.cancel(asked)
    plan = demo.head.now.plan
    assert plan
    assert [stage["mac"] for stage in told["stages"]] == [stage.peer for stage in plan.stages]
    assert all(set(stage["decode"]) == {*PHASES, STEP_TOTAL} for stage in told["stages"])
    assert [stage["clock_error_s"] > 0 for stage in told["stages"]] == [False, *[True] * (len(plan.stages) - 1)]
    assert all(hop["flight_s"] is not None for hop in told["hops"])
    for stage in told["stages"]:  # one machine, one clock
        assert abs(stage["clock_ahead_s"]) <= stage["clock_error_s"]
    tracks = opened(file.read_text("utf-8"))
    assert {pid for pid, _ in tracks} == set(range(1, len(plan.stages) + 1))
    slices = [one for track in tracks.values() for one in track]
    assert min(one["ts"] for one in slices) == 0
    assert {one["name"] for one in slices} >= {"layers_compute", "aead_seal", "readback"}


async def refused(home: Path, *words: str, status: int = 1) -> str:
    ran = await macluster(home, *words)
    assert ran.returncode == status, ran.stdout
    return ran.stderr


def continued(model: Path, messages: list[dict[str, str]]) -> list[int]:
    """The answer of mlx-lm to a conversation in one process."""
    from mlx_lm import load
    from mlx_lm.generate import stream_generate

    loaded, tokenizer = load(str(model))[:2]
    chat = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    return [reply.token for reply in stream_generate(loaded, tokenizer, chat, max_tokens=TOKENS)]


async def test_a_conversation_is_kept_and_goes_on_over_another_split(demo: Demo, made: Make) -> None:
    model = made("llama")
    home = demo.home.root

    async def loaded(topology: Topology, *how: str) -> None:
        plan = (await facts(home, "load", str(model), "--topology", topology, *how))["plan"]
        assert plan["topology"] == topology

    await loaded("forward")
    assert "There is no conversation to save yet" in await refused(home, "session", "save", "trip")
    first = await facts(home, "run", str(model), "-p", FIRST, "--max-tokens", str(TOKENS))
    kept = await facts(home, "session", "save", "trip")
    said = [{"role": "user", "content": FIRST}, {"role": "assistant", "content": first["text"]}]
    assert kept["messages"] == said
    (listed,) = await facts(home, "session", "list")
    assert (listed["name"], listed["tokens"], listed["problem"]) == ("trip", kept["tokens"], None)
    assert listed["size_bytes"] > 1000 * kept["tokens"]
    expected = continued(model, [*said, {"role": "user", "content": SECOND}])
    assert len(set(expected)) >= TOKENS // 2
    await loaded("reverse")
    assert (await facts(home, "session", "load", "trip"))["messages"] == said
    second = await facts(home, "run", str(model), "-p", SECOND, "--session", "trip", "--max-tokens", str(TOKENS))
    assert second["tokens"] == expected
    assert second["reused_tokens"] >= first["prompt_tokens"]
    shown = await macluster(home, "session", "load", "trip")
    assert f"[user]\n{FIRST}\n" in shown.stdout
    await check_refusals(home)
    assert await facts(home, "session", "delete", "trip") == {"deleted": "trip"}
    assert "There is no session 'trip'" in await refused(home, "session", "load", "trip", status=2)


async def check_refusals(home: Path) -> None:
    """Check the refusals: files that were cut, changed or are from elsewhere, and names that lead elsewhere."""
    folder, secret = home / "sessions", load_or_create(home / "identity").secret("session")
    whole = (folder / "trip.mcs").read_bytes()
    for name, content in (("cut", whole[:-9]), ("changed", whole[:999] + b"!!" + whole[1001:])):
        (folder / f"{name}.mcs").write_bytes(content)
        (folder / f"{name}.mcs").chmod(0o600)
        assert "was changed or cut" in await refused(home, "session", "load", name)
    write_sealed(folder / "newer.mcs", [b"MCK\x09"], secret, "session")
    assert "newer.mcs has format 9" in await refused(home, "session", "load", "newer")
    listed = await macluster(home, "session", "list")
    assert "newer: newer.mcs has format 9; this version of macluster reads formats up to 1." in listed.stdout
    for name in ("../trip", ".trip", "a/b", ""):
        assert "session" in await refused(home, "session", "save", name, status=2)
    for name in ("cut", "changed", "newer"):
        await facts(home, "session", "delete", name)


async def test_run_loads_anew_only_for_another_ring_than_the_one_that_was_asked_for(demo: Demo, made: Make) -> None:
    model = made("llama")
    (expected,) = reference(model, [FIRST], TOKENS)
    assert len(set(expected)) >= TOKENS // 2, "a reference that repeats one token proves nothing"

    async def run(*how: str) -> dict[str, Any]:
        ran = await macluster(
            demo.home.root, "run", str(model), "-p", FIRST, "--max-tokens", str(TOKENS), "--json", *how
        )
        assert ran.returncode == 0, ran.stderr
        told: dict[str, Any] = json.loads(ran.stdout)
        assert told["tokens"] == expected
        return told

    def generation() -> int:
        assert demo.head.now.plan
        return demo.head.now.plan.plan_gen

    async def seen() -> list[str]:
        view = json.loads((await macluster(demo.home.root, "trust", "list", "--json")).stdout)
        return [mac["sees"] for mac in view["macs"]]

    await demo.head.until(lambda w: all(mac.worker_pid for mac in w.now.peers), 60, "What each Mac says of its worker")
    before, workers = generation(), [mac.worker_pid for mac in demo.head.now.peers]
    children = {child.pid for child in psutil.Process(demo.pid_of(0)).children()}
    forward = await run("--topology", "forward")
    assert (forward["plan"]["topology"], forward["plan"]["output"]) == ("forward", "mini")
    back = next(h for h in forward["hops"] if (h["from"], h["to"]) == ("mini", "studio"))
    assert back["bytes"] < min(h["bytes"] for h in forward["hops"] if h is not back) / 2
    assert await seen() == ["token ids", "hidden states of layers 5–6", "token ids, logits"]
    first = generation()
    assert first > before
    assert (await run())["plan"]["topology"] == (await run("--topology", "forward"))["plan"]["topology"] == "forward"
    assert generation() == first
    given = ("--layers", "6:output,2:5,0:1")
    reverse = await run(*given)
    assert reverse["plan"]["topology"] == "reverse"
    assert [(s["peer"], s["start"], s["stop"]) for s in reverse["plan"]["stages"]] == [
        ("studio", 6, 8),
        ("mini", 0, 2),
        ("mbp", 2, 6),
    ]
    assert await seen() == ["token ids, logits", "hidden states of layers 2–5", "token ids"]
    assert [mac.worker_pid for mac in demo.head.now.peers] == workers, "what stays with a Mac stays in memory"
    assert {child.pid for child in psutil.Process(demo.pid_of(0)).children()} >= children, "also the tokenizer"
    second = generation()
    await run(*given)
    assert generation() == second
    assert (await run("--topology", "single"))["hops"] == []
    assert await seen() == ["token ids, logits", "", ""]
    refused = await macluster(demo.home.root, "load", str(model), "--layers", "0:1,3:5,6:output")
    assert (refused.returncode, "No Mac has layer 2." in refused.stderr) == (2, True)
