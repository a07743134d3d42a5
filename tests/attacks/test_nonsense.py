"""T4, T10: a paired Mac copies a model folder of nonsense to this Mac's disk, and reports absurd numbers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from core.errors import BadModel, MaclusterError
from core.events import Transfer
from core.link.control_link import ControlLink, dial_control
from core.link.frames import FrameType
from core.node.base.node_message import NodeMessage, to_frame
from core.node.disks.block_serving import BlockPort, served_model
from core.node.disks.byte_links import ByteLinks
from core.node.disks.messages import (
    BytesReady,
    BytesRequest,
    HeldModel,
    Holds,
    HoldsRequest,
    PeerCopyRequest,
)
from core.node.peers.messages import Ping, Status
from core.numbers import MOST
from core.requests.plans import LoadRequest, PreviewRequest
from tests.attacks.terminal import Terminal
from tests.support.macs import cluster, mac
from tests.support.maker import make_model
from tests.support.models import fingerprint
from tests.support.node_messages import HELD, STATUS, from_frame
from tests.support.nodes import HOST, own_port, paired_home, running_node
from tests.support.tasks import tasks_of
from tui.cli.watch import Watch

pytestmark = pytest.mark.slow

WAIT_S = 120.0
HOSTILE, VICTIM = sorted(range(2), key=lambda number: mac(number).device_id)  # the lower one dials
LINKS = ByteLinks(mac(HOSTILE), cluster, lambda _: (), HOST)
POOR = msgspec.structs.replace(STATUS, name="evil", budget_bytes=0, has_model=False)


class Evil:
    """A paired Mac that turned hostile: its reported state, and the folder it offers for copies."""

    def __init__(self, link: ControlLink, status: Status, folder: Path | None = None) -> None:
        self.link, self.status, self._folder = link, status, folder
        self.rtts: dict[str, float] = {}

    async def say(self, message: NodeMessage) -> None:
        await self.link.send(*to_frame(message))

    async def speak(self) -> None:
        """Answer every question while the link stands."""
        with suppress(MaclusterError):
            while True:
                message = from_frame(*await self.link.recv())
                for answer in self._answers(message):
                    await self.say(answer)

    def _answers(self, message: NodeMessage) -> list[NodeMessage]:
        match message:
            case Ping(sent=sent):
                return [Ping(sent=sent, answers=sent, status=self.status, rtts=self.rtts)]
            case HoldsRequest() if self._folder:
                return [Holds(models=(self.held,))]
            case BytesRequest(number=number) if self._folder:
                hashes = {f.name: _sha256(f) for f in self._folder.iterdir()}
                door = BlockPort(LINKS, mac(VICTIM).text_id, message, served_model(self._folder, hashes), tasks_of())
                return [BytesReady(number=number, port=door.port)]
        return []

    @property
    def held(self) -> HeldModel:
        assert self._folder
        return msgspec.structs.replace(HELD, name="nonsense", fingerprint=fingerprint(self._folder))


def name_of_hostile() -> str:
    """The hostile Mac's name in the roster, whatever it calls itself."""
    member = cluster().roster.member(mac(HOSTILE).device_id)
    assert member
    return member.name


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@asynccontextmanager
async def evil(watch: Watch, status: Status, folder: Path | None = None) -> AsyncIterator[Evil]:
    """The hostile Mac, linked with the node and answering."""
    link = await dial_control(
        *(HOST, own_port(watch)),
        identity=mac(HOSTILE),
        cluster=cluster(),
        peer_id=mac(VICTIM).device_id,
        timeout_s=60.0,
    )
    told = Evil(link, status, folder)
    speaking = asyncio.create_task(told.speak())
    try:
        yield told
    finally:
        link.close()
        await link.wait_closed()
        await speaking


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "good"
    make_model(directory, "llama", layers=4)
    return directory


@pytest.fixture
def nonsense(model: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "nonsense"
    shutil.copytree(model, directory)
    config = json.loads((directory / "config.json").read_text()) | {"num_hidden_layers": 10**400}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


async def check_all_works(watch: Watch, bad: set[str]) -> None:
    """Check the list, a plan, and a load by name; and that each of `bad` is listed with the reason."""
    listed = {choice.name: choice for choice in await watch.client.models()}
    assert {"good", *bad} <= listed.keys()
    assert all(listed[name].layers == 0 and listed[name].preview.problem for name in bad)
    preview = await watch.client.plan(PreviewRequest(model="good"))
    assert preview.plan
    await watch.client.load(LoadRequest(model="good"))
    await watch.until(lambda w: w.now.plan_status == "ready", WAIT_S, "Loading")
    for name in bad:
        with pytest.raises(BadModel):
            await watch.client.plan(PreviewRequest(model=name))


@pytest.mark.promise("T10")
async def test_a_model_of_nonsense_that_a_paired_mac_pushes_disturbs_neither_list_nor_load_nor_plan(
    model: Path, nonsense: Path, tmp_path: Path
) -> None:
    home = paired_home(tmp_path, VICTIM)
    options = ("--no-multicast", "--models", str(model))
    async with running_node(home, *options, has_worker=True) as watch, evil(watch, POOR, nonsense) as hostile:
        await hostile.say(Holds(models=(hostile.held,)))
        async with asyncio.timeout(WAIT_S):
            held = hostile.held.fingerprint
            while held not in [each.fingerprint for each in await watch.client.models()]:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.05)
        await hostile.say(PeerCopyRequest(fingerprint=hostile.held.fingerprint))
        await watch.until(
            lambda w: any(isinstance(e, Transfer) and e.state == "failed" for e in w.seen), WAIT_S, "Refusing the copy"
        )
        assert not [each for each in home.models.glob("*") if each.name != ".partial"]
        shutil.copytree(nonsense, home.models / "by-hand")
        await check_all_works(watch, {"by-hand"})
    async with running_node(home, *options, has_worker=True) as watch:
        await check_all_works(watch, {"by-hand"})


ABSURD = (b"1.7e308", b"-1.7e308", b"1e999", b"1" + b"0" * 400, b"-1" + b"0" * 400, b"18446744073709551616", b"NaN")


@pytest.mark.promise("P8")
async def test_absurd_numbers_of_a_paired_mac_end_its_link_and_no_screen(model: Path, tmp_path: Path) -> None:
    home = paired_home(tmp_path, VICTIM)
    words = [sys.executable, "-m", "tui.cli.main", "--home", str(home.root)]
    most = dict.fromkeys(("memory_bytes", "used_bytes", "worker_rss_bytes", "spare_rss_bytes", "step"), MOST)
    status = msgspec.structs.replace(POOR, **most)
    async with running_node(home, "--no-multicast", "--models", str(model), has_worker=True) as watch:
        _, body = to_frame(Ping(sent=1.0, status=POOR))
        for number in ABSURD:
            for field in (b'"sent":1.0', b'"memory_bytes":%d' % POOR.memory_bytes):
                async with evil(watch, POOR) as hostile:
                    await hostile.link.send(
                        FrameType.PING, body.replace(field, field.partition(b":")[0] + b":" + number)
                    )
                    await hostile.link.wait_closed()
        async with evil(watch, status) as hostile:
            hostile.rtts = {mac(VICTIM).text_id: 3600.0}
            await watch.until(lambda w: any(p.memory_bytes == MOST for p in w.now.peers), WAIT_S, "Hearing the member")
            for command in (["status"], ["plan", "good"]):
                with Terminal([*words, *command], {}) as terminal:
                    assert await asyncio.to_thread(terminal.process.wait, 60) == 0, terminal.text
            with Terminal(words, {"MACLUSTER_HOME": str(home.root)}) as terminal:
                await asyncio.to_thread(terminal.shows, name_of_hostile(), "GB used")
                terminal.type("\x11")  # Ctrl+Q
                assert await asyncio.to_thread(terminal.process.wait, 60) == 0
