"""Transfers to this Mac's disk: one at a time; they can be stopped, paused, resumed and limited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from core.errors import Busy, TransferError
from core.events import Transfer
from core.models.files.byte_rate_limit import ByteRateLimit
from core.node.base.bus import Bus
from core.node.base.journal import Journal
from core.node.base.node_message import NodeMessage
from core.node.disks.current_transfer import CurrentTransfer
from core.node.disks.local_models import LocalModels
from core.node.disks.model_inventory import ModelInventory
from core.node.disks.transfer_progress import QueuedTransfer, TransferProgress
from core.settings import Home
from tests.support.contexts import context_of
from tests.support.tasks import tasks_of

FIRST = Transfer(model="toy", fingerprint="a" * 64, mac="me", state="asking")


def holds(own: CurrentTransfer) -> bool:
    """Whether a transfer runs or is paused."""
    try:
        with own.held():
            return False
    except Busy:
        return True


class Alone:
    def __init__(self) -> None:
        self.contacts: dict[str, object] = {}

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        return False


class TrialTransfer:
    """A transfer with test work. `begun`: the rate limit of each start; the work runs until `enough` is set."""

    def __init__(self, folder: Path, own_id: str = "me") -> None:
        bus = Bus()
        self.tasks = tasks_of(Journal(folder / "log", "node", bus))
        inventory = ModelInventory(own_id, LocalModels([folder], folder / "hashes"), Alone(), bus)  # type: ignore[arg-type]
        self.told: list[tuple[Transfer, str]] = []
        node = context_of(
            own_id=own_id, config={"home": Home(folder)}, bus=bus, tasks=self.tasks, journal=self.tasks._journal
        )
        self.paused = node.home.paused
        told = lambda *told: self.told.append(told)  # noqa: E731
        self.own = CurrentTransfer(node, inventory, self.work, told)
        self.error: TransferError | None = None
        self.transfers: list[QueuedTransfer] = []
        self.begun: list[ByteRateLimit] = []
        self.enough = asyncio.Event()

    async def work(self, progress: TransferProgress) -> None:
        if self.error:
            raise self.error
        self.transfers.append(progress.queued)
        self.begun.append(progress.limit)
        progress.count("running", 5, 9)
        await self.enough.wait()

    def begin(self, bytes_per_s: int = 0, asked_by: str = "") -> None:
        first = msgspec.structs.replace(FIRST, limit_bytes_per_s=bytes_per_s)
        self.own.begin(QueuedTransfer(first=first, asked_by=asked_by, parts={"model.safetensors": ((0, 9), (20, 30))}))

    @property
    def states(self) -> list[str]:
        return [transfer.state for transfer, _ in self.told]


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[TrialTransfer]:
    found = TrialTransfer(tmp_path)
    yield found
    await found.own.close()
    await found.tasks.stop()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_is_paused_goes_on_with_its_work_and_its_limit(made: TrialTransfer) -> None:
    made.begin(bytes_per_s=7)
    await settled()
    with pytest.raises(Busy):
        made.begin()
    made.own.change("pause", 0)
    await settled()
    made.own.change("limit", 8)
    made.own.change("resume", 0)
    await settled()
    made.enough.set()
    await made.own.ended()
    await settled()
    assert made.states == ["asking", "running", "paused", "paused", "asking", "running", "done"]
    assert [pace.bytes_per_s for pace in made.begun] == [8, 8], "one and the same"
    assert [t.limit_bytes_per_s for t, _ in made.told] == [7, 7, 7, 8, 8, 8, 8]
    assert made.told[2][0].done == 5
    assert not holds(made.own)


@pytest.mark.parametrize(
    ("wanted", "states"),
    [
        pytest.param(("stop",), ["asking", "stopped"], id="before-it-began"),
        pytest.param(("pause", "stop"), ["asking", "stopped"], id="rather-stopped"),
        pytest.param(("pause", "resume"), ["asking", "asking", "running"], id="at-once"),
        pytest.param(("resume", "limit"), ["asking", "asking", "running"], id="nothing-to-resume"),
    ],
)
async def test_the_last_word_of_the_person_counts(
    made: TrialTransfer, wanted: tuple[str, ...], states: list[str]
) -> None:
    made.begin()
    for what in wanted:
        made.own.change(what, 0)  # type: ignore[arg-type]
    await settled()
    assert made.states == states
    assert holds(made.own) == (states[-1] != "stopped")


async def test_what_is_paused_gives_way_to_what_comes(made: TrialTransfer) -> None:
    made.begin(asked_by="other")
    await settled()
    assert made.own.is_for("other", "a" * 64)
    assert not made.own.is_for("other", "b" * 64)
    assert not made.own.is_for("third", "a" * 64)
    made.own.change("pause", 0)
    await settled()
    made.begin()
    await settled()
    assert made.states == ["asking", "running", "paused", "stopped", "asking", "running"]
    assert [asker for _, asker in made.told] == ["other"] * 4 + [""] * 2, "each is told of its own"
    made.own.change("stop", 0)
    await settled()
    assert made.states[-1] == "stopped"


async def test_what_fails_is_over_and_rests(made: TrialTransfer) -> None:
    made.error = TransferError("No.")
    made.begin()
    await made.own.ended()
    assert (made.states, made.own.failed_just_now(), holds(made.own)) == (["asking", "failed"], True, False)
    made.own.change("resume", 0)
    assert made.states == ["asking", "failed"]


async def later(made: TrialTransfer, own_id: str = "me") -> TrialTransfer:
    """The next node in the same folder, after this one has ended."""
    await made.own.close()
    await made.tasks.stop()
    return TrialTransfer(made.paused.parent, own_id)


async def test_what_is_paused_is_paused_at_the_next_start_and_goes_on_there(made: TrialTransfer) -> None:
    made.begin(bytes_per_s=7, asked_by="other")
    await settled()
    made.own.change("pause", 0)
    await settled()
    made.own.change("limit", 8)
    assert made.paused.stat().st_mode & 0o777 == 0o600
    again = await later(made, "renamed")
    again.own.restore()
    ((shown, asker),) = again.told
    assert (shown.state, shown.done, shown.limit_bytes_per_s, shown.mac, asker) == ("paused", 5, 8, "renamed", "other")
    assert again.own.is_for("other", "a" * 64)
    again.own.change("resume", 0)
    await settled()
    assert (again.transfers[0].parts, again.begun[0].bytes_per_s) == (made.transfers[0].parts, 8)
    assert again.states == ["paused", "asking", "running"]
    third = await later(again)
    third.own.restore()
    assert (third.told, holds(third.own)) == ([], False), "what went on is not paused"


@pytest.mark.parametrize("ends", ["stop", "another", "damaged"])
async def test_a_pause_that_is_over_does_not_come_back(made: TrialTransfer, ends: str) -> None:
    made.begin()
    await settled()
    made.own.change("pause", 0)
    await settled()
    match ends:
        case "stop":
            made.own.change("stop", 0)
        case "another":
            made.begin()
        case _:
            made.paused.write_bytes(made.paused.read_bytes()[:-9])
    again = await later(made)
    again.own.restore()
    assert (again.told, holds(again.own)) == ([], False)
    again.begin()
    await settled()
    assert again.states == ["asking", "running"]
    await again.own.close()
    await again.tasks.stop()
