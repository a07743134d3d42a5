"""Gives files of this Mac's models to linked Macs: which there are, the hashes of their blocks, a door for bytes."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from core.errors import BadModel, LinkLost, MaclusterError, TransferError
from core.models.files.block_map import BLOCK_BYTES, BlockMap, FileFacts, read_map, read_written
from core.models.files.compared_hashes import read_compared
from core.node.base.node_message import NodeMessage, to_frame
from core.node.base.tasks import Tasks
from core.node.disks.block_door import BlockDoor, Served, note_of
from core.node.disks.block_runs import HASH_BYTES
from core.node.disks.byte_links import ByteLinks
from core.node.disks.local_models import LocalModels
from core.node.disks.messages import MAX_HASHES, NOT_HERE, BytesAsk, BytesReady, FilesSent, HashesAsk, HashesSent
from core.settings import MAX_CONTROL_BODY

WINDOW: Final = 4
MAX_DOORS: Final = 4
MAX_WAITING: Final = 16


class FileSender(Protocol):
    """How to send to a linked Mac."""

    async def send(self, device_id: str, message: NodeMessage) -> bool:
        """Whether it went out."""


class FileServing:
    """Answers a Mac at a time, and of each few questions at once. Bytes go over links of their own."""

    def __init__(self, models: LocalModels, sender: FileSender, links: ByteLinks, tasks: Tasks) -> None:
        self._models, self._sender, self._links, self._tasks = models, sender, links, tasks
        self._doors: dict[str, deque[BlockDoor]] = {}
        self._served: dict[tuple[str, str], Served] = {}
        self._last: Served | None = None
        self._wanted: dict[str, str] = {}
        self._answering: set[str] = set()
        self._to_send: dict[str, deque[HashesAsk]] = {}
        self._sending: Counter[str] = Counter()

    def gone(self, device_id: str) -> None:
        """That Mac is linked no more."""
        self._wanted.pop(device_id, None)
        for door in self._doors.pop(device_id, ()):
            door.close()
        for key in [key for key in self._served if key[0] == device_id]:
            del self._served[key]

    def forget(self, fingerprint: str) -> None:
        """The files of that model are about to change: who fetches from here has to ask anew."""
        for device_id in [mac for mac, wanted in self._served if wanted == fingerprint]:
            del self._served[device_id, fingerprint]
            for door in self._doors.get(device_id, ()):
                if door.is_of(fingerprint):
                    door.close()

    async def send_files(self, device_id: str, wanted: str) -> None:
        """One answer a Mac at a time, for files may be hashed for it, and of the questions that wait only the last
        counts.
        """
        self._wanted[device_id] = wanted
        if device_id in self._answering:
            return
        self._answering.add(device_id)
        try:
            while device_id in self._wanted:
                await self._send_files_of(device_id, self._wanted.pop(device_id))
        finally:
            self._answering.discard(device_id)

    async def _send_files_of(self, device_id: str, wanted: str) -> None:
        try:
            directory = await self._models.find_same("", wanted)
            hashes = await self._models.manifest(directory)
            served = await asyncio.to_thread(_served, directory, hashes, self._last)
            self._last = served
            reply = FilesSent(fingerprint=wanted, files=dict(served.files), is_whole=served.there is None)
            if len(to_frame(reply)[1]) > MAX_CONTROL_BODY:
                raise TransferError(f"{directory.name} has {len(hashes)} files, too many to copy.", "Copy it by hand.")
            self._served[device_id, wanted] = served
        except MaclusterError as error:
            reply = FilesSent(fingerprint=wanted, problem=error.problem)
        if not await self._sender.send(device_id, reply):
            self._served.pop((device_id, wanted), None)

    async def send_hashes(self, device_id: str, wanted: HashesAsk) -> None:
        """One answer a Mac at a time, so that who asks and does not read makes this Mac hold no more; and not much more
        of what is asked is remembered.
        """
        waiting = self._to_send.setdefault(device_id, deque())
        if len(waiting) < MAX_WAITING:
            waiting.append(wanted)
        if self._sending[device_id] == WINDOW:
            return
        self._sending[device_id] += 1
        try:
            while waiting:
                await self._answer(device_id, waiting.popleft())
        finally:
            self._sending[device_id] -= 1

    async def _answer(self, device_id: str, wanted: HashesAsk) -> None:
        served = self._served.get((device_id, wanted.fingerprint))
        if served and wanted.name in served.files:
            data = await asyncio.to_thread(_hashes, served, wanted)
            await self._sender.send(device_id, HashesSent(number=wanted.number, data=data))

    async def open_door(self, device_id: str, wanted: BytesAsk) -> None:
        """By which that Mac can fetch blocks of a model of which it has asked for the files. It has a few at a time."""
        if served := self._served.get((device_id, wanted.fingerprint)):
            reply = self._opened(device_id, wanted, served)
        else:
            problem = TransferError("That Mac was not asked which files the model has.", "Copy again.").problem
            reply = BytesReady(number=wanted.number, problem=problem)
        await self._sender.send(device_id, reply)

    def _opened(self, device_id: str, wanted: BytesAsk, served: Served) -> BytesReady:
        doors = self._doors.setdefault(device_id, deque())
        if len(doors) == MAX_DOORS:
            doors.popleft().close()
        try:
            door = BlockDoor(self._links, device_id, wanted, served, self._tasks)
        except LinkLost as error:
            return BytesReady(number=wanted.number, problem=error.problem)
        doors.append(door)
        return BytesReady(number=wanted.number, port=door.port)


def _served(directory: Path, hashes: Mapping[str, str], last: Served | None = None) -> Served:
    """With the hashes of blocks that were read for the `last` Mac that asked, where these are the same files."""
    status = {name: (directory / name).stat() for name in hashes}
    files = {name: FileFacts(size=status[name].st_size, sha256=sha256) for name, sha256 in hashes.items()}
    there, notes = read_map(directory), {name: note_of(each) for name, each in status.items()}
    if last and (last.directory, last.files, last.notes) == (directory, files, notes):
        hashed = last.hashed
    else:
        hashed = {name: bytearray(HASH_BYTES * len(facts.blocks)) for name, facts in files.items()}
    compared = read_compared(directory, files)
    return Served(directory, files, there, there or _known(directory, files), compared, notes, hashed)


def _known(directory: Path, files: Mapping[str, FileFacts]) -> BlockMap | None:
    """The hashes of a whole model that macluster has written, unless other files have taken the place of those."""
    with suppress(BadModel):
        found = read_written(directory)
        return found if found and found.files == files and not found.missing_bytes else None
    return None


def _hashes(served: Served, wanted: HashesAsk) -> bytes:
    """Of the blocks from `first` on, 32 bytes each, as many as one answer takes; zeros for one that is not there."""
    name, numbers = wanted.name, served.files[wanted.name].blocks[wanted.first : wanted.first + MAX_HASHES]
    if wanted.compared and served.there:
        return served.compared.get(name, b"")[HASH_BYTES * numbers.start : HASH_BYTES * numbers.stop]
    if served.known:
        known = served.known.hashes[name]
        return b"".join(known.get(number, NOT_HERE) for number in numbers)
    return b"".join(_hashed(served, name, numbers))


def _hashed(served: Served, name: str, numbers: range) -> Iterator[bytes]:
    try:
        with (served.directory / name).open("rb") as content:
            content.seek(numbers.start * BLOCK_BYTES)
            for number in numbers:
                yield served.sha256(name, number, memoryview(content.read(BLOCK_BYTES)))
    except OSError:
        return
