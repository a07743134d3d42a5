"""Two Macs in two network namespaces on a real bridge: found by Bonjour, paired by digits, one answer over both."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from core.address import parse_place
from core.events import PairingChanged, PathKind, Peer, TokenEvent
from core.requests.checks import SpeedRequest
from core.requests.plans import LoadRequest
from core.requests.trust import Digits, PairingOffer
from core.settings import Home
from tests.support.cluster import ask, begin, finish, reference, tokens_seen
from tests.support.lan import give_ipv6, inside, ip, lan, leave_ipv4, plug, unplug
from tests.support.maker import make_model
from tests.support.taps import Fate, cable, can_network, wire_to_bridge
from tui.cli.watch import Watch

pytestmark = [pytest.mark.skipif(bool(can_network()), reason=can_network()), pytest.mark.slow]

ROOT = Path(__file__).parents[2]
STUDIO, MINI, ATTACKER = (f"mc-{name}-{os.getpid()}" for name in ("studio", "mini", "rogue"))
PROMPT = "Tell me about the three Macs."
WAIT_S = 120.0
QUIET_S, FLOOD_S = 0.2, 0.5
SHORT, LONG, MORE = 32, 320, 16
CABLE = "thunderbolt0"


@contextmanager
def node(folder: Path, namespace: str, name: str, model: Path) -> Iterator[Home]:
    """A fresh Mac that listens on all its interfaces, the default."""
    home = Home(folder / name)
    command = [sys.executable, "-m", "core.node", "--home", str(home.root), "--name", name, "--budget", "8"]
    options = ["--models", str(model), "--no-spare-worker", "--until-eof"]
    with subprocess.Popen(inside(namespace, *command, *options), cwd=ROOT, stdin=subprocess.PIPE) as process:
        try:
            yield home
            assert process.poll() is None
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()


@asynccontextmanager
async def two_macs(model: Path) -> AsyncIterator[tuple[Watch, Watch]]:
    """Two Macs; their unix sockets are in the file system, which a namespace does not hide."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mc-")))
        places = ((STUDIO, "studio"), (MINI, "mini"))
        homes = [stack.enter_context(node(folder, ns, name, model)) for ns, name in places]
        async with AsyncExitStack() as watching:
            watches = [await watching.enter_async_context(Watch(home)) for home in homes]
            for watch in watches:
                await watch.attached(WAIT_S, lambda: True)
            yield watches[0], watches[1]


async def pair(one: Watch, other: Watch, host: str) -> None:
    """Pair as two people do: each types the digits of the other screen."""

    async def shows(watch: Watch, state: str) -> PairingChanged:
        def found() -> list[PairingChanged]:
            return [e for e in watch.seen if isinstance(e, PairingChanged) and e.state == state]

        await watch.until(lambda _: bool(found()), WAIT_S, f"Pairing: {state}")
        return found()[-1]

    window = await other.client.open_pairing()
    await one.client.offer_pairing(PairingOffer(host=host, port=window.port))
    near, far = await shows(one, "compare"), await shows(other, "compare")
    assert near.digits == far.digits
    await one.client.type_digits(Digits(digits=far.digits))
    await other.client.type_digits(Digits(digits=near.digits))
    for watch in (one, other):
        await shows(watch, "paired")


def flood(host: str, port: int) -> dict[str, float]:
    """Flood from a third machine on the same bridge; returns its counts."""
    words = ["--host", host, "--rate", "200", "--silent", "200", "--seconds", str(FLOOD_S)]
    command = inside(ATTACKER, sys.executable, "-m", "tests.attacks.flood", str(port), *words)
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    made: dict[str, float] = json.loads(ran.stdout)
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose answers do not end by themselves."""
    make_model(tmp_path / "qwen", "qwen3", layers=4)
    return tmp_path / "qwen"


async def test_two_macs_find_and_pair_and_answer_over_a_bridge(model: Path) -> None:
    (expected,) = reference(model, [PROMPT], LONG)
    with ExitStack() as cables:
        addresses = cables.enter_context(lan(STUDIO, MINI, ATTACKER))
        line = cables.enter_context(closing(wire_to_bridge(MINI, addresses[MINI])))
        async with two_macs(model) as (studio, mini):
            for watch in (studio, mini):
                await watch.until(lambda w: bool(others(w)), WAIT_S, "Finding the other Mac")
            (found,) = others(studio)
            assert (found.name, found.found_by, found.trust) == ("mini", "bonjour", "unpaired")
            assert found.address.startswith(addresses[MINI])
            await networks_change(studio)
            await pair(studio, mini, addresses[MINI])
            await studio.until(
                lambda w: any(p.state == "connected" and p.budget_bytes for p in others(w)), WAIT_S, "A link"
            )
            await studio.client.load(LoadRequest(model=str(model)))
            await studio.until(lambda w: w.now.plan_status in ("ready", "broken"), WAIT_S, "Loading")
            assert studio.now.plan_status == "ready", studio.now.plan_problem
            assert studio.now.plan
            assert [s.peer for s in studio.now.plan.stages] == ["studio", "mini"]
            answer = await ask(studio, PROMPT, SHORT)
            assert (answer.done.problem, answer.tokens) == (None, expected[:SHORT])
            assert answer.text
            await answers_under_a_flood(studio, addresses[STUDIO], expected[:SHORT])
            line.fate = Fate(delay_s=0.02)
            plug_in = partial(cable, STUDIO, MINI, CABLE, Fate(delay_s=0.005))
            await moves_in_the_middle_of_an_answer(studio, lambda: cables.enter_context(plug_in()), expected)
            await knows_what_networks_carry(studio)
            await meets_over_the_cable_alone(studio, model, expected[:SHORT])


async def answers_under_a_flood(studio: Watch, host: str, expected: list[int]) -> None:
    """One address may connect four times a second; more costs next to nothing. Rates are printed."""
    port = int(next(p.address for p in studio.now.peers if p.is_self).rpartition(":")[2])
    rates = []
    for work in (lambda: time.sleep(QUIET_S), lambda: print(f"\n{flood(host, port)}")):
        beside, tokens, started = asyncio.create_task(asyncio.to_thread(work)), 0, time.monotonic()
        while not beside.done():
            answer = await ask(studio, PROMPT, SHORT)
            assert answer.tokens == expected
            tokens += len(answer.tokens)
        await beside
        rates.append(tokens / (time.monotonic() - started))
    print(f"{rates[0]:.1f} tokens/s in peace, {rates[1]:.1f} in the flood: {rates[1] / rates[0]:.2f}")


async def moves_in_the_middle_of_an_answer(studio: Watch, plug_in: Callable[[], object], expected: list[int]) -> None:
    """The ring moves to a cable when it is plugged in, and off it when pulled, during an answer and without one."""
    assert paths(studio) == {"Ethernet"}
    request = await begin(studio, PROMPT, LONG)
    await tokens_seen(studio, request, MORE)
    plug_in()
    await writes_over(studio, request, "Thunderbolt")
    ip("-n", MINI, "link", "set", CABLE, "down")
    await writes_over(studio, request, "Ethernet")
    await studio.client.cancel(request)
    answer = await finish(studio, request)
    told = [e.index for e in studio.seen if isinstance(e, TokenEvent) and e.request_id == request]
    assert told == list(range(len(told)))
    assert answer.tokens == expected[: len(told)]
    assert 2 * len(set(answer.tokens)) >= len(told), "it wanders"
    assert answer.done.finish_reason == "cancelled", "all that was in the middle of it"
    logs = [line.text for line in studio.now.logs]
    assert any("The Thunderbolt path to" in text and "is gone" in text for text in logs)
    assert studio.now.plan
    assert [s.peer for s in studio.now.plan.stages] == ["studio", "mini"]
    ip("-n", MINI, "link", "set", CABLE, "up")


async def knows_what_networks_carry(studio: Watch) -> None:
    """A speed test reports every network between the two, and which of them is fast, once neither was busy."""
    (mini,) = others(studio)
    async with asyncio.timeout(WAIT_S):
        while True:
            found = (await studio.client.test_speed(SpeedRequest(target=mini.device_id))).paths
            kinds: list[PathKind] = [path.kind for path in found]
            if kinds == ["Thunderbolt", "Ethernet"] and found[0].rtt_s < found[1].rtt_s:
                break
    cable, line = found
    assert cable.rtt_s > 0.01
    assert line.bytes_per_s > 0
    assert cable.bytes_per_s > 0


async def writes_over(studio: Watch, request: str, path: str) -> None:
    """Check that the answer continues over that path, by the hops of the ring."""
    await studio.until(lambda w: paths(w) == {path}, WAIT_S, f"Moving to {path}")
    written = sum(isinstance(e, TokenEvent) and e.request_id == request for e in studio.seen)
    await tokens_seen(studio, request, written + MORE)
    assert paths(studio) == {path}


async def meets_over_the_cable_alone(studio: Watch, model: Path, expected: list[int]) -> None:
    """The Macs link by the link-local addresses of the cable's ends if nothing else is left; by IPv6 alone, too."""
    ip("-n", MINI, "link", "set", "eth0", "down")
    await studio.until(lambda w: is_linked_at(w, "169.254."), WAIT_S, "A link over the cable")
    give_ipv6(STUDIO, MINI, "thunderbolt0")
    await studio.until(lambda w: "fe80::2" in hosts(w), WAIT_S, "Hearing of the cable's other address")
    leave_ipv4(STUDIO, MINI, "thunderbolt0")
    await studio.until(lambda w: is_linked_at(w, "fe80::"), WAIT_S, "A link over the cable by IPv6")
    await studio.client.load(LoadRequest(model=str(model), topology="forward"))
    await studio.until(lambda w: topology(w) == "forward" and w.now.plan_status == "ready", WAIT_S, "Loading")
    answer = await ask(studio, PROMPT, SHORT)
    assert (answer.done.problem, answer.tokens) == (None, expected)
    assert studio.now.plan
    assert [s.peer for s in studio.now.plan.stages] == ["studio", "mini"]


def is_linked_at(watch: Watch, begins: str) -> bool:
    """Whether the other Mac is linked at such an address and has told its memory, without which it gets no layers."""
    linked = [p.address for p in others(watch) if p.state == "connected" and p.budget_bytes]
    return any(address.removeprefix("[").startswith(begins) for address in linked)


def topology(watch: Watch) -> str:
    return watch.now.plan.topology if watch.now.plan else ""


def paths(watch: Watch) -> set[str]:
    """The kinds of network that the ring uses."""
    return {hop.path for hop in watch.now.hops}


async def networks_change(watch: Watch) -> None:
    """A new network is advertised, one inside of that Mac is not, and a removed one is withdrawn."""
    plug(MINI, "vmnet1", "192.168.64.1")
    plug(MINI, "eth1", "10.77.42.2")
    await watch.until(lambda w: "10.77.42.2" in hosts(w), WAIT_S, "Hearing of a new address")
    assert "192.168.64.1" not in hosts(watch)
    unplug(MINI, "eth1")
    plug(MINI, "eth2", "10.77.43.2")
    await watch.until(lambda w: "10.77.43.2" in hosts(w), WAIT_S, "Hearing of another one")


def hosts(watch: Watch) -> set[str]:
    """The known addresses of the other Mac."""
    return {parse_place(place).host for peer in others(watch) for place in (peer.address, *peer.also_at)}


def others(watch: Watch) -> list[Peer]:
    return [p for p in watch.now.peers if not p.is_self]
