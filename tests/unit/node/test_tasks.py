"""No background task of a node ends unseen: each is made to fail in a real node, and the node reacts as documented."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import ref

import pytest
from msgspec.structs import replace

import core.node
from core.address import Place
from core.errors import NodeError, NotLoaded, PairingError, WorkerDied
from core.events import AnyEvent, LogLine, PairingChanged
from core.link.control_link import ControlServer
from core.link.network_paths import NetworkPath
from core.node import service
from core.node.answers.answers import Answers
from core.node.answers.saved_sessions import SavedSessions
from core.node.base import tasks as tasks_module
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.local_server import LocalServer
from core.node.base.signals import AwaitedSignal, Signal
from core.node.base.tasks import Tasks, place_of
from core.node.config import ApiOptions, NodeConfig
from core.node.disks.model_inventory import ModelInventory
from core.node.pairing.pairing_session import PairingSession
from core.node.parts import NodeParts
from core.node.peers import node_check
from core.node.peers.dialling import Dialling
from core.node.peers.discovery import Discovery
from core.node.peers.mesh import Mesh
from core.node.peers.node_check import restart_findings
from core.node.peers.peer_logs import PeerLogs
from core.node.peers.stage_state import HeldStage, PlanId
from core.node.plans.driver import PlanDriver
from core.node.plans.orders import Free, Order, Prepare, Rebuild, Seek
from core.node.plans.plan_machine import PlanMachine
from core.node.plans.room import PlanAdvisor
from core.node.public_api.listener import Listener
from core.node.public_api.metrics import Metrics
from core.node.restarting import Restarting
from core.node.ring.messages import LinkUp, PrepareStage, StageReport
from core.node.ring.plan_member import PlanMember
from core.node.ring.planning import Planned
from core.node.ring.stage_files import Lack
from core.node.ring.throughput_history import ThroughputHistory
from core.node.ring.worker_supervisor import Supervisor, WorkerEnded, WorkerReported
from core.node.service import Node
from core.node.trust.roster_enforcement import MacsRevoked, PlanDistrusted, RosterEnforcement
from core.settings import GB, Home
from core.text import clean_text
from core.trust.pairing_attempts import PairingAttempts
from core.trust.roster.store import RosterStore
from core.worker.messages import Linked, Load
from tests.support.macs import mac
from tests.support.nodes import HOST, paired_home
from tests.support.plans import PROBLEM, mac_id, plan_of
from tests.support.waiting import until
from tui.cli.watch import Watch

SEEN_S = 120.0
TYPED = "what a person typed"
PLACE = r"KeyError at \S+\.py:\d+ in \S+"

DISTRUSTED = PlanDistrusted(plan_of(2), mac_id(1), PROBLEM)

Trigger = Callable[[NodeParts], Awaitable[None]]


def said(signal: Signal) -> Trigger:
    async def trigger(parts: NodeParts) -> None:
        parts.node.signals.emit(signal)

    return trigger


def told(signal: AwaitedSignal) -> Trigger:
    async def trigger(parts: NodeParts) -> None:
        await parts.node.signals.deliver(signal)

    return trigger


async def take_stage(parts: NodeParts) -> None:
    parts.ring.supervisor._up.set()  # as if a worker listened
    await parts.ring.member.prepare_own(Load(plan=plan_of(2), index=0, directory=""), 7)


async def link(parts: NodeParts) -> None:
    plan = plan_of(2)
    parts.peers.worker.stages[plan.head.device_id] = HeldStage(plan=PlanId(plan.head.device_id, 7))
    await parts.ring.member.link_own(plan, LinkUp.of(plan, 1))


async def lead(parts: NodeParts, *, lacks: tuple[Lack, ...] = (), own: bool = False) -> PlanMachine:
    """Begin a plan of this node and another Mac."""
    plan = plan_of(2)
    if own:
        plan = replace(plan, stages=(replace(plan.head, device_id=parts.node.own_id), plan.stages[1]))
    return await parts.plans.driver._lead(Planned(plan, Path(), verify=False, lacks=lacks))


def gives(*given: Order) -> Trigger:
    async def trigger(parts: NodeParts) -> None:
        parts.plans.driver._carry_out(given, await lead(parts))

    return trigger


async def load_again(parts: NodeParts) -> None:
    machine = parts.plans.driver._machine = PlanMachine(plan_of(2), PlanId(mac_id(0), 7), 0.0)
    parts.plans.driver._found = Planned(machine.plan, Path(), verify=False)
    parts.plans.driver._carry_out([Rebuild(machine.plan)], machine)


async def load_what_lacks(parts: NodeParts) -> None:
    await lead(parts, lacks=(Lack(device_id=mac_id(1), peer="mac1", layers=((2, 4),), nbytes=1, parts=()),))


async def prepare_own(parts: NodeParts) -> None:
    await lead(parts, own=True)


ESSENTIAL = {
    "The local API": (LocalServer, "_serve"),
    "The API": (Listener, "_serve"),
    "The watch over trust": (Node, "_watch"),
    "The watch over answers": (PlanDriver, "watch"),
    "The watch over links": (Mesh, "_beat"),
    "The listener for links": (ControlServer, "_listen"),
    "The keeper of the worker": (Supervisor, "_run_one"),
}
RESTARTABLE = {
    "Counting for metrics": (Metrics, "watch"),
    "The keeper of the spare worker": (Supervisor, "_keep_spare"),
    "The look at memory": (Node, "_look_at_memory"),
    "The look at networks": (Node, "_look_at_networks"),
    "Keeping this Mac awake": (Node, "_keep_awake"),
    "The look at the installation": (Restarting, "watch"),
    "Measuring of throughput": (PlanAdvisor, "watch"),
    "The look at the disk": (ModelInventory, "watch"),
    "Dialling": (Dialling, "_seek"),
    "Bonjour": (Discovery, "_resolve_due"),
    "Asking for other Macs' logs": (PeerLogs, "watch"),
}
ESSENTIAL_ONCE: dict[str, tuple[type, str, Trigger]] = {
    "A report of the worker": (
        PlanMember,
        "reported",
        said(WorkerReported(Linked(plan_gen=1, way=NetworkPath("10.0.0.7")))),
    ),
    "The end of the worker": (PlanMember, "lose", said(WorkerEnded(WorkerDied("It ended.")))),
    "The check of files": (PlanMember, "_check", take_stage),
    "Linking the ring": (PlanMember, "_link_in_time", link),
    "The end of a plan": (PlanDriver, "distrusted", said(DISTRUSTED)),
    "Leaving a plan": (PlanMember, "distrust", said(DISTRUSTED)),
    "Forgetting shared answers": (Answers, "forget_shared", said(MacsRevoked(frozenset({mac_id(1)})))),
    "Forgetting shared sessions": (SavedSessions, "forget_shared", said(MacsRevoked(frozenset({mac_id(1)})))),
    "Freeing a plan": (PlanDriver, "_free", gives(Free())),
    "Seeking another plan": (PlanDriver, "_seek", gives(Seek(1, frozenset()))),
    "Loading again": (PlanDriver, "_take_over", load_again),
    "What a plan lacks": (PlanDriver, "_bring", load_what_lacks),
    "Orders of a plan": (PlanDriver, "_send", gives(Prepare(plan_of(2), 1))),
    "Preparing this Mac's stage": (PlanDriver, "_prepare_own", prepare_own),
}
MAY_CREATE = {  # these await their tasks, retry after any failure, or hold all other tasks
    "base/tasks.py",
    "pairing/pairing_session.py",
    "peers/speed_test.py",
    "answers/lasting_texts.py",
    "answers/model_tokenizer.py",
    "answers/tokenizer_process.py",
    "disks/hub_transfers.py",
    "disks/whole_file_hash.py",
    "peers/path_rate.py",
}


async def no_worker(supervisor: Supervisor) -> int:
    while supervisor._wanted:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)
    return 0


def node_in(folder: Path, *, multicast: bool = False) -> Node:
    """A real node without a worker, which looks for another Mac in vain."""
    home, somewhere = paired_home(folder, 0), Place(HOST, 1)
    return Node(
        NodeConfig(
            home=home,
            name="mac",
            host=HOST,
            port=0,
            budget_bytes=GB,
            multicast=multicast,
            peers=(somewhere,),
            api=ApiOptions(port=0),
            serves=True,
        )
    )


@asynccontextmanager
async def running(folder: Path, *, multicast: bool = False) -> AsyncIterator[tuple[Watch, asyncio.Task[object]]]:
    """Such a node, and a Watch of it."""
    node = node_in(folder, multicast=multicast)
    run: asyncio.Task[object] = asyncio.create_task(node.run())
    try:
        async with Watch(Home(folder / "0")) as watch:
            yield watch, run
    finally:
        node.stop()
        await asyncio.wait({run})


def log_of(folder: Path) -> str:
    return (folder / "0" / "node.log").read_text()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "RESTART_S", (0.01,))
    monkeypatch.setattr(Supervisor, "_run_one", no_worker)


def fail(monkeypatch: pytest.MonkeyPatch, kind: type, method: str, *, times: int) -> None:
    """Make the method fail `times` times, then work."""
    works: Callable[..., Awaitable[object]] = getattr(kind, method)
    left = times

    async def failing(*given: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            return await works(*given)
        raise KeyError(TYPED)

    monkeypatch.setattr(kind, method, failing)


@pytest.mark.parametrize("name", ESSENTIAL)
@pytest.mark.promise("T14")
async def test_a_node_stops_in_order_where_it_cannot_do_without_what_failed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, *ESSENTIAL[name], times=1)
    async with running(tmp_path) as (_, run), asyncio.timeout(SEEN_S):
        with pytest.raises(NodeError, match=f"{name} failed by a defect, and the node has stopped."):
            await run
    assert re.search(f"{name} failed by a defect: {PLACE}", log_of(tmp_path))
    assert TYPED not in log_of(tmp_path)
    assert not (tmp_path / "0" / "node.sock").exists(), "it was not stopped in order"


@pytest.mark.parametrize("name", ESSENTIAL_ONCE)
async def test_a_node_stops_in_order_where_a_plan_would_wait_for_ever_after_what_failed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, method, trigger = ESSENTIAL_ONCE[name]
    fail(monkeypatch, kind, method, times=1)
    monkeypatch.setattr(RosterEnforcement, "enforce", lambda _: None)  # the Macs of the plan are made up
    node = node_in(tmp_path)
    async with asyncio.timeout(SEEN_S):
        run = asyncio.create_task(node.run())
        await until(lambda: node.parts.ring.supervisor._wanted)
        await trigger(node.parts)
        with pytest.raises(NodeError, match=f"{name} failed by a defect, and the node has stopped."):
            await run
    assert re.search(f"{name} failed by a defect: {PLACE}", log_of(tmp_path))
    assert TYPED not in log_of(tmp_path)


async def test_what_another_mac_sends_stops_no_node_and_that_mac_need_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, object]] = []

    async def keep(_: Mesh, device_id: str, message: object) -> bool:
        sent.append((device_id, message))
        return True

    fail(monkeypatch, PlanMember, "prepare", times=1)
    monkeypatch.setattr(Mesh, "send", keep)
    node, head = node_in(tmp_path), mac_id(0)
    run = asyncio.create_task(node.run())
    async with asyncio.timeout(SEEN_S):
        await until(lambda: node.parts.ring.supervisor._wanted)
        await node.parts.node.messages.handle(head, PrepareStage.of(plan_of(2), 1, 7))
        await until(lambda: bool(sent))
        assert not run.done()
        node.stop()
        await run
    ((asker, refusal),) = sent
    assert isinstance(refusal, StageReport)
    assert (asker, refusal.stage.plan, refusal.stage.phase) == (head, PlanId(head, 7), "lost")
    assert re.search(f"Preparing a stage failed by a defect: {PLACE}", log_of(tmp_path))
    assert TYPED not in log_of(tmp_path)


@pytest.mark.usefixtures("bonjour")
@pytest.mark.parametrize("name", RESTARTABLE)
async def test_a_loop_that_failed_is_started_again_counted_and_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, *RESTARTABLE[name], times=2)
    monkeypatch.setattr(node_check, "CHILDREN", ())  # tests/unit/models/test_child_start.py starts them

    def failures(watch: Watch) -> list[LogLine]:
        return [line for line in watch.now.logs if re.search(f"{name} failed by a defect: {PLACE}", line.text)]

    async with running(tmp_path, multicast=name == "Bonjour") as (watch, run):
        await watch.attached(SEEN_S, lambda: not run.done())
        await watch.until(lambda seen: len(failures(seen)) == 2, SEEN_S, "failing")
        found = [f.what async for f in watch.client.check() if f.name == "defect"]
        assert len(found) == 1
        assert found[0].startswith(f"{name} failed 2 times since ")
        assert not run.done()
    assert await run is None
    assert TYPED not in log_of(tmp_path)


async def test_work_that_ends_by_itself_says_where_it_failed_and_what_is_meant_to_be_said(tmp_path: Path) -> None:
    bus, stopping = Bus(), asyncio.Event()
    tasks = Tasks(Journal(tmp_path / "log", "mac", bus), stopping)

    async def failing(error: Exception) -> None:
        raise error

    defects: list[str] = []
    await tasks.spawn("A load", failing(KeyError(TYPED)), lambda: defects.append("unexpected"))
    await tasks.spawn("A load", failing(NotLoaded("No model is loaded.")), lambda: defects.append("expected"))
    tasks.spawn("A load", failing(KeyError(TYPED)))  # it has not begun at the end
    await tasks.stop()
    defect, problem = [line.text for line in bus.now.logs]
    assert re.fullmatch(f"A load failed by a defect: {PLACE}", defect)
    assert TYPED not in defect
    assert problem == str(NotLoaded("No model is loaded."))
    assert defects == ["unexpected"]
    assert not stopping.is_set()


async def test_a_loop_that_runs_again_keeps_nothing_of_the_run_that_failed(tmp_path: Path) -> None:
    class Held:
        """An object that the loop holds."""

    held: list[ref[Held]] = []
    again = asyncio.Event()

    async def loop() -> None:
        if held:
            again.set()
            await asyncio.Event().wait()
        in_hand = Held()
        held.append(ref(in_hand))
        raise KeyError(TYPED)

    tasks = Tasks(Journal(tmp_path / "log", "mac", Bus()), asyncio.Event())
    tasks.restartable("A loop", loop)
    async with asyncio.timeout(SEEN_S):
        await again.wait()
    assert held[0]() is None
    await tasks.stop()


async def test_an_advisor_that_fails_reads_the_events_no_more(tmp_path: Path) -> None:
    class History(ThroughputHistory):
        async def take_in(self, event: AnyEvent, now: float) -> None:
            raise KeyError(TYPED)

    bus = Bus()
    advisor = PlanAdvisor(bus, History(tmp_path), None, None, None)  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        await advisor.watch()
    assert not bus._readers


async def test_what_cannot_be_ended_in_time_does_not_hide_why_the_node_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_down = Node._take_down

    async def endless(node: Node) -> None:
        await take_down(node)
        await asyncio.Event().wait()

    monkeypatch.setattr(service, "TAKE_DOWN_S", 1.0)
    monkeypatch.setattr(Node, "_take_down", endless)
    fail(monkeypatch, Mesh, "_beat", times=1)
    async with running(tmp_path) as (_, run), asyncio.timeout(SEEN_S):
        with pytest.raises(NodeError, match="The watch over links failed by a defect"):
            await run
    assert "Not everything could be ended within 1 s." in log_of(tmp_path)


async def test_a_defect_while_the_digits_are_compared_is_not_hidden_by_wrong_digits(tmp_path: Path) -> None:
    class Talk:
        host = HOST

        async def read(self, *_: object) -> bytes:
            raise KeyError(TYPED)

    class Wrong:
        view = PairingChanged(state="compare", peer="mini")

        def confirm(self, _: str) -> None:
            raise PairingError("The digits are not the same.")

    async def typed(_: PairingChanged) -> str:
        return "000000"

    session = PairingSession(mac(0), "mac", RosterStore(tmp_path), PairingAttempts(tmp_path / "attempts"), typed)
    with pytest.raises(KeyError):
        await session._compare(Talk(), Wrong(), 5.0)  # type: ignore[arg-type]


async def test_what_the_event_loop_calls_is_seen_too(tmp_path: Path) -> None:
    bus = Bus()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(Tasks(Journal(tmp_path / "log", "mac", bus), asyncio.Event()).unhandled)
    nothing: dict[str, str] = {}
    loop.call_soon(nothing.__getitem__, TYPED)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (line,) = bus.now.logs
    assert line.text.startswith("Work of the event loop failed by a defect: KeyError")
    assert TYPED not in line.text


def test_the_place_is_the_innermost_one_of_ours_and_holds_no_value() -> None:
    with pytest.raises(AttributeError) as caught:
        clean_text(len)  # type: ignore[arg-type]
    assert place_of(caught.value).startswith("AttributeError at core/text.py:")
    assert place_of(KeyError(TYPED)) == "KeyError"


def test_a_node_without_defects_says_nothing_of_them() -> None:
    assert restart_findings({}) == []
    (once,) = restart_findings({"Bonjour": tasks_module.Restarts(1, 0.0)})
    assert once.what.startswith("Bonjour failed once since ")


@pytest.mark.slow
def test_every_task_and_thread_of_the_node_is_started_here_and_every_loop_is_made_to_fail() -> None:
    """A new loop needs an entry in the tables above."""
    folder, loops = Path(core.node.__file__).parent, dict[str, set[str]]()
    for path in folder.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            word = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if word in ("create_task", "ensure_future", "call_later", "Thread"):
                name = path.relative_to(folder).as_posix()
                assert name in MAY_CREATE or name == "process.py", f"{name} starts work that nobody watches"
            if (
                word in ("essential", "spawn_essential", "restartable")
                and call.args
                and isinstance(call.args[0], ast.Constant)
            ):
                loops.setdefault(word, set()).add(str(call.args[0].value))
    assert loops == {
        "essential": set(ESSENTIAL),
        "spawn_essential": set(ESSENTIAL_ONCE),
        "restartable": set(RESTARTABLE),
    }
