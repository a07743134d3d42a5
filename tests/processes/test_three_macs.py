"""Over three Macs a person saves conversations, measures hops, chooses who has which layers, and who reads prompts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from core.errors import Busy, MaclusterError, NodeError, NotPaired, UsageError
from core.events import AnyEvent, LogLine, Peer, PeerChanged, PeerSeen, PlanFailed, Progress, Topology
from core.node.peers.link_probe import FRAMES, PROBES, ROUND_TRIPS
from core.requests.checks import SpeedRequest, SpeedResult
from core.requests.plans import LoadRequest, PreviewRequest
from core.requests.trace import PHASES, STEP_TOTAL
from core.requests.trust import Address, Target
from core.sampling_options import Sampling
from core.settings import Home
from core.trust.identity import load_or_create
from core.trust.sealed_files import write_sealed
from core.verify.running import run_checks
from tests.support.cluster import Make, ask, begin, finish, reference, running_demo, tokens_seen
from tests.support.command import macluster
from tests.support.nodes import HOST, own_port, running_node
from tests.support.processes import IDLE_SHARE, shares, stopped
from tests.support.viewers import opened
from tests.support.waiting import undisturbed
from tui.cli.demo import NAMES, Demo
from tui.cli.load import loaded
from tui.cli.paired_checks import paired_checks
from tui.cli.watch import Watch

FIRST, SECOND = "a hop is", "and a lane"
TOKENS = 16
FEW = 12
WAIT_S = 120.0
LONG_PROMPT = "Tell me about the three Macs. " * 20
OTHER = "What does a hop cost? " * 22
WARM = Sampling(temperature=1.0, seed=7)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    async with running_demo(made("llama"), (64, 32, 16)) as running:
        yield running


async def test_the_log_of_a_mac_shows_those_of_all_macs_in_order(demo: Demo) -> None:
    macs = {peer.name for peer in demo.head.now.peers}
    for watch in demo.watches:
        await watch.until(lambda w: {line.source for line in w.now.logs} == macs, WAIT_S, "The logs of all")
        begun = [line for line in watch.now.logs if " is up, key kept by " in line.text]
        assert {line.source for line in begun} == macs
        assert len(begun) == len(macs), "each line is told once"
        assert [line.at for line in begun] == sorted(line.at for line in begun)


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


# ---- Macs that stop for a while


def seen_by_head(demo: Demo, index: int) -> tuple[Peer, list[int]]:
    """A Mac in the head's view, and the processes of its node and its worker."""
    peer = next(p for p in demo.head.now.peers if p.name == NAMES[index])
    node = demo.pid_of(index)
    return peer, [node, *(child.pid for child in psutil.Process(node).children())]


def states(events: list[AnyEvent], device_id: str) -> list[str]:
    """The states of that Mac as seen, one after the other."""
    seen = [e.peer.state for e in events if isinstance(e, PeerChanged | PeerSeen) and e.peer.device_id == device_id]
    return [state for at, state in enumerate(seen) if at == 0 or state != seen[at - 1]]


async def time_until(demo: Demo, device_id: str, state: str, what: str) -> float:
    """Seconds until the head sees that Mac in `state`."""
    started = time.monotonic()
    await demo.head.until(
        lambda w: any(p.device_id == device_id and p.state == state for p in w.now.peers), WAIT_S, what
    )
    return time.monotonic() - started


async def test_a_mac_that_stops_for_a_second_is_not_lost_by_anyone(demo: Demo) -> None:
    mac, pids = seen_by_head(demo, 2)
    every, beyond = [p.device_id for p in demo.head.now.peers], demo.watches[2]

    async def nobody_is_lost() -> bool:
        marks = [len(watch.seen) for watch in demo.watches]
        with stopped(pids):
            await asyncio.sleep(1.0)  # the fault itself
        await beyond.until(lambda w: len(w.seen) > marks[2] + 2, WAIT_S, "Going on")
        for watch in demo.watches:
            await watch.until(
                lambda w: all(p.is_self or p.state == "connected" for p in w.now.peers), WAIT_S, "Hearing all"
            )
        seen = [watch.seen[mark:] for watch, mark in zip(demo.watches, marks, strict=True)]
        # a Mac that slept takes no other for lost
        return not any("lost" in states(events, device_id) for events in seen for device_id in every)

    await undisturbed(nobody_is_lost)
    assert is_connected(demo.head.now.peers, mac.device_id)


def is_connected(peers: tuple[Peer, ...], device_id: str) -> bool:
    return any(p.device_id == device_id and p.state == "connected" for p in peers)


async def test_a_mac_that_stops_for_four_seconds_is_suspected_then_lost_and_comes_back(demo: Demo) -> None:
    mac, pids = seen_by_head(demo, 2)
    mark, began = len(demo.head.seen), time.monotonic()
    with stopped(pids):
        took_s = await time_until(demo, mac.device_id, "lost", "Seeing it lost")
        print(f"stopped: lost after {took_s:.2f} s")
        await asyncio.sleep(began + 4.0 - time.monotonic())
    worse = dict.fromkeys(state for state in states(demo.head.seen[mark:], mac.device_id) if state != "connected")
    assert list(worse) == ["suspect", "lost"], "what it measures may be told once more before it stops"
    await demo.watches[2].until(
        lambda w: any("This Mac did not run for" in line.text for line in w.now.logs), WAIT_S, "Knowing its own sleep"
    )
    print(f"back after {await time_until(demo, mac.device_id, 'connected', 'Its return'):.2f} s")


async def test_a_demo_loads_once_more_where_a_mac_was_lost_meanwhile(demo: Demo) -> None:
    mac, pids = seen_by_head(demo, 2)
    mark = len(demo.head.seen)
    with stopped(pids):
        loading = asyncio.create_task(demo.load())
        await demo.head.until(lambda w: any(isinstance(e, PlanFailed) for e in w.seen[mark:]), WAIT_S, "Losing it")
    await loading
    plan = demo.head.now.plan
    assert plan
    assert mac.device_id in {stage.device_id for stage in plan.stages}


# ---- speed tests


async def measured(demo: Demo, source: str, target: str) -> SpeedResult:
    """The result of a speed test; asked again while that Mac still rests from another test."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                return await demo.head.client.test_speed(SpeedRequest(source=source, target=target))
            except Busy:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param("", "mbp", id="own"),
        pytest.param("mbp", "mini", id="of others"),
        pytest.param("mini", "studio", id="towards the one who asks"),
    ],
)
async def test_every_hop_of_the_ring_can_be_measured(demo: Demo, source: str, target: str) -> None:
    mark = len(demo.head.seen)
    found = await measured(demo, source, target)
    ids = {p.name: p.device_id for p in demo.head.now.peers}
    assert (found.source, found.target) == (ids[source or "studio"], ids[target])
    assert 0 < found.rtt_min_s <= found.rtt_s < 1
    assert found.round_trips == ROUND_TRIPS
    assert 0 < found.frames <= FRAMES
    assert found.bytes_per_s > 0
    assert not found.answering
    told = [e for e in demo.head.seen[mark:] if isinstance(e, Progress) and e.task == "speed test"]
    assert told
    assert all(e.total == PROBES for e in told)


async def test_an_answer_stays_the_same_and_nobody_is_suspect_meanwhile(demo: Demo) -> None:
    alone = await ask(demo.head, FIRST, 200)

    async def nobody_is_suspect() -> bool:
        marks = [len(watch.seen) for watch in demo.watches]
        request = await begin(demo.head, FIRST, 200)
        await tokens_seen(demo.head, request, 2)
        found = await measured(demo, "", "mbp")
        beside = await finish(demo.head, request)
        assert found.answering
        assert beside.tokens == alone.tokens
        events = [e for watch, mark in zip(demo.watches, marks, strict=True) for e in watch.seen[mark:]]
        return not {e.peer.state for e in events if isinstance(e, PeerChanged | PeerSeen)} & {"suspect", "lost"}

    await undisturbed(nobody_is_suspect)


async def test_a_test_can_be_stopped_and_the_next_one_runs(demo: Demo) -> None:
    def tests(watch: Watch) -> set[str]:
        return {e.request_id for e in watch.seen if isinstance(e, Progress)}

    await measured(demo, "", "mini")
    await demo.head.until(lambda w: len(tests(w)) > 0, WAIT_S, "Its progress")
    before = tests(demo.head)
    running = asyncio.create_task(measured(demo, "", "mini"))
    await demo.head.until(lambda w: tests(w) > before, WAIT_S, "The next test")
    with pytest.raises(Busy):
        await demo.head.client.test_speed(SpeedRequest(target="mbp"))
    await demo.head.client.stop_speed_test()  # it rests for a second before it sends anything
    with pytest.raises(NodeError, match="stopped"):
        await running
    assert (await measured(demo, "", "mini")).frames > 0


async def test_the_command_prints_it(demo: Demo) -> None:
    for words, said in ((["mini", "--json"], "bytes_per_s"), (["studio", "mini"], "round trip")):
        told = await macluster(demo.home.root, "speedtest", *words)
        assert told.returncode == 0
        assert said in told.stdout
        if "--json" in words:
            assert json.loads(told.stdout)["frames"] > 0


async def test_a_report_has_the_link_to_a_mac_and_the_way_back_without_their_names(demo: Demo) -> None:
    checks = paired_checks(demo.head.client.home, "mini")
    found = [each async for each in run_checks(checks)]
    assert [(each.name, each.passed) for each in found] == [("link to the other Mac", True), ("link back", True)]
    assert all(re.fullmatch(r"[\d.]+ ms round trip, \d+ MB/s sealed.*", each.figure) for each in found)
    assert not re.search("mini|studio|lo", " ".join(each.figure for each in found))


# ---- commands


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

    def pids() -> list[int | None]:
        return [mac.worker_pid for mac in demo.head.now.peers if mac.trust == "paired"]

    def generation() -> int:
        assert demo.head.now.plan
        return demo.head.now.plan.plan_gen

    async def seen() -> list[str]:
        view = json.loads((await macluster(demo.home.root, "trust", "list", "--json")).stdout)
        return [mac["sees"] for mac in view["macs"]]

    await demo.head.until(lambda _: all(pids()), 60, "What each Mac says of its worker")
    before, workers = generation(), pids()
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
    assert pids() == workers, "what stays with a Mac stays in memory"
    assert {child.pid for child in psutil.Process(demo.pid_of(0)).children()} >= children, "also the tokenizer"
    second = generation()
    await run(*given)
    assert generation() == second
    assert (await run("--topology", "single"))["hops"] == []
    assert await seen() == ["token ids, logits", "", ""]
    refused = await macluster(demo.home.root, "load", str(model), "--layers", "0:1,3:5,6:output")
    assert (refused.returncode, "No Mac has layer 2." in refused.stderr) == (2, True)


async def test_a_mac_that_is_not_paired_is_not_tested(demo: Demo, tmp_path: Path) -> None:
    stranger = Home(tmp_path / "stranger")
    stranger.root.mkdir(mode=0o700)
    async with running_node(stranger, "--no-multicast") as other:
        own = next(p for p in other.now.peers if p.is_self)
        await demo.head.client.know(Address(device_id=own.device_id, host=HOST, port=own_port(other)))
        await demo.head.until(lambda w: any(p.device_id == own.device_id for p in w.now.peers), WAIT_S, "Seeing")
        with pytest.raises(MaclusterError) as refused:
            await demo.head.client.test_speed(SpeedRequest(target=own.device_id))
        assert isinstance(refused.value, NotPaired)


# ---- a prefill Mac, which is revoked; then another one is killed


def id_of(watch: Watch, name: str) -> str:
    return next(peer.device_id for peer in watch.now.peers if peer.name == name)


async def says(watch: Watch, words: str, mark: int) -> None:
    await watch.until(
        lambda w: any(isinstance(e, LogLine) and words in e.text for e in w.seen[mark:]), WAIT_S, f"To hear {words!r}"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def helped(demo: Demo) -> Demo:
    """The Macs, with the last one as a prefill Mac."""
    mark = len(demo.head.seen)
    await loaded(demo.head, LoadRequest(model=demo.model, prefill=id_of(demo.head, "mini")))
    await says(demo.head, "mini prefills prompts of 256 tokens or more", mark)
    return demo


async def test_it_reads_long_prompts_and_the_tokens_are_those_of_one_process(helped: Demo) -> None:
    plan = helped.head.now.plan
    assert plan
    assert plan.prefill
    assert [stage.peer for stage in plan.stages] == ["studio", "mbp"]
    assert any("mini reads prompts of 256 tokens or more, and sees their token ids" in note for note in plan.notes)
    # until rates are measured; later they decide
    told = await macluster(helped.home.root, "plan", helped.model, "--prefill", "mini")
    assert "mini would see token ids of the prompts that it reads." in told.stdout
    auto = await helped.head.client.plan(PreviewRequest(model=helped.model, prefill="auto"))
    assert auto.plan
    assert auto.plan.prefill is None
    long, short = await ask(helped.head, LONG_PROMPT, FEW), await ask(helped.head, "Hello", FEW)
    assert [long.tokens, short.tokens] == reference(Path(helped.model), [LONG_PROMPT, "Hello"], FEW)
    assert (long.done.beside_tokens, long.done.reused_tokens) == (long.done.prompt_tokens - 1, 0)
    assert short.done.beside_tokens == 0
    macs = (await helped.head.client.trust()).macs
    assert next(mac.sees for mac in macs if mac.name == "mini") == "token ids of the prompts that it reads"


async def test_the_ring_reads_once_it_is_lost_and_it_reads_again_once_it_is_back(helped: Demo) -> None:
    head, mark = helped.head, len(helped.head.seen)
    mini = next(peer for peer in head.now.peers if peer.name == "mini")
    assert mini.worker_pid
    request = await begin(head, OTHER, FEW)
    os.kill(mini.worker_pid, signal.SIGKILL)
    answer = await finish(head, request)
    await says(head, "mini can't prefill now; the ring does", mark)
    await says(head, "mini prefills prompts of 256 tokens or more", mark)
    again = await ask(head, f"And two? {OTHER}", FEW)
    assert again.done.beside_tokens > 0
    assert [answer.tokens, again.tokens] == reference(Path(helped.model), [OTHER, f"And two? {OTHER}"], FEW)


async def test_who_leads_or_is_not_there_reads_for_nobody(helped: Demo) -> None:
    with pytest.raises(UsageError, match="studio leads"):
        await helped.head.client.plan(PreviewRequest(model=helped.model, prefill=id_of(helped.head, "studio")))
    nobody = await helped.head.client.plan(PreviewRequest(model=helped.model, prefill="nobody"))
    assert nobody.problem
    assert "is not connected" in nobody.problem.what


@pytest.mark.promise("P36")
async def test_the_plan_ends_where_it_must_see_no_prompt_any_more(helped: Demo) -> None:
    assert helped.head.now.trust.level == "paired"
    await helped.head.client.revoke(Target(mac="mini"))
    await helped.head.until(lambda w: w.now.plan_status == "broken", WAIT_S, "The end of the plan")
    problem = helped.head.now.plan_problem
    assert problem
    assert "mini was revoked by studio" in problem.what


async def test_a_node_that_is_killed_is_lost_at_once(demo: Demo) -> None:
    """The end of its link shows the loss, not its silence."""
    mac, pids = seen_by_head(demo, 1)
    mark = len(demo.head.seen)
    os.kill(pids[0], signal.SIGKILL)
    print(f"killed: lost after {await time_until(demo, mac.device_id, 'lost', 'Seeing it lost'):.3f} s")
    (own,) = (peer.name for peer in demo.head.now.peers if peer.is_self)

    def why(watch: Watch) -> list[str]:
        told = [e for e in watch.seen[mark:] if isinstance(e, LogLine) and e.source == own]
        return [line.text for line in told if line.text.startswith("mbp is gone: ")]

    await demo.head.until(lambda w: why(w) != [], WAIT_S, "Its reason")
    (reason,) = why(demo.head)
    assert "No sign of life" not in reason
