"""Trust among real nodes: a revoked Mac is out at once everywhere, and decisions reach every Mac."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil
import pytest
import pytest_asyncio

from core.errors import Busy, MaclusterError, NodeUnreachable, NotPaired, RosterError, UsageError
from core.events import PeerGone, PlanFailed, RequestDone, TrustChanged
from core.requests.answers import ChatRequest, Message
from core.requests.conversations import SessionName
from core.requests.plans import LoadRequest
from core.requests.trust import Address, ForkChoice, RecoveryPhrase, Rename, Target, TrustedMac, TrustView
from core.settings import Home
from core.trust.identity import load_or_create
from core.trust.roster.changes import rename
from core.trust.roster.store import RosterStore
from tests.support.cluster import Answer, Make, ask, begin, finish, tokens_seen
from tests.support.command import CommandResult, macluster
from tests.support.processes import lives
from tui.cli.demo import Demo, DemoConfig, pair
from tui.cli.load import loaded
from tui.cli.watch import Watch

PROMPT = "tell me about hops"
SOON_S = 120.0
BUDGETS = (64, 32, 16)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@asynccontextmanager
async def paired(model: Path, *more: float) -> AsyncIterator[Demo]:
    """Nodes that know each other's addresses; the first three are paired, nothing is loaded."""
    demo = Demo(DemoConfig(budgets_gb=(*BUDGETS, *more), model=model, multicast=False, has_spare=False), lambda _: None)
    try:
        await demo.start()
        await demo.find_each_other()
        for other in demo.watches[1:3]:
            await pair(demo.head, other)
        await all_linked(*demo.watches[:3])
        yield demo
    finally:
        await demo.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo(made: Make) -> AsyncIterator[Demo]:
    """Three Macs with the model loaded; later tests here revoke them one by one."""
    async with paired(made("llama", layers=4)) as running:
        await running.load()
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def headless(made: Make) -> AsyncIterator[Demo]:
    """For the two tests that lose the first admin, then disagree."""
    async with paired(made("llama", layers=4), 16) as running:
        yield running


async def all_linked(*watches: Watch) -> None:
    def linked(watch: Watch) -> bool:
        macs = [p for p in watch.now.peers if p.state == "connected" and p.trust == "paired" and p.budget_bytes]
        return len(macs) == len(watches)

    await asyncio.gather(*(w.until(linked, SOON_S, "Linking") for w in watches))


async def true(what: str, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not reached():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def row(watch: Watch, name: str) -> TrustedMac:
    return next(m for m in (await watch.client.trust()).macs if m.name == name)


async def viewed(watch: Watch, reached: Callable[[TrustView], bool]) -> TrustView:
    deadline = time.monotonic() + SOON_S
    while not reached(view := await watch.client.trust()):
        assert time.monotonic() < deadline, view
        await asyncio.sleep(0.05)
    return view


def sockets(demo: Demo, index: int) -> set[tuple[int, int]]:
    """Both ports of every TCP connection of a Mac's node and worker."""
    node = psutil.Process(demo.pid_of(index))
    found = set()
    for process in (node, *node.children(recursive=True)):
        try:
            for c in process.net_connections(kind="tcp"):
                if c.status == psutil.CONN_ESTABLISHED:
                    found.add((c.laddr.port, c.raddr.port))
        except psutil.NoSuchProcess:
            continue
    return found


def are_connected(demo: Demo, one: int, other: int) -> bool:
    return not sockets(demo, one).isdisjoint({(b, a) for a, b in sockets(demo, other)})


async def reattach(demo: Demo, index: int) -> Watch:
    """Follow a node that was started again."""
    old = demo.watches[index]
    with pytest.raises(NodeUnreachable):
        await old.until(lambda _: False, SOON_S, "The end of the old node")
    watch = demo.watches[index] = await demo._stack.enter_async_context(Watch(demo._home(index)))
    await watch.attached(30, lambda: demo._lives(index))
    return watch


def first(watch: Watch, kind: type, mark: int) -> int:
    return next(n for n, e in enumerate(watch.seen) if n >= mark and isinstance(e, kind))


# ---- names and keys


async def test_a_new_name_and_new_keys_are_on_every_mac_in_the_next_plan_and_in_every_answer_of_the_api(
    demo: Demo,
) -> None:
    name, expected = "mäc; x", await unkept(demo.head)
    await demo.head.client.rename(Rename(mac="mini", name=name))
    for watch in demo.watches[:3]:
        await watch.until(lambda w: any(p.name == name for p in w.now.peers), SOON_S, "The name")
    with pytest.raises(UsageError, match="No Mac is called 'mini'"):
        await demo.head.client.rename(Rename(mac="mini", name="mini"))
    await new_keys_of_a_member_and_of_the_head(demo, name)
    await demo.load()
    assert demo.head.now.plan
    assert [s.peer for s in demo.head.now.plan.stages] == ["studio", "mbp", name]
    assert demo.head.now.trust.weakest == name
    assert (await unkept(demo.head)).tokens == expected.tokens
    transport = httpx2.AsyncHTTPTransport(uds=str(demo.home.socket))
    async with httpx2.AsyncClient(transport=transport, base_url="http://node") as http:
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/load"), ("GET", "/nothing")):
            reply = await http.request(method, path)
            assert reply.headers["x-macluster-trust"] == "paired; weakest=m%C3%A4c%3B%20x"
        async with http.stream("GET", "/v1/events") as stream:
            assert stream.headers["x-macluster-trust"].startswith("paired; ")
    await demo.head.client.rename(Rename(mac=name, name="mini"))
    for watch in demo.watches[:3]:
        await watch.until(lambda w: any(p.name == "mini" for p in w.now.peers), SOON_S, "The old name")


async def unkept(watch: Watch) -> Answer:
    """An answer that is written to no disk."""
    request = ChatRequest(messages=(Message(role="user", content=PROMPT),), max_tokens=16, keep=False)
    return await finish(watch, (await watch.client.chat(request)).request_id)


async def new_keys_of_a_member_and_of_the_head(demo: Demo, member: str) -> None:
    epoch = (await demo.head.client.trust()).epoch
    before = {p.name: p.device_id for p in demo.head.now.peers}
    with pytest.raises(Busy, match="loaded"):
        await demo.watches[2].client.rotate()
    await demo.head.client.unload()
    for index, name in ((2, member), (0, "studio")):
        await true("the plan is gone", lambda: demo.head.now.plan is None)
        view = await _rotated(demo.watches[index])
        own = next(m for m in view.macs if m.is_self)
        assert (own.name, own.level, own.role) == (name, "paired", "admin" if name == "studio" else "member")
        assert own.device_id != before[name]
        await reattach(demo, index)
        await all_linked(*demo.watches[:3])
        assert (
            next(p.device_id for p in demo.watches[1].now.peers if p.name == name and p.state == "connected")
            != (before[name])
        )
    old = [m for m in (await demo.head.client.trust()).macs if m.role == "revoked"]
    assert [m.reason for m in old] == [
        f"{member} changed its key in epoch {epoch + 1}; this is its old one.",
        f"studio changed its key in epoch {epoch + 2}; this is its old one.",
    ]


async def _rotated(watch: Watch) -> TrustView:
    """Wait until every Mac has let go of a plan, a moment after its head reported so."""
    deadline = time.monotonic() + SOON_S
    while True:
        try:
            return await watch.client.rotate()
        except Busy:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


# ---- texts for people and programs


async def test_the_commands_say_who_sees_what_and_do_nothing_for_good_unasked(demo: Demo) -> None:
    epoch = (await demo.head.client.trust()).epoch
    listed = await run(demo, "list", "--json")
    view = json.loads(listed.stdout)
    assert (view["level"], view["weakest"], view["epoch"]) == ("paired", "mini", epoch)
    macs = [m for m in view["macs"] if m["role"] != "revoked"]
    assert sorted(m["name"] for m in macs) == ["mbp", "mini", "studio"]
    studio, mbp, mini = (next(m for m in macs if m["name"] == name) for name in ("studio", "mbp", "mini"))
    assert studio["sees"] == "token ids, logits"
    assert mini["sees"].startswith("hidden states of layer")
    assert all(len(m["fingerprint"]) == 64 for m in view["macs"])
    shown = await run(demo, "show", mbp["device_id"][:6])
    assert "mbp" in shown.stdout
    for action in ("show", "revoke"):  # no question is asked about an action that would be refused
        unknown = await run(demo, action, "nobody")
        assert (unknown.returncode, "No Mac is called" in unknown.stderr) == (2, True)
    last = await run(demo, "revoke", "studio")
    assert (last.returncode, "This is the only admin." in last.stderr) == (2, True), "a key of before has the same name"
    refused = await run(demo, "revoke", "mini")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert (await row(demo.head, "mini")).role == "member"
    words = await run(demo, "recover", "--new", "--yes")
    assert len([w for w in words.stdout.split() if w.isalpha() and w.islower()]) >= 24


async def run(demo: Demo, *arguments: str) -> CommandResult:
    return await macluster(demo.home.root, "trust", *arguments)


# ---- revoking


@pytest.mark.promise("P13", "T5")
async def test_a_member_that_is_revoked_while_it_streams_is_out_at_once_everywhere(demo: Demo) -> None:
    head, expected = demo.head, await ask(demo.head, PROMPT, 16)
    logs, sessions = demo.home.tokens, demo.home.sessions
    await head.client.save_session(SessionName(name="shared"))
    assert list(sessions.glob("*.mcs"))
    assert are_connected(demo, 0, 2)
    assert are_connected(demo, 1, 2)
    assert len(list(logs.glob("*.mct"))) == 1
    epoch = (await head.client.trust()).epoch + 1
    request = await begin(head, PROMPT, 3000)
    await tokens_seen(head, request, 5)
    mark, started = len(head.seen), time.monotonic()
    revoked = await run(demo, "revoke", "mini", "--yes", "--json")
    assert revoked.returncode == 0, revoked.stderr
    answer = await finish(head, request)
    print(f"revoked in {time.monotonic() - started:.2f} s")
    assert answer.tokens[:16] == expected.tokens[: len(answer.tokens)]
    assert answer.done.problem
    assert (answer.done.problem.kind, answer.done.problem.fix) == ("NotPaired", "Load the model again without it.")
    assert answer.done.problem.what == f"mini was revoked by studio in epoch {epoch}."
    assert first(head, TrustChanged, mark) < first(head, PlanFailed, mark) < first(head, RequestDone, mark)
    await head.until(lambda w: any(isinstance(e, PeerGone) for e in w.seen[mark:]), 240, "Losing mini")
    assert first(head, PlanFailed, mark) < first(head, PeerGone, mark)
    macs = [m for m in json.loads(revoked.stdout)["macs"] if m["name"] == "mini"]
    assert {m["role"] for m in macs} == {"revoked"}, "also its old key"
    await true("mini's links are closed", lambda: not any(are_connected(demo, other, 2) for other in (0, 1)))
    await true("what was written with it is forgotten", lambda: not list(logs.glob("*.mct")))
    await true("what was saved with it is forgotten", lambda: not list(sessions.glob("*.mcs")))
    told = await viewed(demo.watches[2], lambda view: view.level == "blocked")
    assert next(m.reason for m in told.macs if m.is_self) == f"This Mac was revoked by studio in epoch {epoch}."
    with pytest.raises(MaclusterError, match="This Mac was revoked by studio"):
        await demo.watches[2].client.load(LoadRequest(model=demo.model))
    blocked = await viewed(demo.watches[1], lambda view: view.epoch == epoch)
    assert {m.level for m in blocked.macs if m.name == "mini"} == {"blocked"}
    await demo.load()
    assert [s.peer for s in head.now.plan.stages if head.now.plan] == ["studio", "mbp"] if head.now.plan else False
    assert (await ask(head, PROMPT, 16)).tokens == expected.tokens
    assert len(list(logs.glob("*.mct"))) == 1
    assert head.now.trust == TrustChanged(level="paired", weakest="mbp")
    assert not are_connected(demo, 0, 2), "it cannot come back"
    assert not are_connected(demo, 1, 2)


async def test_another_admin_than_the_head_revokes_the_head_while_it_streams(demo: Demo) -> None:
    """The plan is that of studio and mbp, which the test before left."""
    head, mbp = demo.head, demo.watches[1]
    with pytest.raises(RosterError, match="not an admin") as refused:
        await mbp.client.revoke(Target(mac="studio"))
    assert "studio" in refused.value.fix
    await head.client.promote(Target(mac="mbp"))
    epoch = (await viewed(mbp, lambda view: view.is_admin)).epoch
    request = await begin(head, PROMPT, 3000)
    await tokens_seen(head, request, 5)
    workers = {c.pid for c in psutil.Process(demo.pid_of(1)).children()}
    await mbp.client.revoke(Target(mac="studio"))
    answer = await finish(head, request)
    assert answer.done.problem
    # by the new roster, or by a message of mbp, which had it first
    assert answer.done.problem.what in (
        f"This Mac was revoked by mbp in epoch {epoch + 1}.",
        f"mbp: studio was revoked by mbp in epoch {epoch + 1}.",
    )
    await viewed(head, lambda view: view.level == "blocked")
    with pytest.raises(NotPaired, match=f"This Mac was revoked by mbp in epoch {epoch + 1}") as gone:
        await head.client.load(LoadRequest(model=demo.model))
    assert "pair this Mac again" in gone.value.fix
    await true("its links are closed", lambda: not are_connected(demo, 0, 1))
    await true("the other Mac's memory is free", lambda: not any(lives(p) for p in workers))
    await mbp.client.load(LoadRequest(model=demo.model))
    await mbp.until(lambda w: w.now.plan_status == "ready", 240, "Loading on the one that is left")
    assert (await ask(mbp, PROMPT, 8)).done.finish_reason == "length"


# ---- the last admin is lost


async def test_the_words_make_another_mac_admin_when_the_last_one_is_lost(headless: Demo) -> None:
    studio, mbp, mini, air = headless.watches
    words = (await studio.client.new_recovery()).words
    await viewed(mbp, lambda view: view.has_recovery)
    kill(headless, 0)
    shutil.rmtree(headless.home.root)
    await mbp.until(lambda w: any(p.state == "lost" for p in w.now.peers), SOON_S, "Seeing studio lost")
    wrong = " ".join(words.split()[::-1])
    with pytest.raises(MaclusterError):
        await mbp.client.recover(RecoveryPhrase(words=wrong, lost=("studio",)))
    following = await mbp.client.recover(RecoveryPhrase(words=words, lost=("studio",)))
    assert following.words != words
    view = await mbp.client.trust()
    assert (view.is_admin, view.has_recovery) == (True, True)
    lost = next(m for m in view.macs if m.name == "studio")
    assert (lost.role, lost.reason) == ("revoked", "studio was revoked by recovery key in epoch 5.")
    with pytest.raises(MaclusterError, match="used up"):
        await mini.client.recover(RecoveryPhrase(words=words))
    await pair(mbp, air)
    await all_linked(mbp, mini, air)


# ---- forks


@pytest.mark.promise("P14")
async def test_two_admins_that_sign_apart_end_the_plan_and_block_each_other_until_people_decide(headless: Demo) -> None:
    """Two Macs stream; the third comes with another history that it signed as an admin. The head of before is gone."""
    _, mbp, mini, air = headless.watches
    await mbp.client.promote(Target(mac="air"))
    epoch = (await viewed(air, lambda view: view.is_admin)).epoch + 1
    kill(headless, 3)
    await mbp.until(lambda w: any(p.name == "air" and p.state == "lost" for p in w.now.peers), SOON_S, "Losing air")
    await mbp.client.rename(Rename(mac="mini", name="left"))
    await viewed(mini, lambda view: view.epoch == epoch)
    await loaded(mbp, LoadRequest(model=headless.model))
    assert mbp.now.plan
    assert [s.peer for s in mbp.now.plan.stages] == ["mbp", "left"]
    request = await begin(mbp, PROMPT, 3000)
    await tokens_seen(mbp, request, 5)
    sign_apart(headless._home(3), "right", "far right")
    air = await started_anew(headless, 3, mbp, mini)
    answer = await finish(mbp, request)
    assert answer.done.problem
    assert answer.done.problem.kind == "RosterFork"
    for watch in (mbp, mini, air):
        view = await viewed(watch, lambda view: view.fork is not None)
        assert view.level == "blocked"
        assert {m.level for m in view.macs} == {"blocked"}
        assert f"The roster of epoch {epoch} forked: " in next(m.reason for m in view.macs if m.is_self)
        with pytest.raises(RosterError, match="forked") as refused:
            await watch.client.load(LoadRequest(model=headless.model))
        assert "macluster trust resolve" in refused.value.fix
        with pytest.raises(RosterError, match="forked"):
            await watch.client.rename(Rename(mac="mbp", name="anything"))
    with pytest.raises(MaclusterError):
        await begin(mbp, PROMPT, 8)
    ours, theirs = (await mbp.client.trust()).fork or ("", "")
    assert (await air.client.trust()).fork == (theirs, ours)
    for watch in (mbp, mini, air):
        await watch.client.resolve_fork(ForkChoice(keep=ours))
    for watch in (mbp, mini, air):
        view = await viewed(watch, lambda view: view.epoch == epoch + 1)
        assert view.fork is None
        assert {m.name for m in view.macs if m.role != "revoked"} == {"mbp", "left", "air"}
    await all_linked(mbp, mini, air)
    await loaded(mbp, LoadRequest(model=headless.model))
    assert (await ask(mbp, PROMPT, 8)).done.finish_reason == "length"


def kill(demo: Demo, index: int) -> None:
    node = demo._nodes[index]
    node.kill()
    node.communicate()


def sign_apart(home: Home, *names: str) -> None:
    """Sign an epoch for each name as the admin in `home`, without any link."""
    identity, store = load_or_create(home.identity, use_keychain=False), RosterStore(home.rosters)
    for name in names:
        store.advance(rename(store.cluster().roster, identity, identity.device_id, name))


async def started_anew(demo: Demo, index: int, *others: Watch) -> Watch:
    """Start a killed node again over the same folder; it finds the others."""
    demo._nodes[index] = demo._launch(index, Path(demo.model))
    watch = await reattach(demo, index)
    for other in others:
        peer = next(p for p in other.now.peers if p.is_self)
        host, _, port = peer.address.rpartition(":")
        await watch.client.know(Address(device_id=peer.device_id, host=host, port=int(port)))
    return watch
