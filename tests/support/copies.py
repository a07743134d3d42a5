"""Two Macs of which one gets a model from the other."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.models.files.parts import Part
from core.models.made.maker import make_model
from core.node.base.messages import (
    AnyMessage,
    FileWord,
    HeldModel,
    PartAsk,
    PartSent,
    from_frame,
    to_frame,
)
from core.node.disks.local_models import LocalModels
from core.node.disks.model_copies import ModelCopies
from core.node.disks.model_inventory import held_model
from tests.support.models import read_entry


class Mac:
    """One end of links that carry real frames. `wrong`: what the other end makes of a message on its way."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.copying = ModelCopies(LocalModels([folder], folder.parent / f"{folder.name}.json"), self, folder)
        self.others: dict[str, Mac] = {}
        self.sent: list[AnyMessage] = []
        self.lives_for = 1 << 30

    def wrong(self, message: AnyMessage) -> AnyMessage:
        return message

    async def send(self, device_id: str, message: AnyMessage) -> bool:
        other = self.others.get(device_id)
        if other is None:
            return False
        self.sent.append(message)
        heard = from_frame(*to_frame(self.wrong(message)))
        assert isinstance(heard, FileWord)
        self.lives_for -= isinstance(message, PartSent)
        if self.lives_for < 0:
            other.copying.gone(self.name)
            return False
        await other.copying.handle_message(self.name, heard)
        return True


class Pair:
    def __init__(self, root: Path) -> None:
        make_model(root / "sender" / "solo", "llama", layers=2)
        self.model = held_model(read_entry(root / "sender" / "solo"))
        self.sender, self.asker = Mac("sender", root / "sender"), Mac("asker", root / "asker")
        self.sender.others, self.asker.others = {"asker": self.asker}, {"sender": self.sender}
        self.told: list[tuple[str, int, int]] = []

    def helper(self) -> Mac:
        """Another Mac that has the model."""
        shutil.copytree(self.sender.folder, self.sender.folder.parent / "helper")
        helper = self.asker.others["helper"] = Mac("helper", self.sender.folder.parent / "helper")
        helper.others = {"asker": self.asker}
        return helper

    def empty(self, name: str) -> Mac:
        """Another Mac, which has nothing of it yet."""
        folder = self.sender.folder.parent / name
        folder.mkdir()
        made = self.asker.others[name] = self.sender.others[name] = Mac(name, folder)
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
        await copying.fetch(sources, model or self.model, lambda *told: self.told.append(told), parts)

    @property
    def parts_asked(self) -> int:
        return sum(isinstance(message, PartAsk) for message in self.asker.sent)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    (tmp_path / "asker").mkdir()
    return Pair(tmp_path)


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
