"""T13: names, errors, directories and model output with escapes; none of them reaches a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from core.errors import Problem
from core.events import TokenEvent
from core.link.control_link import ControlLink, dial_control
from core.link.frames import FrameType
from core.node.base.node_message import to_frame
from core.node.peers.messages import Ping
from core.node.peers.stage_state import HeldStage, PlanId
from core.node.ring.messages import StageReport
from core.requests.plans import LoadRequest
from core.trust.identity import text_id
from core.trust.roster.changes import add
from core.trust.roster.store import RosterStore
from tests.attacks.hostile import hostile_model, payloads
from tests.attacks.terminal import Terminal, beyond_drawing, words
from tests.attacks.victim import HOST, SIZE, Observer, Victim, advertised, cast, running_victim
from tests.support.macs import chain, mac, member_of
from tests.support.node_messages import STATUS, from_frame

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bonjour")]

EVIL = SIZE
NAME = "\x1b]0;NAME\x07\x1b[2J\x9b31m\u202e"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "m\x1b]0;DIRN\x07\x1b[2J\x9b1m"
    hostile_model(directory, "WORDS")
    return directory


@pytest.fixture(scope="module")
def victim(model: Path) -> Iterator[Victim]:
    """A node whose roster has a hostile name for a member, signed by an admin."""
    evil = msgspec.structs.replace(member_of(mac(EVIL), SIZE + 1), raw_name=NAME.encode())
    rosters = (*chain(SIZE), add(chain(SIZE)[-1], mac(0), evil))
    leaf = mac(EVIL).certificate_der
    with running_victim(cast().victim, "--models", str(model), rosters=rosters, certificates=(leaf,)) as running:
        yield running


@asynccontextmanager
async def surrounded(victim: Victim) -> AsyncIterator[Observer]:
    """The victim among hostile Macs: a paired one in all its messages, a rogue by Bonjour."""
    group = RosterStore(victim.home.rosters).cluster()
    async with Observer(victim) as observer, advertised(text_id(b"r" * 16), b"\x1b]0;ROG\x07\xc2\x9b2J", 9):
        link = await dial_control(
            HOST, victim.port, identity=mac(EVIL), cluster=group, peer_id=victim.me.device_id, timeout_s=60.0
        )
        speaking = asyncio.create_task(speak(link, victim.me.text_id))
        try:
            await observer.until(lambda w: any("ROG" in p.name for p in w.now.peers), 240, "Seeing the rogue")
            await observer.until(lambda w: any("CHIP" in p.chip for p in w.now.peers), 240, "Hearing the member")
            yield observer
        finally:
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            link.close()
            await link.wait_closed()


async def speak(link: ControlLink, head: str) -> None:
    """Send hostile texts in every message of a paired Mac with room for them. Its budget is zero: it is in no plan."""
    status = msgspec.structs.replace(STATUS, name=payloads("SAID")[0], chip="".join(payloads("CHIP")), budget_bytes=0)
    problem = Problem(kind=payloads("KIND")[0], what="".join(payloads("FAULT")), fix="".join(payloads("CURE")))
    lost = HeldStage(plan=PlanId(head, 1), phase="lost", problem=problem)
    await link.send(*to_frame(StageReport(stage=lost)))
    while True:
        kind, body = await link.recv()
        if kind is FrameType.PING:
            message = from_frame(kind, body)
            assert isinstance(message, Ping)
            await link.send(*to_frame(Ping(sent=message.sent, answers=message.sent, status=status)))


def macluster(victim: Victim, *said: str) -> Terminal:
    home = str(victim.home.root)
    return Terminal([sys.executable, "-m", "tui.cli.main", "--home", home, *said], {"MACLUSTER_HOME": home})


@pytest.mark.promise("P20", "T13")
async def test_no_escape_of_a_peer_or_a_model_reaches_the_terminal_through_the_screens(
    victim: Victim, model: Path
) -> None:
    async with surrounded(victim) as observer:
        await observer.client.load(LoadRequest(model=str(model)))
        await observer.until(lambda w: w.now.plan_status == "ready", 240, "Loading")
        with macluster(victim) as terminal:
            await asyncio.to_thread(terminal.shows, "NAME", "ROG", "Chat")
            terminal.type("hello\r")
            await asyncio.to_thread(terminal.shows, "WORDS")
            terminal.type("\x0f")  # Ctrl+O, the models
            await asyncio.to_thread(terminal.shows, "Choose a model", "DIRN")
            written = len(terminal.text)
            terminal.type("\x1b")  # bytes of the same read are part of an escape sequence
            await asyncio.to_thread(terminal.until, lambda _: "Chat" in words(terminal.text[written:]), "the chat")
            await observer.until(lambda w: sum(isinstance(e, TokenEvent) for e in w.seen) >= 80, 240, "The answer")
            (request,) = observer.now.running
            await observer.client.cancel(request)
            await observer.until(lambda w: not w.now.running, 240, "The end of the answer")
            # the screen asks first while it shows an answer being written
            await asyncio.to_thread(
                terminal.until, lambda _: "stopped by you" in words(terminal.text[written:]), "its end"
            )
            terminal.type("\x11")  # Ctrl+Q
            await asyncio.to_thread(terminal.process.wait, 240)
        assert beyond_drawing(terminal.text) == []
        assert not [p for p in payloads("") if p in terminal.text]


@pytest.mark.promise("T13")
async def test_no_escape_reaches_the_terminal_through_the_commands(victim: Victim, model: Path) -> None:
    """Plain text has no drawing at all, in a terminal as in a pipe."""
    async with surrounded(victim):
        for command, shows in {
            ("status",): "NAME",
            ("models",): "DIRN",
            ("plan", str(model)): "DIRN",
            ("run", str(model), "-p", "hello", "--max-tokens", "60"): "WORDS",
        }.items():
            with macluster(victim, *command) as terminal:
                await asyncio.to_thread(terminal.process.wait, 240)
            assert shows in terminal.text, command
            assert beyond_drawing(terminal.text) == [], command
            assert "\x1b" not in terminal.text, command


def test_no_escape_of_a_model_reaches_the_terminal_through_the_demo(model: Path) -> None:
    words_of_demo = (
        "demo",
        "--macs",
        "1",
        "--no-multicast",
        "--model",
        str(model),
        "--prompt",
        "hello",
        "--max-tokens",
        "60",
    )
    with Terminal([sys.executable, "-m", "tui.cli.main", *words_of_demo], {}) as terminal:
        assert terminal.process.wait(240) == 0
    assert "WORDS" in terminal.text
    assert "\x1b" not in terminal.text
    assert beyond_drawing(terminal.text) == []


def test_the_judgement_itself_sees_every_payload() -> None:
    assert beyond_drawing("\x1b[1;1H\x1b[38;5;7mfine\x1b[0m\r\n") == []
    for payload in payloads("x"):
        assert beyond_drawing(f"a{payload}b") != []
