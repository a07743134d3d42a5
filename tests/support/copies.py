"""Two Macs; one gets a model from the other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from core.errors import LinkLost
from core.events import Transfer
from core.link.frames import Buffer
from core.link.network_paths import NetworkPath
from core.models.files.parts import Part
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.node_message import NodeMessage, to_frame
from core.node.disks.block_serving import BlockReader
from core.node.disks.byte_links import ByteLinks, FileList, LinkRequest, ListRequest, RunRequest, read_list
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import BytesReady, BytesRequest, HeldModel
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import held_model
from core.node.disks.transfer_progress import QueuedTransfer, TransferPhase, TransferProgress
from tests.support.macs import cluster, mac
from tests.support.maker import make_model
from tests.support.models import read_entry
from tests.support.node_messages import from_frame
from tests.support.tasks import tasks_of

MOST_MACS = 4
Blocks = Callable[[RunRequest, bytes], bytes]


class Links(ByteLinks):
    """Real links over loopback between Macs with plain names."""

    def __init__(self, name: str, macs: dict[str, int]) -> None:
        self._macs = macs
        known = cluster(MOST_MACS)
        super().__init__(mac(macs[name]), lambda: known, lambda _: (NetworkPath("127.0.0.1"),), "127.0.0.1")

    def _id_of(self, device_id: str) -> bytes:
        return mac(self._macs[device_id]).device_id


class Mac:
    """One end of links that carry real frames.

    `listed` changes the list of files on its way, `blocks` the data read from the disk. The Mac is gone after
    `lives_for` runs.
    """

    def __init__(self, name: str, folder: Path, macs: dict[str, int]) -> None:
        self.name, self.folder = name, folder
        macs[name] = len(macs)
        models = LocalModels([folder], folder.parent / f"{folder.name}.json")
        self.bus = Bus()
        tasks = tasks_of(Journal(Path(os.devnull), name, self.bus))
        self.copying = ModelCopies(models, self, Links(name, macs), folder, tasks)  # type: ignore[arg-type]
        self.others: dict[str, Mac] = {}
        self.sent: list[NodeMessage] = []
        self.given: list[RunRequest] = []
        self.lives_for = 1 << 30
        self.blocks: Blocks = lambda _, data: data
        self.listed: Callable[[FileList], FileList] = lambda files: files

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        other = self.others.get(device_id)
        if other is None:
            return False
        self.sent.append(message)
        heard = from_frame(*to_frame(message))
        await other.take(self.name, heard)
        return True

    async def take(self, device_id: str, message: NodeMessage) -> None:
        """Handle a message of another Mac."""
        if isinstance(message, BytesReady):
            self.copying.requests.settle(device_id, message)
        else:
            assert isinstance(message, BytesRequest)
            await self.copying.serving.open_port(device_id, message)

    @property
    def blocks_given(self) -> int:
        return sum(run.count for run in self.given)

    def give(self, run: RunRequest, data: bytes) -> bytes:
        """Data that leaves for a run another Mac asked for."""
        if len(self.given) >= self.lives_for:
            raise LinkLost("It is gone.")
        self.given.append(run)
        return self.blocks(run, data)


class Told(TransferProgress):
    """Progress that keeps every report."""

    def __init__(self, pair: Pair) -> None:
        first = Transfer(model=pair.model.name, mac="asker", state="asking")
        super().__init__(QueuedTransfer(first=first), lambda *_: None)
        self._told = pair.told

    def count(self, phase: TransferPhase, done: int, total: int) -> None:
        self._told.append((phase, done, total))


class Pair:
    def __init__(self, root: Path) -> None:
        make_model(root / "sender" / "solo", "llama", layers=2)
        self.model = held_model(read_entry(root / "sender" / "solo"))
        self.macs: dict[str, Mac] = {}
        self.numbers: dict[str, int] = {}
        self.warned: list[tuple[str, str]] = []
        self.sender, self.asker = self.mac("sender", root / "sender"), self.mac("asker", root / "asker")
        self.sender.others, self.asker.others = {"asker": self.asker}, {"sender": self.sender}
        self.told: list[tuple[str, int, int]] = []

    def mac(self, name: str, folder: Path) -> Mac:
        made = self.macs[folder.name] = Mac(name, folder, self.numbers)
        return made

    def helper(self) -> Mac:
        """Another Mac that has the model."""
        shutil.copytree(self.sender.folder, self.sender.folder.parent / "helper")
        helper = self.asker.others["helper"] = self.mac("helper", self.sender.folder.parent / "helper")
        helper.others = {"asker": self.asker}
        return helper

    def empty(self, name: str) -> Mac:
        """Another Mac without the model."""
        folder = self.sender.folder.parent / name
        folder.mkdir()
        made = self.asker.others[name] = self.sender.others[name] = self.mac(name, folder)
        made.others = {"asker": self.asker, "sender": self.sender}
        return made

    async def copy(
        self,
        model: HeldModel | None = None,
        parts: Sequence[Part] = (),
        sources: Sequence[str] = ("sender",),
        to: Mac | None = None,
    ) -> None:
        copying = (to or self.asker).copying
        await copying.fetch(sources, model or self.model, Told(self), parts, lambda *what: self.warned.append(what))

    @property
    def blocks_given(self) -> int:
        """Blocks that all Macs gave, to any Mac."""
        return sum(mac.blocks_given for mac in self.macs.values())


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Two Macs whose given runs are recorded."""
    (tmp_path / "asker").mkdir()
    made, real, real_answer = Pair(tmp_path), BlockReader.read, BlockReader.answer

    def giver(self: BlockReader) -> Mac:
        return made.macs[self._served.directory.parent.name]

    def given(self: BlockReader, run: RunRequest) -> memoryview:
        return memoryview(giver(self).give(run, bytes(real(self, run))))

    def answered(self: BlockReader, request: LinkRequest) -> Buffer:
        answer = real_answer(self, request)
        if isinstance(request, ListRequest):
            return msgspec.msgpack.encode(giver(self).listed(read_list(answer)))
        return answer

    monkeypatch.setattr(BlockReader, "read", given)
    monkeypatch.setattr(BlockReader, "answer", answered)
    return made


def held_model_named(name: str) -> HeldModel:
    return HeldModel(
        name=name,
        fingerprint="a" * 64,
        model_type="llama",
        layers=2,
        total_bytes=1,
        quantization="4-bit",
        context_max=1,
    )
